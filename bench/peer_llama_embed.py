#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp (xllamacpp) as a peer of `tenon bench embed`: reads one command a line, answers one JSON object a line.

  peer_llama_embed.py MODEL THREADS N_CTX SLOTS     N_CTX: of a slot; SLOTS: most that are tried
  embed FILE      -> {"texts_s": x}   all lines of FILE, in one call

The first command also picks slots and batch: each setting runs twice over the texts, the fastest stays.
"""
import gc, json, sys, time
import xllamacpp as xllama


def server(path, threads, n_ctx, slots, batch):
    p = xllama.CommonParams()
    p.model.path = path
    p.embedding = True
    p.n_parallel = slots
    p.n_ctx = n_ctx * slots
    p.n_batch = p.n_ubatch = batch
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.n_gpu_layers = 0
    p.warmup = True
    p.flash_attn_type = xllama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    return xllama.Server(p)


def embed(s, texts):
    t0 = time.monotonic()
    r = s.handle_embeddings({"input": texts, "encoding_format": "float"})
    seconds = time.monotonic() - t0
    r = json.loads(r) if isinstance(r, (str, bytes)) else r
    assert len(r["data"]) == len(texts), r
    return len(texts) / seconds


def tuned(make, slots, texts):
    """The fastest setting's arguments; texts that are longer than a batch rule it out."""
    best, choice = 0, None
    for n, batch in ((8, 256), (16, 256), (16, 512), (32, 512), (64, 2048)):
        if n > slots:
            continue
        try:
            s = make(n, batch)
            rate = max(embed(s, texts), embed(s, texts))
        except (KeyError, AssertionError):
            rate = 0
        if rate > best:
            best, choice = rate, (n, batch)
        del s
        gc.collect()
    return choice


def main():
    path, threads, n_ctx, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    s = None
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        with open(line.split(maxsplit=1)[1].rstrip("\n"), encoding="utf-8") as f:
            texts = f.read().splitlines()
        if s is None:
            make = lambda n, batch: server(path, threads, n_ctx, n, batch)
            n, batch = tuned(make, slots, texts)
            s = make(n, batch)
            print(f"peer llama: {n} slots, batches of {batch} tokens", file=sys.stderr)
        print(json.dumps({"texts_s": embed(s, texts)}), flush=True)


main()
