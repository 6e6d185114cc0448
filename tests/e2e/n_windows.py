#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model with windowed and global layers through the daemon: the windowed group's pool is far too small for whole
sequences, so answers come out right only if pages behind the window go to others while the global layers keep theirs. And the
same model with its layers on several backends, each with a pool of its own."""
import json, random, subprocess, tempfile
from tenon_e2e import BUILD, SLOWER, TINY, Daemon, main

GEMMA = TINY.replace("q4_1", "gemma3")
CONFIG = "allow_paths = true;\ncontext = 1024;\nstep_tokens = 64;\nstep_seqs = 4;\npage_tokens = 16;\n"


def ask(d, requests, model=GEMMA):
    p = subprocess.run([BUILD + "/tenon", "generate", "-m", model, "--jsonl", "--socket", d.socket],
                       input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True, timeout=300 * SLOWER)
    rows = [json.loads(line) for line in p.stdout.splitlines()]
    assert len(rows) == len(requests) and not any("error" in r for r in rows), (p.stdout[-2000:], p.stderr)
    return [r["ids"] for r in rows]


def make(n, seed=5):
    """Half of them begin alike, in the middle of a page; short and long ones, both classes."""
    rng = random.Random(seed)
    common = [rng.randrange(3, 500) for _ in range(301)]
    out = []
    for i in range(n):
        ids = (common if i % 2 else []) + [rng.randrange(3, 500) for _ in range(rng.choice((9, 60, 400, 650)))]
        out.append({"id": i, "ids": ids, "max_tokens": 24, "temperature": 0.7, "seed": i, "class": "offline" if i % 3 else "online"})
    return out


def test_pages_behind_windows_go_to_others():
    requests = make(14)
    with Daemon(CONFIG) as d:
        alone = [ask(d, [r])[0] for r in requests]
    with Daemon(CONFIG + "kv_mib = 1;\n") as d:
        assert ask(d, requests) == alone
        queue = d.ctl("queue")["worker"]["models"][0]["pages"]
        assert queue[0]["total"] == 4 * (2 + 2) + 64 // 16 and queue[1]["total"] > 64, queue  # 320 tokens for four sequences
        assert ask(d, requests) == alone  # once more, over what the prefix cache kept


def loaded_on(d):
    return {m["name"]: m["info"]["backend"] for m in d.ctl("models")["models"] if m["state"] == "loaded"}


def test_layers_on_several_backends():
    requests = make(9)
    small = "kv_mib = 1;\nprefix = { host_mib = 8; };\n"
    names = f'models = ( {{ name = "one"; path = "{GEMMA}"; }}, {{ name = "split"; path = "{GEMMA}"; backend = "cpu=1,ref"; }} );\n'
    with Daemon(CONFIG) as d:
        want = ask(d, requests)
    with Daemon(CONFIG + 'backend = "cpu=1,cpu=2,cpu";\n' + small) as d:  # the same bits as on one, preempted and out of a tier too
        assert ask(d, requests) == want
        assert ask(d, requests) == want
        reuse = d.ctl("prefix", "status")["models"][0]
        assert reuse["hits"] and reuse["restored_pages"] and reuse["partial_copies"], reuse
        assert loaded_on(d) == {GEMMA: "cpu=1,cpu=2,cpu"}
    short = [dict(r, ids=r["ids"][:70], max_tokens=8) for r in requests[:4]]  # ref is slow
    with Daemon(CONFIG + names + small, models=False) as d:  # beside one that is loaded; ref has a share
        ask(d, short, "one")
        alone = [ask(d, [r], "split")[0] for r in short]
        assert ask(d, short, "split") == alone
        assert loaded_on(d) == {"one": "cpu", "split": "cpu=1,ref"}


def test_lists_that_are_wrong():
    for text, words in (('backend = "cpu,ref";', "every part but the last"), ('models = ( { name = "a"; backend = "cpu="; } );', "model 'a': backend:")):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
            f.write(text + "\n")
            f.flush()
            p = subprocess.run([BUILD + "/tenond", "--check-config", "--config", f.name], capture_output=True, text=True, timeout=60 * SLOWER)
            assert p.returncode == 2 and words in p.stderr, p
    with Daemon(CONFIG + f'models = ( {{ name = "much"; path = "{GEMMA}"; backend = "cpu=4,ref"; }}, {{ name = "none"; path = "{GEMMA}"; backend = "nope=1,cpu"; }} );\n', models=False) as d:
        for name, words in (("much", "has 4 layers"), ("none", "nope")):
            p = subprocess.run([BUILD + "/tenon", "generate", "-m", name, "--jsonl", "--socket", d.socket], input='{"id":1,"ids":[5],"max_tokens":1}\n',
                               capture_output=True, text=True, timeout=60 * SLOWER)
            assert words in p.stdout, p


main(globals())
