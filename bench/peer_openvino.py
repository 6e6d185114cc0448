#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI as a peer of `tenon bench model`: reads one command a line, answers one JSON object a line.

  peer_openvino.py MODEL THREADS N_CTX SLOTS
  prefill N       -> {"tok_s": x}     N prompt tokens, nothing cached: until the first token is there
  decode N        -> {"tok_s": x}     N tokens of one sequence after a prompt of 8
  batch S N       -> {"tok_s": x}     S sequences, N tokens each after a prompt of 128, total rate of the decode phase

A file that it does not read gives {"refused": why} in place of {"ready": true}. One step takes all prompts, as its own
pipeline for one user does; the pages take N_CTX tokens at least. Prompts are random, so that nothing is found in a cache.
"""
import json, random, sys, time
import numpy, openvino
import openvino_genai as genai

PAGES_GB = 1  # 8-bit keys and values: 40,000 tokens of a model of 135M, 60,000 of one of 1B


def pipeline(path, threads, n_ctx, slots):
    s = genai.SchedulerConfig()
    s.enable_prefix_caching = False
    s.max_num_batched_tokens = n_ctx
    s.max_num_seqs = slots
    s.cache_size = PAGES_GB
    return genai.ContinuousBatchingPipeline(path, s, "CPU", {"INFERENCE_NUM_THREADS": threads})


def config(n_tokens):
    c = genai.GenerationConfig()
    c.max_new_tokens = c.min_new_tokens = n_tokens
    c.ignore_eos = True
    c.do_sample = False
    return c


def run(pipe, rng, n_seq, n_prompt, n_tokens):
    """Seconds to the step that gives the last first token, and of all steps behind it."""
    ids = [[rng.randrange(300, 40000) for _ in range(n_prompt)] for _ in range(n_seq)]
    t0 = time.monotonic()
    handles = [pipe.add_request(i, openvino.Tensor(numpy.array([ids[i]], dtype=numpy.int64)), config(n_tokens)) for i in range(n_seq)]
    waiting, first = set(range(n_seq)), t0
    while pipe.has_non_finished_requests():
        pipe.step()
        if waiting:
            waiting -= {i for i in waiting if handles[i].can_read()}
            first = time.monotonic()
    end = time.monotonic()
    got = [sum(len(o.generated_ids) for o in h.read_all()) for h in handles]
    if got != [n_tokens] * n_seq:
        raise RuntimeError(f"gave {got} tokens in place of {n_tokens}")
    return first - t0, end - first


def answer(pipe, rng, w):
    if w[0] == "prefill":
        return int(w[1]) / run(pipe, rng, 1, int(w[1]), 1)[0]
    if w[0] == "decode":
        return int(w[1]) / run(pipe, rng, 1, 8, int(w[1]) + 1)[1]
    return int(w[1]) * int(w[2]) / run(pipe, rng, int(w[1]), 128, int(w[2]) + 1)[1]


def one_line(error):
    lines = [l.strip() for l in str(error).splitlines() if l.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160]


def main():
    try:
        pipe = pipeline(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    except RuntimeError as error:
        print(json.dumps({"refused": one_line(error)}), flush=True)
        return
    rng = random.Random(1)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps({"tok_s": answer(pipe, rng, line.split())}), flush=True)
        except RuntimeError as error:
            print(json.dumps({"error": one_line(error)}), flush=True)
            return


main()
