#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a hostile or broken client may try: each try gets a typed error, hurts only its own session, and leaves nothing."""
import os, socket, sys, threading, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

CONF = 'log = { level = "info"; };\nlimits = { attaches_per_s = 5000; };\n'


def ends_with(d, act, code, says=""):
    """A fresh session does `act`; it must end with an ERROR of id 0 that carries this code, and its socket closed."""
    r = Raw(d)
    assert r.rc == 0, (r.rc, r.text)
    act(r)
    f = r.until(W_ERROR)
    got = error_of(f)
    assert f[1] == 0 and got[0] == code and says in got[1], (f[1], got, code, says)
    assert r.hung_up()
    r.close()


def test_attach():
    cases = [
        (hello(magic=1), "protocol"), (hello(size=127), "protocol"), (b"", None), (b"x", "protocol"),
        (hello() + b"x", "protocol"), (hello(vmin=2, vmax=9), "version"), (hello(vmin=0, vmax=0), "version"),
        (hello(features=1), "protocol"), (hello(bell=7), "invalid"), (hello(c2d=100000), "invalid"),
        (hello(c2d=1 << 40), "invalid"), (hello(d2c=4096), "invalid"), (hello()[:120] + b"\1" * 8, "protocol"),
    ]
    for message, code in cases:
        with Daemon(CONF) as d:
            if not message:
                r = Raw(d, False)
                r.sock.shutdown(socket.SHUT_WR)
            else:
                r = Raw(d, message)
                assert r.rc and lib().tenon_error_name(r.rc).decode() == code, (message[:16], r.rc, r.text)
            assert r.hung_up()
            r.close()
            with Client(d) as c:
                assert c.ask("x", max_tokens=2).done
            d.baseline()


def test_attach_with_descriptors_and_without_hello():
    with Daemon(CONF) as d:
        before = d.status()["descriptors"]
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
        r = Raw(d, hello(), fds=files)
        assert lib().tenon_error_name(r.rc) == b"protocol", r.rc
        r.close()
        mute = [Raw(d, False) for _ in range(20)]
        with Client(d) as c:
            assert c.ask("x", max_tokens=2).done
        for m in mute:
            m.read_welcome()
            assert lib().tenon_error_name(m.rc) == b"timeout", m.rc
            m.close()
        d.baseline()
        assert d.status()["descriptors"] <= before + 1
        for f in files:
            os.close(f)


def test_ring_indices():
    for act in (lambda r: r.write(b"", advance=r.c2d_bytes + 8), lambda r: r.write(b"", advance=1 << 63),
                lambda r: r.write(b"", advance=-8), lambda r: r.write(b"", advance=4)):
        with Daemon(CONF) as d, Client(d) as c:
            ends_with(d, act, "protocol")
            assert c.ask("x", max_tokens=2).done
    with Daemon(CONF) as d, Client(d) as c:  # nothing can be told through a ring whose head lies
        r = Raw(d)
        struct.pack_into("<Q", r.c2d, HEAD_AT, 1 << 40)
        for _ in range(1200):  # read only when room is short
            r.frame(PING, 0, b"x" * 40)
        assert r.hung_up()
        r.close()
        assert c.ask("x", max_tokens=2).done


def test_frame_lengths():
    for n in (0, 1, 15, 65536, 1 << 31, (1 << 32) - 1, 16385):
        with Daemon(CONF) as d, Client(d) as c:
            ends_with(d, lambda r: r.frame(PING, 0, b"x", bytes=n), "protocol")
            assert c.ask("x", max_tokens=2).done


