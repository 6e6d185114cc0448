#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Backends and models that fail: crash, hang, abort or device loss in a step, in loading, at the start; files that change."""
import os, shutil, signal, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

INNER = BUILD + "/plugins/stage/cpu.so"
BASE = 'log = { level = "info"; };\n'


def fault(do, at="batch", call="1", once=None, extra=""):
    """What hangs is waited for; anything else may take as long as the machine needs."""
    timeout_ms = (1500 if once else 600) if do == "hang" else 1000 * PATIENCE
    once = f'once = "{once}";' if once else ""
    return (BASE + f'backend = "fault";\nplugins = {{ fault = {{ inner = "{INNER}"; at = "{at}"; do = "{do}"; call = "{call}"; {once} }}; }};\n'
            + f'worker = {{ backoff_ms = 20; step_timeout_ms = {timeout_ms}; {extra} }};\n')


def reference(n=24, prompt="a steady question"):
    with Daemon(BASE) as d, Client(d) as c:
        return c.ask(prompt, max_tokens=n, ignore_eos=1).key()


def test_a_step_that_fails_once_costs_a_pause():
    ref = reference()
    for do in ("segv", "abort", "hang", "exit", "error"):
        once = tempfile.mktemp(prefix="tn-once-")
        with Daemon(fault(do, call="9", once=once)) as d, Client(d) as c:
            a = c.ask("a steady question", max_tokens=24, ignore_eos=1)
            s = d.status()
            if do == "error" and a.error:
                assert a.error.name in ("backend", "internal"), a.error
            else:
                assert a.done and a.key() == ref, (do, a.error, len(a.ids))
                assert a.done["n_replayed"] == 1 and s["worker"]["deaths"] == 1, (do, s["worker"])
                assert "step of tiny" in s["worker"]["last_death"], s["worker"]["last_death"]
            c.close()
            d.baseline()
        os.path.exists(once) and os.unlink(once)


def test_a_model_that_always_kills_is_taken_out_of_service():
    for do, how in (("segv", "signal 11"), ("hang", "hung: step"), ("abort", "signal 6")):
        with Daemon(fault(do, call="every")) as d, Client(d) as c:
            a = c.ask("x", max_tokens=4)
            assert a.error and a.error.name == "backend" and "out of service" in a.error.text, a.error
            assert how in a.error.text or (do != "hang" and "ended with status" in a.error.text), a.error  # a sanitizer ends it
            s = d.status()
            m = {m["name"]: m for m in s["models"]}
            assert m["tiny"]["state"] == "quarantined" and m["tiny2"]["state"] != "quarantined", m
            assert s["worker"]["deaths"] == 5, s["worker"]
            assert c.ask("x", max_tokens=4).error.name == "backend"
            if do == "segv":
                assert d.ctl("load", "tiny")["state"] == "loaded", "an administrator may try again"
            c.close()
            d.baseline()


def test_other_models_go_on():
    """One model kills the worker again and again; requests of another, in the same worker, end right."""
    ref = None
    with Daemon(BASE) as d, Client(d) as c:
        ref = c.ask("steady", model="tiny2", max_tokens=40, ignore_eos=1).key()
    with Daemon(fault("segv", call="30")) as d, Client(d) as c:
        ids = [c.submit("steady", model="tiny2", max_tokens=40, ignore_eos=1) for _ in range(3)]
        for a in c.finish(*ids):
            assert a.done is None or a.key() == ref
            assert a.done or "out of service" in a.error.text


def test_no_backend():
    with Daemon(BASE + 'backend = "nosuch";\n') as d, Client(d) as c:
        a = c.ask("x")
        assert a.error and "nosuch" in a.error.text, a.error
        assert c.ask("x").error
        assert d.status()["state"] == "running"


def test_a_backend_that_dies_at_the_start():
    for do in ("segv", "abort"):
        with Daemon(fault(do, at="dev_open", call="every")) as d, Client(d) as c:
            a = c.ask("x")
            assert a.error and a.error.name in ("backend", "unsupported", "not_found"), a.error
            assert d.status()["state"] == "running"


def test_a_load_that_kills():
    with Daemon(fault("segv", at="model_open", call="every")) as d, Client(d) as c:
        a = c.ask("x")
        assert a.error and a.error.name == "backend" and "load of tiny" in a.error.text, a.error


