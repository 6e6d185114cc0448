#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon as it should be used: streaming, several models, cancel, ping, reload, drain, private mode."""
import os, signal, subprocess, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

CONF = 'log = { level = "debug"; };\n'


def test_streams():
    with Daemon(CONF) as d, Client(d) as c:
        a = c.ask("Hello there", max_tokens=24)
        assert a.error is None and len(a.ids) == a.done["n_generated"] <= 24, a.__dict__
        assert a.text.decode()
        t = a.done["time"]
        assert t["load_ns"] > 0 and 0 < t["first_token_ns"] <= t["total_ns"] and t["transport_ns"] > 0, t
        assert t["queue_ns"] + t["prefill_ns"] + t["decode_ns"] <= t["total_ns"], t
        b = c.ask("Hello there", max_tokens=24)
        assert a.key() == b.key()
        assert b.done["time"]["load_ns"] == 0
        assert any(p == 2 for p, _ in a.states), "LOADING was not told"
        c.close()
        d.baseline()


def test_many_at_once_say_what_one_says_alone():
    with Daemon(CONF) as d:
        prompts = [f"Question number {i}: " + "word " * (i % 37) for i in range(48)]
        with Client(d) as c:
            alone = [c.ask(p, max_tokens=8 + i % 9).key() for i, p in enumerate(prompts)]
        clients = [Client(d, eventfd=bool(i % 2)) for i in range(4)]
        ids = [(clients[i % 4], clients[i % 4].submit(p, max_tokens=8 + i % 9)) for i, p in enumerate(prompts)]
        for i, (c, r) in enumerate(ids):
            assert c.finish(r)[0].key() == alone[i], i
        for c in clients:
            c.close()
        d.baseline()


def test_two_models_and_thread_isolation():
    answers = []
    for how in ("process", "thread"):
        with Daemon(CONF + f'isolation = "{how}";\n') as d, Client(d) as c:
            x, y = c.submit("one two", model="tiny"), c.submit("one two", model="tiny2")
            a, b = c.finish(x, y)
            assert a.done and b.done and a.key() != b.key()
            answers.append((a.key(), b.key()))
            assert len([m for m in d.ctl("models")["models"] if m["state"] == "loaded"]) == 2
            assert d.ctl("models", "unload", "tiny2")["state"] == "unloaded"
            assert c.ask("one two", model="tiny2").key() == b.key()
    assert answers[0] == answers[1]


def test_sampling_options_reach_the_model():
    with Daemon(CONF) as d, Client(d) as c:
        a = c.ask("abc", max_tokens=12, temperature=20.0, seed=7, n_logprobs=3)
        b = c.ask("abc", max_tokens=12, temperature=20.0, seed=7)
        assert a.key() == b.key() and a.key() != c.ask("abc", max_tokens=12, temperature=20.0, seed=8).key()
        assert len(a.logprobs) == len(a.ids) and all(len(p) == 4 for p in a.logprobs)
        assert [p[0][0] for p in a.logprobs] == a.ids
        g = c.ask("abc", max_tokens=12)
        stop = g.text.decode()[2:6]
        s = c.ask("abc", max_tokens=12, stop=[stop])
        assert s.done["finish"] == 2 and stop not in s.text.decode() and g.text.startswith(s.text)
        ban = c.ask("abc", max_tokens=12, bias=[(g.ids[0], -1000.0)])
        assert ban.ids[0] != g.ids[0]
        ids = c.ask(ids=[5, 6, 7], max_tokens=4)
        assert ids.done["n_prompt"] == 3


def test_cancel_at_any_point():
    with Daemon(CONF) as d, Client(d) as c:
        c.ask("warm up", max_tokens=2)
        for wait in (0, 0.001, 0.005, 0.02, 0.05):
            i = c.submit("count for ever", max_tokens=1900, ignore_eos=1)
            end = time.monotonic() + wait
            while time.monotonic() < end:
                c.next(1)
            c.cancel(i)
            a = c.finish(i)[0]
            assert a.error and a.error.name == "cancelled", a.__dict__
            d.baseline(sessions=1)
        assert c.cancel(i) == -4
        i = c.submit("x", max_tokens=1900, ignore_eos=1, deadline_ns=30_000_000)
        a = c.finish(i)[0]
        assert a.error and a.error.name == "timeout", a.error


