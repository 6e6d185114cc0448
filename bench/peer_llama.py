#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp (xllamacpp) as a peer of `tenon bench model`: reads one command a line, answers one JSON object a line.

  peer_llama.py MODEL THREADS N_CTX SLOTS [MMAP]
  prefill N       -> {"tok_s": x}     N prompt tokens, nothing cached
  decode N        -> {"tok_s": x}     N tokens of one sequence after a prompt of 8
  start W         -> {"ms": x} or {"bytes": x}   W of ready, first (token), resident: of this process's own start
  batch S N       -> {"tok_s": x}     S sequences, N tokens each after a prompt of 128, total rate of the decode phase
"""
import json, os, random, sys, threading, time
import xllamacpp as xllama


def server(path, threads, n_ctx, slots):
    p = xllama.CommonParams()
    p.model.path = path
    p.n_parallel = slots
    p.n_ctx = n_ctx
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.kv_unified = True
    p.n_gpu_layers = 0
    p.cache_ram_mib = 0
    p.warmup = True
    p.flash_attn_type = xllama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    return xllama.Server(p)


def ask(s, rng, n_prompt, n_predict):
    ids = [rng.randrange(300, 40000) for _ in range(n_prompt)]
    r = s.handle_completions({"prompt": ids, "n_predict": n_predict, "cache_prompt": False, "temperature": 0, "ignore_eos": True})
    r = json.loads(r) if isinstance(r, (str, bytes)) else r
    return r["timings"]


def batch(s, rng, n_seq, n_tokens):
    out, seeds = [None] * n_seq, [rng.random() for _ in range(n_seq)]

    def one(i):
        out[i] = ask(s, random.Random(seeds[i]), 128, n_tokens)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n_seq)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    # the last to start decodes in full company; the slowest sequence bounds the phase from above
    return n_seq * n_tokens / (min(t["predicted_ms"] for t in out) / 1e3)


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")


def main():
    held, t0 = resident(), time.monotonic()
    path, threads, n_ctx, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    s, rng = server(path, threads, n_ctx, slots), random.Random(1)
    start = {"ready": {"ms": (time.monotonic() - t0) * 1e3}}
    ask(s, rng, 36, 1)
    start["first"] = {"ms": (time.monotonic() - t0) * 1e3}
    start["resident"] = {"bytes": resident() - held}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        w = line.split()
        if w[0] == "start":
            print(json.dumps(start[w[1]]), flush=True)
            continue
        if w[0] == "prefill":
            v = ask(s, rng, int(w[1]), 1)["prompt_per_second"]
        elif w[0] == "decode":
            v = ask(s, rng, 8, int(w[1]))["predicted_per_second"]
        else:
            v = batch(s, rng, int(w[1]), int(w[2]))
        print(json.dumps({"tok_s": v}), flush=True)


main()
