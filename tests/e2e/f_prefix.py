#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefixes that are not computed twice: what a hit says, and that nothing else about an answer changes with it: not after
preemption, eviction, a worker's death, a restart or a damaged file, and not for another tenant."""
import os, stat, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

UID = os.getuid()
TENANTS = f'tenants = ( {{ name = "acme"; users = ( {UID} ); }}, {{ name = "batch"; users = ( {UID} ); }} );\n'
ONLINE, OFFLINE = 0, 1
VOCAB = 500  # of the tiny models, a little less


def prompt(n, seed=1):
    rnd = random.Random(seed)
    return [rnd.randrange(3, VOCAB) for _ in range(n)]


def serving(d):
    return d.status()["serving"]["models"][0]


def cold(c, ids, **kw):
    """The answer with nothing reused."""
    a = c.ask(ids=ids, no_reuse=1, ignore_eos=1, **kw)
    assert a.done and a.done["n_cached"] == 0, a.error or a.done
    return a.key()


def warm(c, ids, **kw):
    a = c.ask(ids=ids, ignore_eos=1, **kw)
    assert a.done, a.error
    return a.key(), a.done["n_cached"]


def test_a_hit_changes_nothing_but_the_time():
    for kv in ("f16", "q8_0", "f32"):
        with Daemon(f'kv = "{kv}";\n') as d, Client(d) as c:
            p = prompt(200)
            ref = cold(c, p, max_tokens=24)
            assert warm(c, p, max_tokens=24)[0] == ref
            key, n = warm(c, p, max_tokens=24)
            assert key == ref and 160 <= n < 200, (kv, n)
            # goes on differently in the middle of a page
            q = p[:100] + prompt(60, 2)
            other = cold(c, q, max_tokens=24)
            key, n = warm(c, q, max_tokens=24)
            assert key == other and 96 <= n <= 100, (kv, n)
            # the answer itself is a prefix for the next turn
            turn = p + list(ref[0]) + prompt(10, 3)
            key, n = warm(c, turn, max_tokens=8)
            assert key == cold(c, turn, max_tokens=8) and n >= 192, (kv, n)
            st = serving(d)["prefix"]
            assert st["hits"] >= 3 and st["hit_tokens"] >= 400 and st["pages"] > 0, st
            d.baseline(sessions=1)


def test_sampled_answers_too():
    with Daemon() as d, Client(d) as c:
        p, how = prompt(150), dict(max_tokens=30, temperature=1.0, seed=77, top_k=40)
        ref = cold(c, p, **how)
        assert [warm(c, p, **how)[0] for _ in range(3)] == [ref] * 3


def test_equal_new_prefixes_are_computed_once():
    with Daemon() as d, Client(d) as c:
        p = prompt(1500)
        refs = [cold(c, p + prompt(20, 10 + i), max_tokens=6) for i in range(4)]
        before = serving(d)["online"]["prompt_tokens"]
        ids = [c.submit(ids=p + prompt(20, 10 + i), max_tokens=6, ignore_eos=1) for i in range(4)]
        answers = c.finish(*ids)
        assert [a.key() for a in answers] == refs
        assert sorted(a.done["n_cached"] >= 1472 for a in answers) == [False, True, True, True], [a.done for a in answers]
        assert serving(d)["online"]["prompt_tokens"] - before <= 1520 + 3 * 52


def test_tenants_do_not_see_each_others_prefixes():
    with Daemon(TENANTS) as d, Client(d) as c:
        p = prompt(300)
        ref = cold(c, p, max_tokens=4)
        assert warm(c, p, max_tokens=4, tenant="acme") == (ref, 0)
        assert warm(c, p, max_tokens=4, tenant="batch") == (ref, 0)
        assert warm(c, p, max_tokens=4, tenant="acme")[1] >= 288
        assert warm(c, p, max_tokens=4, tenant="batch")[1] >= 288
        d.ctl("prefix", "purge", "--tenant", "acme")
        assert warm(c, p, max_tokens=4, tenant="acme") == (ref, 0)
        assert warm(c, p, max_tokens=4, tenant="batch")[1] >= 288
        d.ctl("prefix", "purge")
        assert serving(d)["prefix"]["pages"] == 0
        assert warm(c, p, max_tokens=4, tenant="batch") == (ref, 0)
    with Daemon(TENANTS + "prefix = { share_tenants = true; };\n") as d, Client(d) as c:
        assert warm(c, p, max_tokens=4, tenant="acme") == (ref, 0)
        assert warm(c, p, max_tokens=4, tenant="batch")[1] >= 288
    with Daemon("prefix = { reuse = false; };\n") as d, Client(d) as c:
        assert [warm(c, p, max_tokens=4) for _ in range(2)] == [(ref, 0)] * 2
        assert "prefix" not in serving(d)


def test_after_preemption():
    for kv in ("f16", "q8_0"):
        with Daemon(f'kv = "{kv}";\nstep_seqs = 1;\n') as d, Client(d) as c:
            p = prompt(400)
            ref = cold(c, p, max_tokens=1500)
            i = c.submit(ids=p, max_tokens=1500, ignore_eos=1, traffic_class=OFFLINE)
            for n in range(3):
                while len(c.open[i].ids) < 20 * (n + 1):
                    assert c.next() is not None
                assert c.ask(ids=prompt(50, 5 + n), max_tokens=3, ignore_eos=1).done
            a = c.finish(i)[0]
            assert a.key() == ref and a.done["n_preempted"] >= 1, (kv, a.done)


