#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Durable requests: they go on without their client, and a later session of the same tenant gets the whole answer."""
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

UID = os.getuid()
TENANTS = f'tenants = ( {{ name = "acme"; users = ( {UID} ); }}, {{ name = "batch"; users = ( {UID} ); }} );\n'
JOB = dict(max_tokens=1900, ignore_eos=1, traffic_class=1, durable=1)


def submit(c, job, text="a long batch job", **kw):
    return c.submit(text, job=job, **{**JOB, **kw})


def collect(c, job, **kw):
    i = c.submit(job=job, collect=1, **kw)
    return c.finish(i)[0]


def reference(c, text="a long batch job"):
    a = c.ask(text, max_tokens=1900, ignore_eos=1, no_reuse=1)
    assert a.done, a.error
    return a.key()


def state(d, job):
    return next((j["state"] for j in d.ctl("jobs")["jobs"] if j["job"] == job), None)


def test_goes_on_and_is_collected():
    with Daemon("step_seqs = 1;\n") as d:
        with Client(d) as c:
            ref = reference(c)
            for n in range(4):
                i = submit(c, f"job {n}")
            while not c.open[i - 3].ids:
                c.next()
        with Client(d) as c:
            early = collect(c, "job 3")  # not begun yet when its client left
            assert early.key() == ref and early.done["n_generated"] == len(ref[0]), early.error
            for n in range(4):
                for _ in range(2):
                    a = collect(c, f"job {n}")
                    assert a.key() == ref, a.error
            assert c.finish(c.submit(job="job 9", collect=1))[0].error.name == "not_found"
        assert {state(d, f"job {n}") for n in range(4)} == {"done"}
        assert d.ctl("jobs")["bytes"] == 4 * (4 * len(ref[0]) + len(ref[1]))
        d.baseline()


def test_through_the_workers_death():
    with Daemon("worker = { backoff_ms = 1; };\n") as d:
        with Client(d) as c:
            ref = reference(c)
            i = submit(c, "x")
            while len(c.open[i].ids) < 20:
                c.next()
        d.kill_worker()
        with Client(d) as c:
            a = collect(c, "x")
            assert a.key() == ref and a.done["n_replayed"] == 1, a.error or a.done
        d.baseline()


def test_names_belong_to_tenants():
    with Daemon(TENANTS + "step_seqs = 1;\n") as d, Client(d) as c, Client(d) as other:
        hold = [c.submit("hold", max_tokens=1900, ignore_eos=1) for _ in range(8)]
        i = submit(c, "x")
        wait_until("the daemon knows it", lambda: state(d, "x"))
        assert collect(other, "x", tenant="batch").error.name == "not_found"
        e = other.finish(submit(other, "x"))[0].error
        assert e.name == "busy" and "another name" in e.text, e
        e = collect(other, "x").error
        assert e.name == "busy" and "reads" in e.text, e
        j = submit(other, "x", tenant="batch")
        c.cancel(i)
        assert c.finish(i)[0].error.name == "cancelled"
        assert collect(other, "x").error.name == "cancelled"
        for h in hold:
            c.cancel(h)
        c.finish(*hold)
        assert other.finish(j)[0].done
        other.close()
        d.baseline(sessions=1)


def test_limits():
    with Daemon("step_seqs = 1;\ndurable = { max = 2; };\n") as d, Client(d) as c:
        hold = [c.submit("hold", max_tokens=1900, ignore_eos=1) for _ in range(8)]
        a, b = submit(c, "a"), submit(c, "b")
        e = c.finish(submit(c, "c"))[0].error
        assert e.name == "full" and "durable.max" in e.text, e
        for h in hold:
            c.cancel(h)
        c.finish(a, b)
        assert c.finish(submit(c, "c", max_tokens=2))[0].done, "ended ones make room"
        assert state(d, "a") is None and state(d, "b") == "done" and state(d, "c") == "done"
        c.finish(*hold)
        d.baseline(sessions=1)


def test_an_administrator_drops_them():
    with Daemon(TENANTS + "step_seqs = 1;\n") as d:
        with Client(d) as c:
            for n in range(6):
                submit(c, f"job {n}")
            submit(c, "job 5", tenant="batch", max_tokens=2)
            wait_until("all are known", lambda: len(d.ctl("jobs")["jobs"]) == 7)
        assert d.ctl("jobs", "drop", "job 9", ok=False)["error"]["code"] == "not_found"
        assert d.ctl("jobs", "drop", "job 5", ok=False)["error"]["code"] == "invalid"
        assert d.ctl("jobs", "drop", "job 5", "--tenant", "batch")["state"] == "dropped"
        for n in range(6):
            d.ctl("jobs", "drop", f"job {n}")
        assert d.ctl("jobs") == {"jobs": [], "n": 0, "bytes": 0}
        with Client(d) as c:
            assert collect(c, "job 5").error.name == "not_found"
        d.baseline()


def test_unload_force_ends_them_too():
    with Daemon("step_seqs = 1;\n") as d:
        with Client(d) as c:
            for n in range(10):
                submit(c, f"job {n}")
            wait_until("one runs", lambda: any(j["tokens"] for j in d.ctl("jobs")["jobs"]))
        d.ctl("unload", "tiny", "--force")
        with Client(d) as c:
            e = collect(c, "job 9").error
            assert e.name == "cancelled" and "administrator" in e.text, e
        d.baseline()


main(globals())
