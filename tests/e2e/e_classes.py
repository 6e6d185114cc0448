#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Online and offline work of several tenants and models: who goes first, what is refused, what the administrator sees and
does. Nothing here looks at a clock: who was first is told by the order of events, how things stand by the daemon."""
import fcntl, os, pty, select, struct, sys, termios
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

UID = os.getuid()
ONE = "step_seqs = 1;\n"  # one place: everybody else waits
TENANTS = (f'tenants = ( {{ name = "acme"; users = ( {UID} ); weight = 2.0; }},\n'
           f'            {{ name = "batch"; users = [ {UID} ]; }}, {{ name = "other"; users = ( 4000000 ); }} );\n')
LONG = dict(max_tokens=1900, ignore_eos=1)
ONLINE, OFFLINE = 0, 1


def rows(d, **want):
    """The rows of `tenonctl queue` that have these values."""
    return [r for r in d.ctl("queue")["requests"] if all(r.get(k) == v for k, v in want.items())]


def refusal(c, *a, **kw):
    """The error of a request, wherever it was refused: by the library or by the daemon."""
    try:
        got = c.ask(*a, **kw)
    except Failure as e:
        return e
    assert got.error, f"{kw}: was answered"
    return got.error


def cancel_all(c):
    for i, a in c.open.items():
        if not a.ended:
            c.cancel(i)
    c.finish()


def end_order(c, *ids):
    """The order in which these requests end."""
    out = []
    while len(out) < len(ids):
        assert c.next() is not None, "no event for long"
        out += [i for i in ids if c.open[i].ended and i not in out]
    return out


def test_bad_values_are_refused_at_once():
    with Daemon(TENANTS + "kv_mib = 1;\n") as d, Client(d) as c:
        cases = [(dict(priority=101), "invalid", "-100..100"), (dict(priority=-2 ** 31), "invalid", "-100..100"),
                 (dict(deadline_ns=2 ** 64 - 5), "invalid", "arrival"), (dict(traffic_class=7), "invalid", "class"),
                 (dict(traffic_class=-1), "invalid", "class"), (dict(tpot_ms=2 ** 31), "invalid", "hour"),
                 (dict(tenant="uid:4000000"), "denied", "acme, batch"),
                 (dict(tenant=f"uid:{UID}"), "denied", "acme, batch"), (dict(tenant="x" * 64), "invalid", "63"),
                 (dict(max_tokens=5000), "too_long", "2048"), (dict(max_tokens=1900), "no_memory", "1344"),
                 (dict(durable=1), "invalid", "offline"), (dict(durable=1, traffic_class=OFFLINE), "invalid", "job"),
                 (dict(model="nosuch"), "not_found", "nosuch")]
        assert c.ask("x", max_tokens=1, tenant="other").done, "the daemon's own user speaks for all that have an entry"
        for kw, code, says in cases:
            e = refusal(c, "hello", **kw)
            assert e.name == code and says in e.text, (kw, e.name, e.text)
        assert refusal(c, "hello", deadline_ns=1).name == "timeout"
        assert c.ask("hello", max_tokens=3).done
        d.baseline(sessions=1)


def test_tenant_and_class_are_seen():
    with Daemon(ONE + TENANTS) as d, Client(d) as c:
        for kw in (dict(), dict(traffic_class=OFFLINE, priority=-3), dict(tenant="batch", priority=7)):
            c.submit("hello", **LONG, **kw)
        extra = [c.submit("again", **LONG) for _ in range(9)]
        wait_until("rows", lambda: len([r for r in rows(d) if r["state"] in ("waiting", "prefill", "decode")]) >= 3)
        off, batch = rows(d, **{"class": "offline"})[0], rows(d, tenant="batch")[0]
        assert off["tenant"] == "acme" and off["priority"] == -3, off
        assert batch["class"] == "online" and batch["priority"] == 7 and batch["aged"] >= 7, batch
        waits = wait_until("one that waits says why", lambda: [r for r in rows(d, state="waiting") if r.get("wait") and r["why"]])
        assert all(r["waited_ms"] >= 0 and r["total"] <= 2048 for r in waits), waits
        top = subprocess.run([BUILD + "/tenonctl", "--socket", d.socket, "top", "--once"], capture_output=True, text=True)
        assert top.returncode == 0 and "batch" in top.stdout and "offline" in top.stdout, top
        names = {t["name"]: t["weight"] for m in d.status()["serving"]["models"] for t in m["tenants"]}
        assert names.get("acme") == 2.0 and names.get("batch") == 1.0, names
        assert extra and len(rows(d)) >= 3
        cancel_all(c)
        d.baseline(sessions=1)


def test_users_without_an_entry_stand_for_themselves():
    with Daemon(ONE) as d, Client(d) as c:
        i = c.submit("hello", **LONG)
        wait_until("its row", lambda: rows(d, tenant=f"uid:{UID}"))
        assert c.ask("x", max_tokens=1, tenant=f"uid:{UID}").done
        e = refusal(c, "x", tenant="acme")
        assert e.name == "denied" and f"uid:{UID}" in e.text, e
        c.cancel(i)
        c.finish()


def test_priority_decides_among_those_that_wait():
    with Daemon(ONE) as d, Client(d) as c:
        first = [c.submit("hello", **LONG) for _ in range(6)]
        low = c.submit("low", max_tokens=4, ignore_eos=1, priority=-50)
        high = c.submit("high", max_tokens=4, ignore_eos=1, priority=50)
        order = end_order(c, high, low, *first)
        assert order[-1] == low and order.index(high) < order.index(first[-1]), (order, high, low)
        d.baseline(sessions=1)


def test_online_goes_before_offline_and_takes_its_place():
    with Daemon(ONE) as d, Client(d) as c:
        ref = c.ask("a batch job", **LONG).key()
        quick = c.ask("somebody waits", max_tokens=8, ignore_eos=1).key()
        batch = [c.submit("a batch job", **LONG, traffic_class=OFFLINE) for _ in range(4)]
        wait_until("offline work runs", lambda: rows(d, state="decode", **{"class": "offline"}))
        i = c.submit("somebody waits", max_tokens=8, ignore_eos=1)
        c.finish(i)
        assert c.open[i].key() == quick
        assert not all(c.open[b].ended for b in batch), "online work had to wait for offline work to end"
        answers = c.finish(*batch)
        assert all(a.key() == ref for a in answers), "an interrupted answer is the same answer"
        assert sum(a.done["n_preempted"] for a in answers) >= 1
        off = d.status()["serving"]["models"][0]["offline"]
        assert off["preempted"] >= 1 and off["ended"] == 4, off
        d.baseline(sessions=1)


def test_who_does_not_read_gives_up_the_place():
    """One place, taken by answers whose client never reads its small ring: the others get theirs."""
    with Daemon(ONE + "slow_reader = { pause_ms = 20; cancel_s = 1000; };\n") as d, Client(d) as c:
        ref = c.ask("hello", max_tokens=8, ignore_eos=1).key()
        r = Raw(d)
        for i in range(4):
            r.begin(i + 1, b"tell me", max_tokens=1900, flags=LAST, rflags=1)  # more than its ring holds
        wait_until("one of them is paused", lambda: rows(d, state="paused"))
        for k in (ONLINE, OFFLINE, ONLINE):
            assert c.ask("hello", max_tokens=8, ignore_eos=1, traffic_class=k).key() == ref
        assert rows(d, state="paused", wait="reader"), "it still waits for its reader"
        r.close()
        d.baseline(sessions=1)


def test_queues_have_limits_that_a_reload_changes():
    conf = ONE + "offline = { max_waiting = 3; };\n"
    with Daemon(conf) as d, Client(d) as c:
        hold = [c.submit("hello", **LONG) for _ in range(10)]  # no offline request starts before these have ended
        ids = [c.submit("x", **LONG, traffic_class=OFFLINE) for _ in range(5)]
        refused = [a for a in c.finish(*ids[3:])]
        assert all(a.error and a.error.name == "full" and "3" in a.error.text for a in refused), [a.error for a in refused]
        d.write_config(ONE + "offline = { max_waiting = 4; };\n")
        d.ctl("reload")
        wait_until("the new limit in the log", lambda: "reloaded" in d.log_text())
        more = [c.submit("x", **LONG, traffic_class=OFFLINE) for _ in range(2)]
        a = c.finish(more[1])[0]
        assert a.error and a.error.name == "full" and "4" in a.error.text, a.error
        assert not c.open[more[0]].ended and not all(c.open[i].ended for i in hold)
        assert d.status()["serving"]["models"][0]["offline"]["refused"] == 3
        cancel_all(c)
        d.baseline(sessions=1)


def test_a_second_model_does_not_end_the_first_ones_answers():
    with Daemon() as d, Client(d) as c, Client(d) as other:
        ref = [c.ask(f"story {i}", **LONG).key() for i in range(3)]
        second = other.ask("hi", max_tokens=5, model="tiny2").key()
        d.ctl("unload", "tiny2")
        ids = [c.submit(f"story {i}", **LONG) for i in range(3)]
        while not c.open[ids[0]].ids:
            c.next()
        assert other.ask("hi", max_tokens=5, model="tiny2").key() == second
        assert [a.key() for a in c.finish(*ids)] == ref
        off = [c.submit(f"story {i}", **LONG, traffic_class=OFFLINE) for i in range(3)]
        for _ in range(5):
            assert other.ask("hi", max_tokens=5, model="tiny2").key() == second
        assert [a.key() for a in c.finish(*off)] == ref
        other.close()
        d.baseline(sessions=1)


def test_unload_never_waits_for_ever():
    with Daemon(ONE) as d, Client(d) as c:
        ids = [c.submit("x", **LONG) for _ in range(12)]
        wait_until("it runs", lambda: rows(d, state="decode"))
        e = d.ctl("models", "unload", "tiny", ok=False)["error"]
        assert e["code"] == "busy" and "requests are open" in e["message"], e
        e = d.ctl("models", "unload", "tiny", "--wait", "1", ok=False)
        if "error" in e:  # on a fast machine they were through within the second
            assert e["error"]["code"] == "busy" and "still open" in e["error"]["message"], e
        assert c.ask("y", max_tokens=2).done, "it serves on"
        more = [c.submit("x", **LONG) for _ in range(12)]
        wait_until("it runs again", lambda: rows(d, state="decode"))
        assert d.ctl("models", "unload", "tiny", "--force")["state"] == "unloaded"
        for a in c.finish(*more):
            assert a.done or (a.error.name == "cancelled" and "administrator" in a.error.text), a.error
        assert any(c.open[m].error for m in more)
        assert c.ask("z", max_tokens=2).done, "the next request loads it again"
        assert all(c.open[i].done for i in ids)
        d.baseline(sessions=1)


def test_unload_waits_for_the_last_answer_and_takes_no_new_one():
    with Daemon(ONE) as d, Client(d) as c:
        ids = [c.submit("x", **LONG) for _ in range(3)]
        while not c.open[ids[0]].ids:
            c.next()
        p = subprocess.Popen([BUILD + "/tenonctl", "--socket", d.socket, "--json", "unload", "tiny", "--wait", "60"],
                             stdout=subprocess.PIPE, text=True)
        answers = c.finish(*ids)
        assert all(a.done for a in answers)
        assert json.loads(p.communicate()[0])["state"] == "unloaded"
        d.baseline(sessions=1)


def test_memory_is_refused_before_it_is_taken():
    with Daemon() as d, Client(d) as c:
        c.ask("x", max_tokens=1)
        one = d.ctl("memory")["models"]["tiny"]
        assert one["total"] >= one["weights_own"] + one["kv"] + one["workspace"] > 0
        limit = one["total"] * 3 // 2 // (1 << 20) + 1
        d.write_config(f"memory = {{ limit_mib = {limit}; }};\n")
        d.ctl("reload")
        wait_until("the new limit", lambda: d.ctl("memory")["limit"] == limit << 20)
        # nobody uses the first one: it makes room
        assert c.ask("x", max_tokens=1, model="tiny2").done
        states = {m["name"]: m["state"] for m in d.status()["models"]}
        assert states == {"tiny": "unloaded", "tiny2": "loaded"}, states
        # somebody does: the newcomer is refused, the first one's answers go on
        ids = [c.submit("x", model="tiny2", **LONG) for _ in range(40)]
        while not c.open[ids[0]].ids:
            c.next()
        e = refusal(c, "x", max_tokens=1, model="tiny")
        assert e.name == "no_memory" and "too little" in e.text, e
        assert d.ctl("memory")["models_total"] <= limit << 20
        cancel_all(c)
        assert not [c.open[i].error for i in ids if c.open[i].error and c.open[i].error.name != "cancelled"]
        d.baseline(sessions=1)


def screen(d, rows, cols, until, term="vt100"):
    """tenonctl top on a terminal of that size: reads until it shows these words, types q; its exit status and output."""
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(TERM=term, LINES=str(rows), COLUMNS=str(cols))
        os.execv(BUILD + "/tenonctl", ["tenonctl", "--socket", d.socket, "top"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    out = b""

    def show():
        nonlocal out
        if select.select([fd], [], [], 0.05)[0]:
            try:
                out += os.read(fd, 65536)
            except OSError:
                return True
        return until in out
    try:
        wait_until("the screen", show)
        os.write(fd, b"pq")
    finally:
        status = os.waitpid(pid, 0)[1]
        os.close(fd)
    return status, out


def test_top_on_terminals_of_any_size():
    with Daemon() as d, Client(d) as c:
        assert c.ask("x", max_tokens=3).done
        status, out = screen(d, 40, 160, b"q quit")
        assert status == 0 and b"tenond" in out and b"tiny" in out and b"online" in out, out
        for size in ((24, 80), (4, 20), (2, 10), (1, 5)):
            status, out = screen(d, *size, b"q" if size[0] < 24 else b"q quit")
            assert status == 0, (size, status, out)
        status, out = screen(d, 24, 80, b"tiny", term="no-such-terminal")
        assert status == 0, "a terminal that nobody knows gets text"


def test_wrong_use_of_tenonctl():
    with Daemon() as d:
        for args in (["prefix"], ["prefix", "limits"], ["prefix", "nothing"], ["status", "--force"], ["unload"],
                     ["unload", "tiny", "--wait", "0"], ["prefix", "limits", "--host-mib", "-1"], ["queue", "x"],
                     ["prefix", "unpin"], ["top", "--wait", "1"]):
            p = subprocess.run([BUILD + "/tenonctl", "--socket", d.socket, *args], capture_output=True, text=True)
            assert p.returncode == 2 and "tenonctl" in p.stderr, (args, p)
        assert d.ctl("prefix", "unpin", "tiny/77", ok=False)["error"]["code"] == "not_found"
        assert d.ctl("unload", "tiny", ok=False)["error"]["code"] == "not_found"


main(globals())