def test_frames():
    ok = begin_body(b"hi")
    cases = [
        ("unknown type", lambda r: r.frame(99, 1)),
        ("a type of the daemon's", lambda r: r.frame(W_TOKENS, 1, b"\0" * 8)),
        ("a type of workers", lambda r: r.frame(50, 1, b"{}")),
        ("flags", lambda r: r.frame(PING, 0, b"", flags=1)),
        ("flags of BEGIN", lambda r: r.frame(BEGIN, 1, ok, flags=2)),
        ("id 0", lambda r: r.frame(BEGIN, 0, ok, flags=LAST)),
        ("replayed id", lambda r: (r.frame(BEGIN, 5, ok, flags=LAST), r.frame(BEGIN, 5, ok, flags=LAST))),
        ("id going back", lambda r: (r.frame(BEGIN, 5, ok, flags=LAST), r.frame(BEGIN, 4, ok, flags=LAST))),
        ("CANCEL of nothing", lambda r: r.frame(CANCEL, 1)),
        ("DATA of nothing", lambda r: r.frame(DATA, 1, b"x")),
        ("END of nothing", lambda r: r.frame(END, 7)),
        ("DATA after LAST", lambda r: (r.begin(1, b"hi", max_tokens=1000, flags=LAST), r.frame(DATA, 1, b"x"))),
        ("too much DATA", lambda r: (r.frame(BEGIN, 1, begin_body(b"", payload_bytes=4)), r.frame(DATA, 1, b"12345"))),
        ("END too soon", lambda r: (r.frame(BEGIN, 1, begin_body(b"", payload_bytes=4)), r.frame(END, 1))),
        ("LAST too soon", lambda r: r.frame(BEGIN, 1, begin_body(b"12", payload_bytes=4), flags=LAST)),
        ("CANCEL with a body", lambda r: (r.begin(1), r.frame(CANCEL, 1, b"x"))),
        ("PING of 65 bytes", lambda r: r.frame(PING, 0, b"x" * 65)),
        ("body cut off", lambda r: r.frame(BEGIN, 1, ok[:40], flags=LAST)),
        ("size of the struct", lambda r: r.frame(BEGIN, 1, begin_body(b"hi", size=8), flags=LAST)),
        ("model longer than the frame", lambda r: r.frame(BEGIN, 1, REQUEST.pack(REQUEST.size, 1, 0, 200, *[0] * 5, 0, 0, 0.0, 1.0, 0.0,
                                                                              0, 1.0, 0.0, 0.0, *[0] * 12), flags=LAST)),
    ]
    for i in range(0, len(cases), 2):  # three breaches within a minute block the user
        with Daemon(CONF) as d, Client(d) as c:
            for what, act in cases[i:i + 2]:
                try:
                    ends_with(d, act, "protocol")
                except AssertionError as e:
                    raise AssertionError(f"{what}: {e}")
            assert c.ask("x", max_tokens=2).done
            c.close()
            d.baseline()


def test_parameters_are_typed_errors_of_one_request():
    with Daemon(CONF) as d:
        r = Raw(d)
        nan = float("nan")
        cases = [(dict(temperature=nan), "invalid"), (dict(temperature=-1.0), "invalid"), (dict(top_p=0.0), "invalid"),
                 (dict(min_p=2.0), "invalid"), (dict(repeat=0.0), "invalid"), (dict(presence=1e9), "invalid"),
                 (dict(window=1 << 30), "invalid"), (dict(n_logprobs=21), "invalid"), (dict(n_stop=17), "invalid"),
                 (dict(n_bias=1025), "invalid"), (dict(priority=101), "invalid"), (dict(traffic_class=2), "invalid"),
                 (dict(rflags=128), "invalid"), (dict(rflags=256), "invalid"), (dict(n_history=1, extra=b"\0" * 4), "invalid"), (dict(reserved=1), "invalid"),
                 (dict(history_text=1), "invalid"), (dict(input=9), "invalid"), (dict(model=b"a\0b"), "invalid"),
                 (dict(model=b"\xff\xfe"), "invalid"), (dict(model=b"../../etc/passwd"), "invalid"),
                 (dict(model=b"nosuch"), "not_found"), (dict(model=b"/etc/passwd"), "denied"),
                 (dict(n_stop=1, extra=struct.pack("<I", 0)), "invalid"), (dict(input=3, payload=b"\1\2\3"), "invalid"),
                 (dict(input=3, payload=struct.pack("<i", -1)), "invalid"),
                 (dict(input=3, payload=struct.pack("<i", 1 << 30)), "invalid"),
                 (dict(payload=b"\xff\xfe"), "invalid_utf8"), (dict(payload=b"a" * 40 + b"\xc3"), "invalid_utf8"),
                 (dict(input=2, payload=b"{"), "format"), (dict(input=2, payload=b"[]" * 3), "format"),
                 (dict(max_tokens=100000000), "too_long"), (dict(n_bias=1, extra=struct.pack("<if", 1 << 29, 0.5)), "invalid"),
                 (dict(rflags=4), "unsupported"), (dict(priority=-101), "invalid"), (dict(deadline=1 << 63), "invalid"), (dict(deadline=1), "timeout"),
                 (dict(ttft_ms=1 << 31), "invalid"), (dict(tpot_ms=3600001), "invalid"), (dict(tenant_weight=1), "invalid"),
                 (dict(tenant_bytes=4, extra=b"root"), "denied"), (dict(tenant_bytes=4, extra=b"a\nbc"), "invalid"),
                 (dict(tenant_bytes=64, extra=b"a" * 64), "invalid"), (dict(rflags=32), "invalid"),
                 (dict(rflags=32, traffic_class=1), "invalid"), (dict(job_bytes=1, extra=b"a\0\0\0"), "invalid"),
                 (dict(rflags=64, job_bytes=1, extra=b"a\0\0\0"), "invalid"), (dict(rflags=64, payload=b""), "invalid"),
                 (dict(rflags=64, payload=b"", job_bytes=64, extra=b"a" * 64), "invalid"), (dict(reserved0=1), "invalid"),
                 (dict(rflags=64, payload=b"", job_bytes=1, extra=b"a\0\0\0"), "not_found")]
        for i, (kw, code) in enumerate(cases):
            r.begin(i + 1, **kw)
            f = r.until(W_ERROR, W_DONE)
            assert f[0] == W_ERROR and f[1] == i + 1 and error_of(f)[0] == code, (kw, f[0], f[0] == W_ERROR and error_of(f))
        r.begin(1000, b"still here")
        assert r.until(W_ERROR, W_DONE)[0] == W_DONE
        r.close()
        d.baseline()


