#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tenon plan` against what tenond and its worker really take once every page, row and weight has been touched.

  tests/e2e/m_plan.py                              the test, with tiny models
  tests/e2e/m_plan.py --measure MODEL CTX SESSIONS [KV]   prints plan, measurement and deviation for any model

Counted is RssAnon + RssFile of both processes; shared memory of clients' sessions is not part of the plan.
"""
import json, random, subprocess, sys
from tenon_e2e import BUILD, SLOWER, TINY, Daemon, children_of, main

SLACK = 3 << 20  # of allocator, stacks, code pages: dominates where the model is tiny
ANSWER = 64  # tokens: long enough that the first is still answering when the last is prefilled


def plan(model, ctx, sessions, kv):
    p = subprocess.run([BUILD + "/tenon", "plan", "-m", model, "--ctx", str(ctx), "--sessions", str(sessions), "--kv", kv, "--json"],
                       capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def resident(pid):
    got = 0
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(("RssAnon:", "RssFile:")):
            got += int(line.split()[1]) << 10
    return got


def measure(model, ctx, sessions, kv):
    """(planned ledger, bytes resident before the model came, after it was used to the brim)."""
    want = plan(model, ctx, sessions, kv)
    rng, vocab = random.Random(1), int(json.loads(subprocess.run(
        [BUILD + "/tenon", "inspect", "-m", model, "--json"], capture_output=True, text=True, check=True).stdout)["architecture"]["vocabulary"])
    asks = [{"id": i, "ids": [rng.randrange(vocab) for _ in range(ctx - ANSWER - 1)], "max_tokens": ANSWER, "temperature": 0.8, "seed": i} for i in range(sessions)]
    with Daemon(f'context = {ctx};\nkv = "{kv}";\nkv_sessions = {sessions};\nallow_paths = true;\n') as d:
        d.ctl("backends")
        pids = [d.pid, d.worker_pid()]
        before = sum(map(resident, pids))
        p = subprocess.run([BUILD + "/tenon", "generate", "-m", model, "--jsonl", "--socket", d.socket],
                           input="".join(json.dumps(a) + "\n" for a in asks), capture_output=True, text=True, timeout=600 * SLOWER)
        ends = [json.loads(line).get("finish") for line in p.stdout.splitlines()]
        assert len(ends) == sessions and set(ends) <= {"length", "stop"}, (ends, p.stdout[:500], p.stderr)
        return want, before, sum(map(resident, pids))


def report(model, ctx, sessions, kv):
    want, before, after = measure(model, ctx, sessions, kv)
    off = want["total_bytes"] - after
    print(f"{want['model']}: {sessions} sessions of {ctx} ({kv}): planned {want['total_bytes'] / 2**20:.1f} MiB, "
          f"measured {after / 2**20:.1f} MiB ({before / 2**20:.1f} before loading): {100 * off / after:+.1f} %")
    return want, after, off


def test_plan_is_what_it_takes():
    for model, ctx, sessions, kv in ((TINY, 1024, 6, "f16"), (TINY.replace("q4_1", "q8_0"), 2048, 12, "f32")):
        want, after, off = report(model, ctx, sessions, kv)
        assert want["bytes"]["kv"] == sessions * want["kv_session_bytes"], want
        assert -SLACK - 0.05 * after < off < SLACK + 0.05 * after, (want, after)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        report(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), (sys.argv[5:] or ["f16"])[0])
    elif "TENON_E2E_PRELOADED" in __import__("os").environ:
        print("skipped: sanitizers take memory of their own")
    else:
        main(globals())
