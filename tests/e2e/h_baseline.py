#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads and unloads, cancels at random points, clients that die: afterwards descriptors, pages and every byte that the
daemon and its worker account for are where they were. TENON_CHAOS_KILLS=1000 makes it 100 cycles, 10,000 cancels and
1,000 deaths; a short form runs with make check."""
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

KILLS = int(os.environ.get("TENON_CHAOS_KILLS", "25"))
CONF = 'limits = { attaches_per_s = 100000; };\nscheduler = { calibrate = false; };\n'
GROWTH = 12 << 20  # resident bytes: allocators keep a little


def fds_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def held(d):
    """What both processes hold when nobody wants anything; prefixes dropped."""
    d.baseline()
    d.ctl("prefix", "purge")
    m = d.ctl("memory")
    areas = {(who, k): v for who in ("daemon", "worker") for k, v in m[who]["areas"].items()}
    return {"areas": areas, "fds": (fds_of(d.pid), fds_of(d.worker_pid())),
            "resident": m["daemon"]["resident"] + m["worker"]["resident"]}


def compare(d, before):
    """ZeroMQ's own thread closes what a client's end leaves, a little later."""
    after = held(d)
    wait_until("descriptors", lambda: fds_of(d.pid) <= before["fds"][0] and fds_of(d.worker_pid()) <= before["fds"][1])
    grown = {k: after["areas"][k] - v for k, v in before["areas"].items() if after["areas"][k] > v + 65536}
    assert not grown, grown
    assert after["resident"] < before["resident"] + GROWTH * SLOWER, (before["resident"], after["resident"])


def some_work(d, rnd, c, n):
    """n requests in flights of a few, cancelled at random points."""
    while n > 0:
        ids = [c.submit(ids=[rnd.randrange(3, 500) for _ in range(rnd.randrange(1, 200))], max_tokens=rnd.randrange(1, 60),
                        ignore_eos=1, traffic_class=rnd.randrange(2), priority=rnd.randrange(-2, 3)) for _ in range(8)]
        for _ in range(rnd.randrange(0, 60)):
            if c.next(0) is None:
                break
        for i in ids:
            if rnd.randrange(8):
                c.cancel(i)
        c.finish(*ids)
        for i in ids:
            assert c.open.pop(i).ended
        n -= len(ids)


def test_loads_and_unloads():
    with Daemon(CONF) as d:
        def cycle():
            for name in ("tiny", "tiny2"):
                d.ctl("load", name)
            with Client(d) as c:
                assert c.ask("x", max_tokens=3).done and c.ask("x", max_tokens=3, model="tiny2").done
            for name in ("tiny", "tiny2"):
                d.ctl("unload", name)
        for _ in range(5):
            cycle()
        before = held(d)
        for _ in range(KILLS // 10):
            cycle()
        compare(d, before)


def test_cancels():
    rnd = seeded("cancels")
    with Daemon(CONF) as d:
        with Client(d) as c:
            some_work(d, rnd, c, 200)
        before = held(d)
        with Client(d) as c:
            some_work(d, rnd, c, KILLS * 10)
        compare(d, before)


def test_deaths():
    rnd = seeded("deaths")
    with Daemon(CONF) as d:
        def death():
            c = Client(d)
            for _ in range(rnd.randrange(1, 6)):
                c.submit("w " * rnd.randrange(1, 100), max_tokens=rnd.randrange(1, 300), ignore_eos=1,
                         traffic_class=rnd.randrange(2))
            for _ in range(rnd.randrange(0, 30)):
                c.next(0)
            c.close()  # with everything open: to the daemon the same as a death
        d.ctl("load", "tiny")
        for _ in range(10):
            death()
        before = held(d)
        for _ in range(KILLS):
            death()
        compare(d, before)


if KILLS > 100:
    main(globals(), seconds=KILLS)
main(globals())
