#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model with windowed and global layers through the daemon: the windowed group's pool is far too small for whole
sequences, so answers come out right only if pages behind the window go to others while the global layers keep theirs."""
import json, random, subprocess
from tenon_e2e import BUILD, SLOWER, TINY, Daemon, main

GEMMA = TINY.replace("q4_1", "gemma3")
CONFIG = "allow_paths = true;\ncontext = 1024;\nstep_tokens = 64;\nstep_seqs = 4;\npage_tokens = 16;\n"


def ask(d, requests):
    p = subprocess.run([BUILD + "/tenon", "generate", "-m", GEMMA, "--jsonl", "--socket", d.socket],
                       input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True, timeout=50 * SLOWER)
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


main(globals())