def test_under_memory_pressure():
    """A pool of 1,344 tokens, prompts that do not fit together: pages come and go, answers stay."""
    with Daemon("kv_mib = 1;\n") as d, Client(d) as c:
        ps = [prompt(400, 20 + i) for i in range(6)]
        refs = [cold(c, p, max_tokens=40) for p in ps]
        for _ in range(2):
            ids = [c.submit(ids=p, max_tokens=40, ignore_eos=1, traffic_class=n % 2) for n, p in enumerate(ps)]
            assert [a.key() for a in c.finish(*ids)] == refs
        assert serving(d)["prefix"]["evicted_pages"] > 0
        d.baseline(sessions=1)


def test_after_the_workers_death():
    with Daemon("worker = { backoff_ms = 1; };\n") as d, Client(d) as c:
        p = prompt(300)
        ref = cold(c, p, max_tokens=1500)
        warm(c, p, max_tokens=4)
        i = c.submit(ids=p, max_tokens=1500, ignore_eos=1)
        while len(c.open[i].ids) < 50:
            assert c.next() is not None
        d.kill_worker()
        a = c.finish(i)[0]
        assert a.done and a.key() == ref and a.done["n_replayed"] == 1, a.error or a.done
        key, n = warm(c, p, max_tokens=1500)
        assert key == ref and n >= 288
        d.baseline(sessions=1)


def test_pins():
    with Daemon(TENANTS + "kv_mib = 1;\n") as d, Client(d) as c:
        p = prompt(200)
        ref = cold(c, p, max_tokens=4)
        assert c.ask(ids=p, max_tokens=4, ignore_eos=1, pin=1).key() == ref
        pins = d.ctl("prefix", "pins")["pins"]
        assert len(pins) == 1 and pins[0]["tenant"] == "acme" and pins[0]["tokens"] >= 160, pins
        for i in range(6):  # more than the pool holds
            warm(c, prompt(900, 50 + i), max_tokens=4, tenant="batch")
        key, n = warm(c, p, max_tokens=4)
        assert key == ref and n >= 160, n
        assert d.ctl("prefix", "unpin", pins[0]["id"]) is not None
        assert d.ctl("prefix", "unpin", pins[0]["id"], ok=False)["error"]["code"] == "not_found"
        assert d.ctl("prefix", "pins")["pins"] == []
        for i in range(6):
            warm(c, prompt(900, 50 + i), max_tokens=4, tenant="batch")
        assert warm(c, p, max_tokens=4) == (ref, 0)


def test_limits_hold_to_the_byte():
    with Daemon("kv_mib = 1;\nprefix = { host_mib = 4; };\n") as d, Client(d) as c:
        for i in range(6):
            warm(c, prompt(800, 70 + i), max_tokens=4)
        host = lambda: d.ctl("prefix", "status")["models"][0]
        wait_until("pages in memory", lambda: host()["host_bytes"] > 1 << 20)
        st = d.ctl("prefix", "limits", "--host-mib", "1")["models"][0]
        assert st["host_limit_bytes"] == 1 << 20 and st["host_bytes"] <= 1 << 20, st
        for i in range(6):
            warm(c, prompt(800, 80 + i), max_tokens=4)
            assert host()["host_bytes"] <= 1 << 20
        st = d.ctl("prefix", "limits", "--host-mib", "0")["models"][0]
        assert st["host_bytes"] == 0, st
        e = d.ctl("prefix", "limits", "--disk-mib", "9", ok=False)["error"]
        assert e["code"] == "unsupported" and "disk_mib" in e["message"], e
        d.write_config("kv_mib = 1;\nprefix = { disk_mib = 8; };\n")
        d.ctl("reload")
        wait_until("a word about the file", lambda: "disk_mib" in host().get("no_tier", ""))
        d.ctl("unload", "tiny")
        warm(c, prompt(20, 90), max_tokens=4)
        assert host()["disk_limit_bytes"] == 8 << 20 and "no_tier" not in host(), host()


def test_the_disk_tier_outlives_the_daemon():
    conf = "kv_mib = 1;\nprefix = { disk_mib = 16; };\n"
    with Daemon(conf) as d:
        ps = [prompt(800, 90 + i) for i in range(4)]
        with Client(d) as c:
            refs = [cold(c, p, max_tokens=12) for p in ps]
            for p in ps:
                warm(c, p, max_tokens=12)
            wait_until("pages on disk", lambda: serving(d)["prefix"]["disk_bytes"] >= 60 * 24576)
            assert [warm(c, p, max_tokens=12)[0] for p in ps] == refs
        folder = d.dir + "/cache/tenon/kv"
        files = os.listdir(folder)
        assert len(files) == 1 and files[0].startswith("tiny-"), files
        path = folder + "/" + files[0]
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700 and stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert os.stat(path).st_size <= 16 << 20

        def restart():
            assert d.stop() == 0
            damage()
            d.start()
            with Client(d) as c:
                assert [warm(c, p, max_tokens=12)[0] for p in ps] == refs
            return serving(d)["prefix"]

        def damage():
            pass
        assert restart()["disk_bytes"] >= 60 * 24576, "nothing was lost"
        rnd = seeded("damage")

        def damage():
            with open(path, "r+b") as f:
                for _ in range(2000):
                    f.seek(rnd.randrange(os.stat(path).st_size))
                    f.write(bytes([rnd.randrange(256)]))
        restart()

        def damage():
            os.truncate(path, os.stat(path).st_size * 2 // 3 + 13)
        restart()

        def damage():
            with open(path, "wb") as f:
                f.write(rnd.randbytes(100000))
        restart()


def test_a_folder_that_cannot_be_is_a_warning():
    with Daemon('prefix = { disk_mib = 4; disk_dir = "/proc/nowhere"; };\n') as d, Client(d) as c:
        assert c.ask("x", max_tokens=2).done
        assert "no_tier" in serving(d)["prefix"] and "tier" in d.log_text()


main(globals())