def test_prompts():
    with Daemon(CONF) as d, Client(d) as c:
        assert c.ask("word " * 40000).error.name == "too_long"
        try:
            a = c.ask("x" * (1 << 20) + "y" * 64)
            assert a.error.name == "too_long"
        except Failure as e:
            assert e.name == "too_long"
        assert c.ask(b"\xed\xa0\x80").error.name == "invalid_utf8"
        assert c.ask("", max_tokens=2).ended
        assert c.ask("\0\1\2\x7f", max_tokens=2).done
        assert c.ask("x", max_tokens=2).done
        deep = "[" * 100000
        assert c.ask(messages=deep.encode()).error.name in ("format", "template", "too_long")
        c.close()
        d.baseline()


def test_long_prompts_travel_in_parts():
    """A prompt larger than a quarter of either ring gives the same answer as a short one that means the same."""
    short = [{"role": "user", "content": "hello"}]
    text = json.dumps(short).encode()
    long = text[:-1] + b" " * 300000 + b"]"
    with Daemon(CONF + 'worker = { ring_kib = 256; };\n') as d:
        with Client(d, submit_bytes=1 << 20) as c:
            ref = c.ask(messages=short, max_tokens=6)
            assert ref.done, ref.error
            assert c.ask(messages=long, max_tokens=6).key() == ref.key()
        with Client(d, submit_bytes=65536) as c:
            ids = [c.submit(messages=long, max_tokens=6) for _ in range(8)]
            assert all(a.key() == ref.key() for a in c.finish(*ids))
            c.cancel(c.submit(messages=long, max_tokens=6))
            c.finish()
        d.baseline()


def test_quotas():
    with Daemon('limits = { sessions_per_uid = 4; in_flight_per_uid = 3; attaches_per_s = 20; };\n') as d:
        cs = [Client(d) for _ in range(4)]
        for _ in range(2):
            try:
                Client(d)
                raise AssertionError("a fifth session")
            except Failure as e:
                assert e.name == "no_memory", e
        cs[0].ask("warm", max_tokens=1)
        many = [cs[i].submit("x", max_tokens=1900, ignore_eos=1) for i in range(3)]
        wait_until("three at work", lambda: d.status()["requests"]["open"] == 3)
        many.append(cs[3].submit("x", max_tokens=1900, ignore_eos=1))
        last = cs[3].finish(many[3])[0]
        assert last.error and last.error.name == "full", last.error
        for i in range(3):
            cs[i].cancel(many[i])
            cs[i].finish(many[i])
        # a cancelled request counts against its user until the worker has let go of it
        wait_until("the worker's word on the cancelled ones", lambda: d.status()["requests"]["open"] == 0)
        assert cs[0].ask("y", max_tokens=1).done
        for c in cs:
            c.close()
        refused, began = 0, time.monotonic()
        for _ in range(60):
            r = Raw(d)
            refused += r.rc != 0
            r.close()
        took = time.monotonic() - began  # 20 at once, 20 more a second: a slow machine gets more of the 60 in
        assert 60 - 20 - 20 * took - 1 <= refused < 60, (refused, took)
        d.baseline()