def test_ping():
    with Daemon(CONF) as d:
        for eventfd in (False, True):
            with Client(d, eventfd=eventfd) as c:
                for i in range(200):
                    assert c.ping(b"p%d" % i) == 0
                    while len(c.pongs) <= i:
                        assert c.next(2000)
                assert c.pongs == [b"p%d" % i for i in range(200)]


def test_idle_models_unload():
    with Daemon(CONF + "idle_unload_s = 1;\n") as d, Client(d) as c:
        first = c.ask("a b c").key()
        wait_until("unloaded", lambda: d.ctl("models")["models"][0]["state"] == "unloaded")
        assert c.ask("a b c").key() == first
        assert d.ctl("models")["models"][0]["loads"] == 2


def test_names_stay_in_their_folder():
    with Daemon(CONF, models=False) as d, Client(d) as c:
        os.symlink(TINY, d.dir + "/models/out.gguf")
        shutil.copy(TINY, d.dir + "/models/in.gguf")
        assert c.ask("x", model="in").done
        for name, code in (("out", "not_found"), ("nosuch", "not_found"), ("../log", "invalid"), ("/etc/passwd", "denied"),
                           (TINY, "denied"), ("a/../in", "invalid"), (".in", "invalid"), (None, "not_found")):
            a = c.ask("x", model=name)
            assert a.error and a.error.name == code, (name, a.error)
    with Daemon(CONF + "allow_paths = true;\n", models=False) as d, Client(d) as c:
        assert c.ask("x", model=TINY).done
        assert c.ask("x", model="/nonexistent.gguf").error.name == "not_found"


def test_reload():
    with Daemon(CONF) as d, Client(d) as c:
        assert c.ask("x").done
        d.write_config(CONF.replace("debug", "warn"))
        d.base = d.base.replace('"tiny2"', '"other"')
        d.write_config(CONF.replace("debug", "warn"))
        os.kill(d.pid, signal.SIGHUP)
        wait_until("new level", lambda: d.ctl("log-level")["level"] == "warn")
        assert {m["name"] for m in d.ctl("models")["models"]} == {"tiny", "other"}
        assert c.ask("x", model="other").done
        d.write_config("nonsense = 1;\n")
        os.kill(d.pid, signal.SIGHUP)
        wait_until("refusal", lambda: "nonsense: unknown key" in d.log_text())
        assert c.ask("x", model="other").done
        assert d.ctl("reload")["state"] == "reloading"


def test_drain():
    with Daemon(CONF + "drain_s = 600;\n") as d:
        c = Client(d)
        c.ask("x", max_tokens=2)
        # enough work that the daemon still drains when the late request comes, however fast the machine
        busy = [c.submit(f"y{k}", max_tokens=600, ignore_eos=1) for k in range(24)]
        while not c.open[busy[-1]].ids:
            c.next()
        os.kill(d.pid, signal.SIGTERM)
        wait_until("draining", lambda: "draining" in d.log_text())
        try:
            Client(d)
            raise AssertionError("attached to a draining daemon")
        except Failure as e:
            assert e.name in ("draining", "gone"), e
        j = c.submit("z", max_tokens=2)
        *all_busy, late = c.finish(*busy, j)
        for a in all_busy:
            assert a.done and a.done["n_generated"] == 600, a.__dict__
        assert late.error and late.error.name == "draining"
        assert d.proc.wait(PATIENCE) == 0
        try:
            while c.next(2000):
                pass
            raise AssertionError("the session outlives the daemon")
        except Failure as e:
            assert e.name in ("gone", "draining"), e
        c.close()


def test_second_signal_ends_at_once():
    with Daemon(CONF + "drain_s = 60;\n") as d, Client(d) as c:
        i = c.submit("y", max_tokens=1900, ignore_eos=1)
        while not c.open[i].ids:
            c.next()
        os.kill(d.pid, signal.SIGINT)
        wait_until("draining", lambda: "draining" in d.log_text())
        os.kill(d.pid, signal.SIGTERM)
        assert d.proc.wait(PATIENCE) == 0
        try:
            a = c.finish(i)[0]
            assert a.error and a.error.name in ("draining", "gone"), a.error
        except Failure as e:
            assert e.name == "gone"