def test_a_slow_load_tells_how_far_it_is():
    with Daemon(fault("slow", at="model_open").replace('"slow";', '"slow"; ms = "2000";')) as d, Client(d) as c:
        i = c.submit("x", max_tokens=4, ignore_eos=1)
        row = lambda: next(m for m in d.ctl("models")["models"] if m["name"] == "tiny")

        def told():  # or it is over already, on a machine that was held up
            m = row()
            return m.get("load_permille") == 250 or m["state"] == "loaded"
        wait_until("a quarter", told)
        a = c.finish(i)[0]
        assert a.done, a.error
        loading = [p for phase, p in a.states if phase == 2]
        assert loading[0] == 0 and 250 in loading and loading[-1] == 1000, loading
        assert "load_permille" not in row()
        c.close()
        d.baseline()


def test_a_load_does_not_stop_the_others():
    """The second model's load hangs: the first one's answers come all the same, and the hung load is to blame."""
    once = tempfile.mktemp(prefix="tn-once-")
    with Daemon(fault("hang", at="model_open", call="2", once=once, extra="load_timeout_s = 5;")) as d, Client(d) as c:
        ref = c.ask("steady", max_tokens=30, ignore_eos=1).key()
        began = time.monotonic()
        i = c.submit("x", model="tiny2", max_tokens=4, ignore_eos=1)
        wait_until("a load beside the steps", lambda: d.status()["worker"].get("loading") == "tiny2")
        for _ in range(5):
            assert c.ask("steady", max_tokens=30, ignore_eos=1).key() == ref
        assert "unavailable" not in d.status()["serving"], "it can be asked meanwhile"
        assert not c.open[i].ended or time.monotonic() - began > 5
        a = c.finish(i)[0]
        s = d.status()["worker"]
        assert a.done and s["deaths"] == 1 and "load of tiny2" in s["last_death"], (a.error, s)
        assert c.ask("steady", max_tokens=30, ignore_eos=1).key() == ref
        c.close()
        d.baseline()
    os.unlink(once)


def test_broken_files():
    with Daemon(BASE) as d, Client(d) as c:
        whole = open(TINY, "rb").read()
        for name, data in (("empty", b""), ("short", whole[:1000]), ("cut", whole[:len(whole) // 2]), ("garbage", b"GGUF" + b"\xff" * 5000),
                           ("flipped", whole[:8] + b"\xff" * 8 + whole[16:])):
            with open(f"{d.dir}/models/{name}.gguf", "wb") as f:
                f.write(data)
            a = c.ask("x", model=name)
            assert a.error and a.error.name in ("format", "unsupported", "no_memory"), (name, a.error)
        os.mkdir(f"{d.dir}/models/folder.gguf")
        os.mkfifo(f"{d.dir}/models/pipe.gguf")
        for name in ("folder", "pipe"):
            assert c.ask("x", model=name).error.name == "not_found"
        assert c.ask("x", max_tokens=2).done
        assert d.status()["worker"]["deaths"] == 0
        c.close()
        d.baseline()


def test_a_file_that_is_cut_while_loaded():
    with Daemon(BASE + "worker = { backoff_ms = 20; };\n") as d, Client(d) as c:
        shutil.copy(TINY, d.dir + "/models/copy.gguf")
        i = c.submit("go on", model="copy", max_tokens=1900, ignore_eos=1)
        while len(c.open[i].ids) < 5:
            c.next()
        os.truncate(d.dir + "/models/copy.gguf", 4096)
        a = c.finish(i)[0]
        assert a.done or a.error.name in ("format", "backend"), a.error
        assert c.ask("x", max_tokens=2).done, "others are served"
        c.close()
        d.baseline()


def test_thread_isolation_survives_a_lost_device():
    ref = reference()
    once = tempfile.mktemp(prefix="tn-once-")
    with Daemon(fault("error", call="9", once=once) + 'isolation = "thread";\n') as d, Client(d) as c:
        a = c.ask("a steady question", max_tokens=24, ignore_eos=1)
        assert a.done and a.key() == ref or a.error.name in ("backend", "internal"), (a.error, len(a.ids))
    os.path.exists(once) and os.unlink(once)


main(globals())