def test_breaches_block_the_user_for_a_while():
    with Daemon(CONF) as d, Client(d) as c:
        for _ in range(3):
            ends_with(d, lambda r: r.frame(99, 1), "protocol")
        r = Raw(d)
        assert lib().tenon_error_name(r.rc) == b"denied" and "blocked" in r.text
        r.close()
        assert c.ask("x", max_tokens=2).done, "an honest session of the same user lives on"


def test_slow_reader():
    with Daemon(CONF + "slow_reader = { pause_ms = 50; cancel_s = 1000; };\n") as d:
        with Client(d) as other, Client(d) as whole:
            ref = whole.ask("tell me", max_tokens=1900, ignore_eos=1)
            r = Raw(d)
            for i in range(4):
                r.begin(i + 1, b"tell me", max_tokens=1900, flags=LAST, rflags=1)  # 4 x 1900 frames of about 32 bytes: over 64 KiB
            wait_until("a full ring pauses", lambda: any(s["paused"] for s in d.ctl("sessions")["sessions"]))
            assert other.ask("quick", max_tokens=4).done
            assert any(s["paused"] for s in d.ctl("sessions")["sessions"]), "the others do not wait for it"
            texts, ended, ids = {1: b"", 2: b"", 3: b"", 4: b""}, {}, {1: [], 2: [], 3: [], 4: []}
            while len(ended) < 4:
                t, i, body = r.next()
                if t == W_TOKENS:
                    n, b = struct.unpack_from("<II", body)
                    ids[i] += struct.unpack_from(f"<{n}i", body, 8)
                    texts[i] += body[8 + 4 * n:8 + 4 * n + b]
                elif t in (W_DONE, W_ERROR):
                    ended[i] = t
            assert all(t == W_DONE for t in ended.values()), ended
            r.close()
            if ref.done["finish"] == 3:
                n = len(ids[1])
                assert all(ids[i] == ref.ids[:n] for i in ids), "a pause changes nothing"
        d.baseline()


def test_who_never_reads_is_cancelled_with_a_reason():
    with Daemon(CONF + "slow_reader = { pause_ms = 50; cancel_s = 1; };\n") as d:
        with Client(d) as other:
            r = Raw(d)
            for i in range(4):
                r.begin(i + 1, b"tell me", max_tokens=1900, flags=LAST, rflags=1)
            wait_until("cancelled", lambda: d.status()["sessions"]["slow_cancelled"] >= 1)
            assert other.ask("quick", max_tokens=4).done
            codes = set()
            while len(codes) < 4:
                f = r.until(W_ERROR, W_DONE)
                codes.add((f[1], error_of(f)[0] if f[0] == W_ERROR else "done"))
            assert any(c[1] == "slow_reader" for c in codes), codes
            r.close()
        d.baseline()


def test_mutator():
    """A thread flips bytes of the ring while requests run: the daemon lives, another client's answers stay right."""
    rnd = seeded("mutator")
    with Daemon(CONF) as d, Client(d) as c:
        ref = c.ask("steady", max_tokens=8).key()
        for _ in range(2):
            r, stop = Raw(d), False

            def flip():
                while not stop:
                    try:
                        r.c2d[rnd.randrange(len(r.c2d))] = rnd.randrange(256)
                    except ValueError:
                        return
            t = threading.Thread(target=flip)
            t.start()
            for i in range(300):
                try:
                    r.begin(2 * i + 1, b"x" * rnd.randrange(200), max_tokens=1)
                except (ValueError, OSError):
                    break
                if i % 50 == 0:
                    assert c.ask("steady", max_tokens=8).key() == ref
                if r.hung_up(0):
                    break
            stop = True
            t.join()
            r.close()
        c.close()
        d.baseline()


def test_garbage_on_the_sockets():
    rnd = seeded("garbage")
    with Daemon(CONF) as d, Client(d) as c:
        for path in ("/bell", "/admin"):
            for _ in range(30):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.connect(d.dir + path)
                try:
                    s.send(rnd.randbytes(rnd.randrange(1, 300)))
                except OSError:
                    pass
                s.close()
        assert c.ask("x", max_tokens=2).done
        assert d.status()["state"] == "running"


main(globals())