def test_second_daemon_is_refused_and_a_killed_one_leaves_nothing_in_the_way():
    with Daemon(CONF) as d:
        p = subprocess.run([BUILD + "/tenond", "--config", d.conf], capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 1 and "another tenond" in p.stderr, p
        with Client(d) as c:
            assert c.ask("x").done
            worker = d.worker_pid()
            os.kill(d.pid, signal.SIGKILL)
            d.proc.wait()
            try:
                c.ask("y")
                raise AssertionError("an answer from a dead daemon")
            except Failure as e:
                assert e.name == "gone"
        wait_until("worker gone with its daemon", lambda: not alive(worker))
        d.start()
        with Client(d) as c:
            assert c.ask("x").done


def test_config_mistakes_end_the_start():
    with Daemon(CONF) as d:
        bad = d.dir + "/models/bad.conf"
        with open(bad, "w") as f:
            f.write("drain_s = 5;\nlog = { colour = 1; };\n")
        p = subprocess.run([BUILD + "/tenond", "--config", bad], capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 2 and f"{bad}:2: colour: unknown key" in p.stderr, p
        for args, says in ((["--check-config", "--config", bad], "colour"), (["--kv", "f17"], "f17"), (["--nonsense"], "unknown"),
                           (["x"], "no arguments"), (["--private"], "--ready-fd"), (["--model", "a"], "NAME=PATH"),
                           (["--config", "/nonexistent"], "No such file")):
            p = subprocess.run([BUILD + "/tenond", *args], capture_output=True, text=True, timeout=PATIENCE)
            assert p.returncode in (1, 2) and says in p.stderr, (args, p)
        p = subprocess.run([BUILD + "/tenond", "--check-config", "--config", SRC + "/etc/tenond.conf"], capture_output=True,
                           text=True, timeout=PATIENCE)
        assert p.returncode == 0, p


def test_private_daemon_ends_with_its_reader():
    r, w = os.pipe()
    p = subprocess.Popen([BUILD + "/tenond", "--private", "--ready-fd", str(w), "--model", "m=" + TINY], pass_fds=[w],
                         stdin=subprocess.DEVNULL)
    os.close(w)
    line = os.read(r, 4096).decode()
    assert line.startswith("ready /"), line
    path = line.split()[1]
    with Client(path) as c:
        assert c.ask("x").done
        assert c.ask("x", model=TINY2).done, "a private daemon takes paths"
        p.send_signal(signal.SIGINT)
        assert c.ask("x").done, "Ctrl-C is for the program that started it"
    os.close(r)
    assert p.wait(PATIENCE) == 0
    assert not os.path.exists(os.path.dirname(path))


def test_logs_hold_no_prompts():
    with Daemon('log = { level = "trace"; format = "json"; };\n') as d:
        with Client(d) as c:
            a = c.ask("my secret passphrase", max_tokens=8)
            c.ask("another secret thing", model="nosuch")
        d.baseline()
        text = d.log_text()
        assert "secret" not in text
        for line in text.splitlines():
            json.loads(line)


def test_logs_hold_prompts_when_asked():
    with Daemon('log = { level = "trace"; prompts = true; };\n') as d:
        with Client(d) as c:
            c.ask("my secret passphrase", max_tokens=8)
        assert "text=my secret passphrase" in d.log_text()


def test_idle_costs_nothing():
    with Daemon() as d:
        clients = [Client(d, eventfd=i % 2 == 0, events_bytes=65536, submit_bytes=65536) for i in range(64)]
        clients[0].ask("x", max_tokens=2)
        time.sleep(2.5)
        def ticks():
            out = 0
            for p in [d.pid] + children_of(d.pid):
                f = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
                out += int(f[11]) + int(f[12])
            return out
        def switches():
            out = 0
            for p in [d.pid] + children_of(d.pid):
                for t in os.listdir(f"/proc/{p}/task"):
                    out += int(open(f"/proc/{p}/task/{t}/status").read().split("\nvoluntary_ctxt_switches:")[1].split()[0])
            return out
        t0, s0, began = ticks(), switches(), time.monotonic()
        time.sleep(3)
        took = time.monotonic() - began
        rate = (switches() - s0) / took
        print(f"     idle with 64 sessions: {rate:.1f} wake-ups/s, {(ticks() - t0) / took:.2f} ticks/s of 100")
        assert rate < 12, rate
        for c in clients:
            c.close()
        d.baseline()


main(globals())
