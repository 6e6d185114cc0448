#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeddings through the daemon: the numbers of the command in its own process, beside text and in any company; what is
refused and why; a worker that dies."""
import os, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tenon_e2e import *

BERT = os.path.join(BUILD, "tests/tiny/bert.gguf")
NOMIC = os.path.join(BUILD, "tests/tiny/nomic_bert.gguf")
CONF = (f'models = ( {{ name = "bert"; path = "{BERT}"; }}, {{ name = "nomic"; path = "{NOMIC}"; }}, '
        f'{{ name = "tiny"; path = "{TINY}"; }} );\ndefault_model = "tiny";\nworker = {{ backoff_ms = 20; }};\n'
        + "tenants = ( " + ", ".join(f'{{ name = "t{i}"; users = ( {os.getuid()} ); }}' for i in range(3)) + " );\n")
TEXTS = ["the sky is blue", "", "many texts, read once", "why?", "air scatters short waves of light more than long ones " * 4]


def embed(*args, lines=(), ok=True):
    p = subprocess.run([BUILD + "/tenon", "embed", *args], input="".join(json.dumps(x) + "\n" for x in lines), capture_output=True,
                       text=True, timeout=300 * SLOWER)
    assert p.returncode == (0 if ok else 1), (args, p.returncode, p.stderr, [x for x in p.stdout.splitlines() if "error" in x][:2])
    return p.stdout


def entries(n):
    return [{"id": i, "text": TEXTS[i % len(TEXTS)], "class": ["online", "offline"][i % 2], "tenant": f"t{i % 3}"} for i in range(n)]


def alone(model):
    return [json.loads(x)["embedding"] for x in embed("-m", model, "--jsonl", "-j", "1", lines=entries(len(TEXTS))).splitlines()]


def near(a, b):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-7


def test_rows_of_the_own_process():
    with Daemon(CONF, models=False) as d:
        for name, path in (("bert", BERT), ("nomic", NOMIC)):
            lines = entries(150)
            assert embed("--socket", d.socket, "-m", name, "--jsonl", lines=lines) == embed("-m", path, "--jsonl", lines=lines)
        s = next(m for m in d.ctl("queue")["worker"]["models"] if m["name"] == "bert")
        assert s["online"]["ended"] == s["offline"]["ended"] == 75, s
        lines = [{"id": "a", "text": "sky"}, {"id": "b", "text": "sky " * 100}, {"id": "c"}, {"id": "d", "text": "sky", "class": "never"}]
        got = [json.loads(x) for x in embed("--socket", d.socket, "-m", "bert", "--jsonl", lines=lines, ok=False).splitlines()]
        assert [x["id"] for x in got] == ["a", "b", "c", "d"] and "embedding" in got[0]
        assert [x["error"]["code"] for x in got[1:]] == ["too_long", "invalid", "invalid"], got


def test_beside_text():
    want = alone(BERT)
    with Daemon(CONF, models=False) as d, Client(d) as c:
        prompts = [f"question {i} about light" for i in range(6)]
        undisturbed = [c.ask(p, max_tokens=24, ignore_eos=1).key() for p in prompts]
        text = [c.submit(p, max_tokens=24, ignore_eos=1, traffic_class=i % 2) for i, p in enumerate(prompts)]
        rows = [(i % len(TEXTS), c.submit(TEXTS[i % len(TEXTS)], model="bert", embed=1, traffic_class=i % 2)) for i in range(120)]
        c.finish()
        assert [c.open[i].key() for i in text] == undisturbed
        for k, i in rows:
            a = c.open[i]
            assert a.error is None and not a.ids and not a.text and len(a.rows) == 1, a.error
            assert near(a.rows[0], want[k]), k
            assert a.done["n_generated"] == 0 and a.done["n_prompt"] >= 2


def test_what_is_refused():
    with Daemon(CONF, models=False) as d, Client(d) as c:
        a = c.ask("text", embed=1)
        assert a.error.name == "unsupported" and "encoder" in a.error.text, a.error
        a = c.ask("text", model="bert")
        assert a.error.name == "unsupported" and "encoder" in a.error.text, a.error
        a = c.ask("sky " * 100, model="bert", embed=1)
        assert a.error.name == "too_long" and "64" in a.error.text, a.error
        assert c.ask(messages=[{"role": "user", "content": "sky"}], model="bert", embed=1).error is not None
        a, b = c.ask("sky", model="bert", embed=1), c.ask(ids=[9, 10], model="bert", embed=1)
        assert a.rows and b.rows and a.rows != b.rows and b.done["n_prompt"] == 2
        assert c.ask("still there", max_tokens=3, ignore_eos=1).done


def test_a_worker_that_dies():
    want = alone(BERT)
    rnd = seeded("kill while embedding")
    with Daemon(CONF, models=False) as d, Client(d, events_bytes=1 << 20) as c:
        c.ask("sky", model="bert", embed=1)
        for _ in range(4):
            rows = [(i % len(TEXTS), c.submit(TEXTS[i % len(TEXTS)], model="bert", embed=1, traffic_class=i % 2)) for i in range(200)]
            text = c.submit("goes on", max_tokens=60, ignore_eos=1)
            time.sleep(rnd.random() * 0.05)
            d.kill_worker()
            c.finish()
            assert len(c.open[text].ids) == 60
            for k, i in rows:
                a = c.open[i]
                assert a.error is None and len(a.rows) == 1 and near(a.rows[0], want[k]), (a.error, len(a.rows))


def test_cancelled_and_gone():
    with Daemon(CONF, models=False) as d:
        with Client(d) as c:
            ids = [c.submit(TEXTS[4], model="bert", embed=1, traffic_class=1) for _ in range(60)]
            for i in ids[::2]:
                c.cancel(i)
            c.finish()
            assert all(c.open[i].done or c.open[i].error.name == "cancelled" for i in ids)
            assert all(c.open[i].done for i in ids[1::2])
        c = Client(d)
        for _ in range(60):
            c.submit(TEXTS[4], model="bert", embed=1)
        c.close()
        d.baseline()


main(globals())
