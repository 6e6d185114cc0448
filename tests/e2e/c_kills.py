#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of clients and workers at random points: nothing leaks, every stream goes on with the bits of an undisturbed run.
TENON_CHAOS_KILLS: how many of each (default: a short form for make check)."""
import os, signal, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

KILLS = int(os.environ.get("TENON_CHAOS_KILLS", "12"))
CONF = 'log = { level = "info"; };\nlimits = { attaches_per_s = 5000; };\nworker = { backoff_ms = 20; };\n'


def client_process(d, rnd):
    """A child that attaches and works until it is killed; says when it has begun."""
    r, w = os.pipe()
    pid = os.fork()
    if pid:
        os.close(w)
        return pid, r
    try:
        os.close(r)
        style = rnd.randrange(4)
        os.write(w, b"b")
        if style == 0:
            raw = Raw(d)
            raw.write(HEAD.pack(200, BEGIN, LAST, 1) + b"half")
            time.sleep(30)
        if style == 1:
            raw = Raw(d)
            for i in range(4):
                raw.begin(i + 1, b"never read", max_tokens=1900)
            time.sleep(30)
        c = Client(d, eventfd=bool(rnd.randrange(2)))
        while True:
            ids = [c.submit("w " * rnd.randrange(1, 300), max_tokens=rnd.randrange(1, 200), ignore_eos=1,
                            model=rnd.choice(["tiny", "tiny2"])) for _ in range(rnd.randrange(1, 6))]
            if style == 2:
                for i in ids:
                    c.cancel(i)
            c.finish(*ids)
    except BaseException:
        pass
    os._exit(0)


def test_clients_killed_at_random_points():
    rnd = seeded("kill clients")
    with Daemon(CONF) as d, Client(d) as other:
        ref = other.ask("the other client", max_tokens=16).key()
        other.ask("x", model="tiny2", max_tokens=1)
        d.baseline(sessions=1)
        before = d.status()
        for _ in range(KILLS):
            pids = [client_process(d, rnd) for _ in range(2)]
            for _, r in pids:
                os.read(r, 1)
            time.sleep(rnd.random() * 0.08)
            assert other.ask("the other client", max_tokens=16).key() == ref
            for pid, r in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(r)
        after = d.baseline(sessions=1)
        assert after["worker"]["starts"] == before["worker"]["starts"], "a client's death killed the worker"
        assert after["descriptors"] <= before["descriptors"], (after["descriptors"], before["descriptors"])


def test_workers_killed_at_random_points():
    rnd = seeded("kill workers")
    prompts = [("Once upon a time " + "and then " * (3 * i), 60 + 10 * i, "tiny" if i % 3 else "tiny2") for i in range(6)]
    extra = [dict(), dict(temperature=20.0, seed=5), dict(n_logprobs=2), dict(repeat_penalty=1.3, presence_penalty=0.5),
             dict(stop=["\u0007never"]), dict()]
    with Daemon(CONF) as d, Client(d) as c:
        ref = [c.ask(p, max_tokens=n, model=m, ignore_eos=1, **x) for (p, n, m), x in zip(prompts, extra)]
        assert all(a.done for a in ref), [a.error for a in ref]
        replayed = killed = 0
        for round in range(KILLS):
            ids = [c.submit(p, max_tokens=n, model=m, ignore_eos=1, **x) for (p, n, m), x in zip(prompts, extra)]
            for _ in range(rnd.randrange(1, 3)):
                for _ in range(rnd.randrange(0, 60)):
                    if all(c.open[i].ended for i in ids):
                        break
                    c.next(20)
                d.kill_worker()
                killed += 1
            for i, a in enumerate(c.finish(*ids)):
                assert a.done, (round, i, a.error)
                assert a.key() == ref[i].key(), (round, i, "other bits after a replay")
                assert a.done["finish"] == ref[i].done["finish"] and a.done["n_generated"] == len(a.ids)
                assert a.logprobs == ref[i].logprobs, (round, i)
                replayed += a.done["n_replayed"]
        s = d.baseline(sessions=1)
        print(f"     {killed} kills, {replayed} requests replayed, {s['worker']['starts']} worker starts")
        assert replayed >= 1
        assert all(m["state"] != "quarantined" for m in s["models"]), "an outsider's kill -9 is not the model's fault"


def test_a_worker_starts_after_an_upgrade():
    """Its program file has gone, as when a package was upgraded under a running daemon."""
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.copy(BUILD + "/tenond", folder)
        with Daemon(CONF, program=program, env={"TENON_PLUGINS": BUILD + "/plugins/stage"}) as d, Client(d) as c:
            ref = c.ask("before", max_tokens=4).key()
            os.unlink(program)
            d.kill_worker()
            assert c.ask("before", max_tokens=4).key() == ref
            assert d.status()["worker"]["starts"] == 2


def test_cancel_and_kill_together():
    rnd = seeded("cancel and kill")
    with Daemon(CONF) as d:
        for _ in range(max(3, KILLS // 4)):
            with Client(d) as c:
                ids = [c.submit("go on " * 20, max_tokens=500, ignore_eos=1) for _ in range(8)]
                for _ in range(rnd.randrange(30)):
                    c.next(20)
                for i in ids[::2]:
                    c.cancel(i)
                d.kill_worker()
                for i in ids[1::4]:
                    c.cancel(i)
                for a in c.finish():
                    assert a.done or a.error.name == "cancelled", a.error
        d.baseline()


def test_daemon_killed_with_clients_attached():
    with Daemon(CONF) as d:
        for _ in range(max(2, KILLS // 6)):
            cs = [Client(d, eventfd=bool(i % 2)) for i in range(8)]
            ids = [c.submit("x " * 50, max_tokens=1000, ignore_eos=1) for c in cs]
            time.sleep(0.02)
            worker = d.worker_pid()
            os.kill(d.pid, signal.SIGKILL)
            for c, i in zip(cs, ids):
                try:
                    c.finish(i)
                    raise AssertionError("an end from a dead daemon")
                except Failure as e:
                    assert e.name == "gone", e
                c.close()
            d.proc.wait()
            wait_until("worker follows its daemon", lambda: not alive(worker))
            d.start()
            with Client(d) as c:
                assert c.ask("again", max_tokens=2).done
        d.baseline()


main(globals(), seconds=5 * PATIENCE + 6 * KILLS)
