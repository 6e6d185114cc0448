# SPDX-License-Identifier: Apache-2.0
# bash completion of tenon, tenonctl, tenond
_tenon_models() {
    local dir=${TENON_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon/models}
    COMPREPLY=($(compgen -W "$(cd "$dir" 2>/dev/null && ls -1 ./*.gguf 2>/dev/null | sed 's,^\./,,; s,\.gguf$,,')" -- "$1"))
    COMPREPLY+=($(compgen -f -X '!*.gguf' -- "$1"))
}
_tenon_names() { sed -n '/^examples/q; s/^  \([a-z][a-z-]*\) .*/\1/p'; }
_tenon() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    case $prev in
    -m | --model) _tenon_models "$cur"; return ;;
    --precision) COMPREPLY=($(compgen -W "fast exact" -- "$cur")); return ;;
    --kv) COMPREPLY=($(compgen -W "f32 f16 q8_0 q4_0" -- "$cur")); return ;;
    --class) COMPREPLY=($(compgen -W "online offline" -- "$cur")); return ;;
    --backend) COMPREPLY=($(compgen -W "cpu ref" -- "$cur")); return ;;
    --type) COMPREPLY=($(compgen -W "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K Q4_K Q5_K Q6_K q2_k_m q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m" -- "$cur")); return ;;
    --socket | --template | --full | --text | --plot | --importance | -f | -o) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    bench) COMPREPLY=($(compgen -W "$("$1" bench --help | _tenon_names)" -- "$cur")); return ;;
    esac
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$("$1" --help | _tenon_names)" -- "$cur"))
    elif [[ $cur == -* && ${COMP_WORDS[1]} == bench ]]; then
        COMPREPLY=($(compgen -W "$("$1" bench "${COMP_WORDS[2]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)" -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)" -- "$cur"))
    fi
}
_tenonctl() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "status top models load unload backends sessions queue jobs memory prefix log-level reload drain" -- "$cur"))
    elif [ "$COMP_CWORD" = 2 ] && [ "${COMP_WORDS[1]}" = prefix ]; then
        COMPREPLY=($(compgen -W "status limits pins unpin purge" -- "$cur"))
    elif [ "$COMP_CWORD" = 2 ] && [ "${COMP_WORDS[1]}" = jobs ]; then
        COMPREPLY=($(compgen -W "drop" -- "$cur"))
    elif [ "$COMP_CWORD" = 2 ] && [ "${COMP_WORDS[1]}" = models ]; then
        COMPREPLY=($(compgen -W "list load unload" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "--json --socket --timeout --wait --force --once --host-mib --disk-mib --tenant --model --help" -- "$cur"))
    fi
}
complete -F _tenon tenon
complete -F _tenonctl tenonctl
