# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests stand on: a daemon of its own per test in a private folder, libtenon through ctypes, a raw
client that writes any bytes into its ring, leak checks. Python 3 and its standard library only.

A test is a function test_*(); main() runs them all, each with a time limit, and prints what fails with the daemon's log.
"""
import ctypes as C
import json, mmap, os, random, select, shutil, signal, socket, struct, subprocess, sys, tempfile, time, traceback

BUILD = os.environ.get("TENON_BUILDDIR", os.getcwd())
SRC = os.environ.get("TENON_SRCDIR", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TINY = os.path.join(BUILD, "tests/tiny/q4_1.gguf")
TINY2 = os.path.join(BUILD, "tests/tiny/q8_0.gguf")
SLOWER = float(os.environ.get("TENON_E2E_SLOWER", "1"))  # sanitizer builds set more
PATIENCE = 60  # seconds for what takes milliseconds: a machine may be slow and busy, only a defect waits so long

OK, AGAIN, TIMEOUT = 0, -11, -12
LIBTENON = BUILD + "/.libs/libtenon.so"


def load_sanitizer_first():
    """A libtenon built with AddressSanitizer wants its run time before Python's own libraries: start again with it."""
    try:
        needs = b"libasan.so" in open(LIBTENON, "rb").read()
    except OSError:
        return
    if not needs or "TENON_E2E_PRELOADED" in os.environ:
        return
    path = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    env = dict(os.environ, TENON_E2E_PRELOADED=os.environ.get("ASAN_OPTIONS", ""), LD_PRELOAD=os.path.realpath(path),
               ASAN_OPTIONS="detect_leaks=0", TENON_E2E_SLOWER=os.environ.get("TENON_E2E_SLOWER", "4"))
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


load_sanitizer_first()
if "TENON_E2E_PRELOADED" in os.environ:  # what is started from here takes care of itself, leaks included
    os.environ.pop("LD_PRELOAD", None)
    os.environ["ASAN_OPTIONS"] = os.environ["TENON_E2E_PRELOADED"]
STATE, TOKENS, DONE, ERROR, EMBEDDING, PONG = range(1, 7)


# ---- the daemon ------------------------------------------------------------------------------------------------------

def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children_of(parent):
    out = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            out.append(int(p))
    return out


def wait_until(what, fn, seconds=PATIENCE):
    end = time.monotonic() + seconds * SLOWER
    while time.monotonic() < end:
        v = fn()
        if v:
            return v
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s: {what}")


class Daemon:
    """tenond with a config text, in its own folder. `with Daemon(...) as d:` checks at the end that it stops cleanly."""

    def __init__(self, config="", args=(), models=True, env=None, program=BUILD + "/tenond"):
        self.program = program
        self.dir = tempfile.mkdtemp(prefix="tn-", dir="/tmp" if len(tempfile.gettempdir()) > 60 else None)  # sockets' names are short
        self.socket = self.dir + "/attach"
        self.conf = self.dir + "/tenond.conf"
        self.log_path = self.dir + "/log"
        self.base = f'runtime_dir = "{self.dir}";\nmodel_dir = "{self.dir}/models";\n'
        if models:
            self.base += (f'models = ( {{ name = "tiny"; path = "{TINY}"; }}, {{ name = "tiny2"; path = "{TINY2}"; }} );\n'
                          'default_model = "tiny";\n')
        os.makedirs(self.dir + "/models", exist_ok=True)
        self.write_config(config)
        self.args = list(args)
        self.env = {"XDG_CACHE_HOME": self.dir + "/cache", "TENON_MODELS": "", **(env or {})}
        self.start()

    def write_config(self, config):
        with open(self.conf, "w") as f:
            f.write(self.base + config)

    def start(self):
        r, w = os.pipe()
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen([self.program, "--config", self.conf, "--ready-fd", str(w), *self.args],
                                         stderr=log, stdout=log, stdin=subprocess.DEVNULL, pass_fds=[w],
                                         env=dict(os.environ, **(self.env or {})))
        os.close(w)
        self.pid = self.proc.pid  # libtool's wrapper script ends in exec
        with os.fdopen(r) as f:
            self.ready = f.readline()
        if not self.ready.startswith("ready "):
            self.proc.wait()
            raise AssertionError(f"tenond did not start: {self.ready}{self.log_text()}")

    def log_text(self):
        return open(self.log_path, errors="replace").read()

    def ctl(self, *args, ok=True):
        p = subprocess.run([BUILD + "/tenonctl", "--socket", self.socket, "--json", *args], capture_output=True, text=True,
                           timeout=60 * SLOWER)
        if ok and p.returncode:
            raise AssertionError(f"tenonctl {args}: {p.stderr}{p.stdout}")
        return json.loads(p.stdout) if p.stdout.strip() else {"error": {"code": "gone", "message": p.stderr.strip()}}

    def status(self):
        return self.ctl("status")

    def worker_pid(self):
        return wait_until("a worker", lambda: next(iter(children_of(self.pid)), None))

    def kill_worker(self):
        """kill -9; a worker that was reaped between the look and the kill is looked for again."""
        def try_once():
            try:
                os.kill(self.worker_pid(), signal.SIGKILL)
                return True
            except ProcessLookupError:
                return None
        wait_until("a worker to kill", try_once)

    def baseline(self, sessions=0, seconds=PATIENCE):
        """Nothing of any client is left: sessions, requests, shared memory, pages."""
        def calm():
            s = self.status()
            if s["requests"]["open"] or s["requests"]["at_worker"] or s["sessions"]["open"] != sessions:
                return None
            if not sessions and s["sessions"]["shared_bytes"]:
                return None
            for m in self.ctl("queue").get("worker", {}).get("models", []):
                if m["waiting"] + m["running"] + m["paused"] or any(p["free"] != p["total"] for p in m["pages"]):
                    return None
            return s
        return wait_until("counts back to baseline", calm, seconds)

    def stop(self, sig=signal.SIGTERM, seconds=PATIENCE):
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        try:
            return self.proc.wait(seconds * SLOWER)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError("tenond did not end")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        try:
            workers = children_of(self.pid)
            rc = self.stop()
            if kind is None:
                assert rc == 0, f"tenond ended with {rc}"
                wait_until("workers gone", lambda: not any(map(alive, workers)))
                left = set(os.listdir(self.dir)) - {"tenond.conf", "log", "models", "attach.lock", "cache"}
                assert not left, f"left behind: {left}"
        except BaseException:
            kind = kind or AssertionError
            raise
        finally:
            if kind is not None:
                sys.stdout.write("---- log of tenond ----\n" + self.log_text()[-6000:])
            shutil.rmtree(self.dir, ignore_errors=True)


# ---- libtenon --------------------------------------------------------------------------------------------------------

class Error(C.Structure):
    _fields_ = [("code", C.c_int), ("text", C.c_char * 256)]


class Options(C.Structure):
    _fields_ = [("size", C.c_size_t), ("socket", C.c_char_p), ("submit_bytes", C.c_uint64), ("events_bytes", C.c_uint64),
                ("timeout_ms", C.c_int), ("eventfd_bell", C.c_int), ("spin_us", C.c_uint32)]


class Bias(C.Structure):
    _fields_ = [("token", C.c_int32), ("bias", C.c_float)]


class Request(C.Structure):
    _fields_ = [("size", C.c_size_t), ("model", C.c_char_p), ("prompt", C.c_char_p), ("prompt_len", C.c_size_t),
                ("messages", C.c_char_p), ("messages_len", C.c_size_t), ("ids", C.POINTER(C.c_int32)), ("n_ids", C.c_size_t),
                ("max_tokens", C.c_uint32), ("temperature", C.c_float), ("top_p", C.c_float), ("min_p", C.c_float),
                ("top_k", C.c_uint32), ("repeat_penalty", C.c_float), ("presence_penalty", C.c_float),
                ("frequency_penalty", C.c_float), ("penalty_window", C.c_uint32), ("seed", C.c_uint64),
                ("stop", C.POINTER(C.c_char_p)), ("n_stop", C.c_size_t), ("bias", C.POINTER(Bias)), ("n_bias", C.c_size_t),
                ("n_logprobs", C.c_uint32), ("traffic_class", C.c_int), ("priority", C.c_int), ("deadline_ns", C.c_uint64),
                ("ignore_eos", C.c_int), ("show_special", C.c_int), ("embed", C.c_int), ("tenant", C.c_char_p), ("ttft_ms", C.c_uint32),
                ("tpot_ms", C.c_uint32), ("no_reuse", C.c_int), ("pin", C.c_int), ("durable", C.c_int),
                ("job", C.c_char_p), ("collect", C.c_int)]


class Logprob(C.Structure):
    _fields_ = [("token", C.c_int32), ("logprob", C.c_float)]


TIMES = ["arrived_ns", "preprocess_ns", "queue_ns", "prefill_ns", "decode_ns", "postprocess_ns", "transport_ns", "load_ns",
         "first_token_ns", "total_ns"]


class Timeline(C.Structure):
    _fields_ = [(n, C.c_uint64) for n in TIMES]


class Event(C.Structure):
    _fields_ = [("kind", C.c_int), ("last", C.c_int), ("request", C.c_uint64), ("text", C.POINTER(C.c_char)),
                ("text_len", C.c_size_t), ("ids", C.POINTER(C.c_int32)), ("n_ids", C.c_size_t),
                ("logprobs", C.POINTER(Logprob)), ("n_logprobs", C.c_size_t), ("embedding", C.POINTER(C.c_float)),
                ("n_embedding", C.c_size_t), ("phase", C.c_int), ("permille", C.c_int), ("code", C.c_int),
                ("finish", C.c_int), ("n_prompt", C.c_uint32), ("n_generated", C.c_uint32), ("n_cached", C.c_uint32),
                ("n_preempted", C.c_uint32), ("n_replayed", C.c_uint32), ("time", Timeline)]


_lib = None


def lib():
    global _lib
    if _lib is None:
        _lib = C.CDLL(LIBTENON)
        _lib.tenon_error_name.restype = C.c_char_p
    return _lib


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(f"{lib().tenon_error_name(code).decode()}: {text}")
        self.code, self.text, self.name = code, text, lib().tenon_error_name(code).decode()


class Answer:
    """What one request got so far."""

    def __init__(self):
        self.ids, self.text, self.logprobs, self.states, self.rows = [], b"", [], [], []
        self.done = self.error = None

    @property
    def ended(self):
        return self.done is not None or self.error is not None

    def key(self):
        return (tuple(self.ids), self.text)


class Client:
    def __init__(self, d, eventfd=False, events_bytes=0, submit_bytes=0, timeout_ms=1000 * PATIENCE):
        self.h, err = C.c_void_p(), Error()
        path = d if isinstance(d, str) else d.socket
        o = Options(size=C.sizeof(Options), socket=path.encode(), eventfd_bell=int(eventfd), events_bytes=events_bytes,
                    submit_bytes=submit_bytes, timeout_ms=int(timeout_ms * SLOWER))
        rc = lib().tenon_connect(C.byref(o), C.byref(self.h), C.byref(err))
        if rc:
            raise Failure(rc, err.text.decode())
        self.open, self.pongs = {}, []

    def submit(self, prompt=None, max_tokens=16, model=None, stop=(), bias=(), ids=None, messages=None, **kw):
        r, err, id_ = Request(size=C.sizeof(Request), top_p=1.0, repeat_penalty=1.0), Error(), C.c_uint64()
        keep = []
        if prompt is not None:
            b = prompt if isinstance(prompt, bytes) else prompt.encode()
            r.prompt, r.prompt_len = b, len(b)
        if messages is not None:
            b = messages if isinstance(messages, bytes) else json.dumps(messages).encode()
            r.messages, r.messages_len = b, len(b)
        if ids is not None:
            keep.append((C.c_int32 * len(ids))(*ids))
            r.ids, r.n_ids = keep[-1], len(ids)
        if stop:
            keep.append((C.c_char_p * len(stop))(*[s.encode() for s in stop]))
            r.stop, r.n_stop = keep[-1], len(stop)
        if bias:
            keep.append((Bias * len(bias))(*[Bias(t, v) for t, v in bias]))
            r.bias, r.n_bias = keep[-1], len(bias)
        r.model = model.encode() if model else None
        r.max_tokens = max_tokens
        for k, v in kw.items():
            setattr(r, k, v.encode() if isinstance(v, str) else v)
        rc = lib().tenon_submit_wait(self.h, C.byref(r), 1000 * PATIENCE, C.byref(id_), C.byref(err))
        if rc:
            raise Failure(rc, err.text.decode())
        self.open[id_.value] = Answer()
        return id_.value

    def next(self, timeout_ms=1000 * PATIENCE):
        """One event, filed under its request; returns (kind, request id), None when the time is over."""
        ev = Event()
        rc = lib().tenon_next(self.h, C.byref(ev), int(timeout_ms * (SLOWER if timeout_ms > 0 else 1)))
        if rc in (TIMEOUT, AGAIN):
            return None
        if rc:
            raise Failure(rc, "the session has ended")
        text = C.string_at(ev.text, ev.text_len) if ev.text_len else b""
        if ev.kind == PONG:
            self.pongs.append(text)
            return ev.kind, ev.request
        a = self.open.get(ev.request)
        assert a is not None, f"event {ev.kind} for unknown request {ev.request}: {text}"
        assert not a.ended, "an event after the last one"
        if ev.kind == TOKENS:
            a.ids += ev.ids[:ev.n_ids]
            a.text += text
            if ev.n_logprobs:
                a.logprobs.append([(p.token, p.logprob) for p in ev.logprobs[:ev.n_logprobs]])
        elif ev.kind == EMBEDDING:
            a.rows.append(ev.embedding[:ev.n_embedding])
        elif ev.kind == STATE:
            a.states.append((ev.phase, ev.permille))
        elif ev.kind == DONE:
            a.done = {"finish": ev.finish, "n_prompt": ev.n_prompt, "n_generated": ev.n_generated, "n_replayed": ev.n_replayed,
                      "n_cached": ev.n_cached, "n_preempted": ev.n_preempted,
                      "time": {n: getattr(ev.time, n) for n in TIMES}}
        elif ev.kind == ERROR:
            a.error = Failure(ev.code, text.decode())
        assert bool(ev.last) == a.ended
        return ev.kind, ev.request

    def finish(self, *ids, timeout_ms=1000 * PATIENCE):
        """Reads until the named requests (all, if none) have ended; returns their answers."""
        ids = ids or list(self.open)
        while not all(self.open[i].ended for i in ids):
            if self.next(timeout_ms) is None:
                raise AssertionError(f"no event within {timeout_ms} ms; open: {[i for i in ids if not self.open[i].ended]}")
        return [self.open[i] for i in ids]

    def ask(self, *a, **kw):
        i = self.submit(*a, **kw)
        return self.finish(i)[0]

    def cancel(self, i):
        return lib().tenon_cancel(self.h, C.c_uint64(i))

    def ping(self, data):
        return lib().tenon_ping(self.h, data, len(data))

    def close(self):
        if self.h:
            lib().tenon_close(self.h)
        self.h = None

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.close()


# ---- a client that may lie -------------------------------------------------------------------------------------------

MAGIC = 0x4e4e4554
HELLO = struct.Struct("<IIIIQQII88x")
WELCOME = struct.Struct("<IIiIQQQQII16s128s128s")
HEAD = struct.Struct("<IHHQ")
TAIL_AT, HEAD_AT, ASLEEP_AT, RING_AT = 64, 128, 192, 4096
BEGIN, DATA, END, CANCEL, PING = 1, 2, 3, 4, 5
W_STATE, W_TOKENS, W_LOGPROBS, W_DONE, W_ERROR, W_PONG = 16, 17, 18, 19, 20, 21
LAST = 1
REQUEST = struct.Struct("<IIQIIIIiIQQfffIfffIIIIIQIIIIII")


def hello(magic=MAGIC, size=128, vmin=1, vmax=1, c2d=65536, d2c=65536, bell=2, features=0):
    return HELLO.pack(magic, size, vmin, vmax, c2d, d2c, bell, features)


def begin_body(payload=b"", model=b"", input=1, payload_bytes=None, max_tokens=4, size=None, **kw):
    f = dict(n_stop=0, n_bias=0, traffic_class=0, priority=0, deadline=0, seed=0, temperature=0.0, top_p=1.0, min_p=0.0, top_k=0,
             repeat=1.0, presence=0.0, frequency=0.0, window=0, n_logprobs=0, rflags=0, n_history=0, reserved=0, history_text=0,
             tenant_bytes=0, tenant_weight=0, ttft_ms=0, tpot_ms=0, job_bytes=0, reserved0=0, extra=b"")
    f.update(kw)
    body = REQUEST.pack(REQUEST.size if size is None else size, input, len(payload) if payload_bytes is None else payload_bytes,
                        len(model), f["n_stop"], f["n_bias"], f["traffic_class"], f["priority"], max_tokens, f["deadline"],
                        f["seed"], f["temperature"], f["top_p"], f["min_p"], f["top_k"], f["repeat"], f["presence"],
                        f["frequency"], f["window"], f["n_logprobs"], f["rflags"], f["n_history"], f["reserved"],
                        f["history_text"], f["tenant_bytes"], f["tenant_weight"], f["ttft_ms"], f["tpot_ms"],
                        f["job_bytes"], f["reserved0"])
    return body + model + b"\0" * (-len(model) % 4) + f["extra"] + payload


class Raw:
    """Attach by hand; write any frame, or anything else, into the ring."""

    def __init__(self, d, message=None, fds=(), timeout=PATIENCE):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout * SLOWER)
        self.sock.connect(d.socket)
        self.fds = []
        if message is None:
            message = hello()
        if message is not False:
            if fds:
                socket.send_fds(self.sock, [message], list(fds))
            else:
                self.sock.send(message)
            self.read_welcome()

    def read_welcome(self):
        data, fds, _, _ = socket.recv_fds(self.sock, 1024, 8)
        self.fds = list(fds)
        if len(data) != WELCOME.size:
            self.rc, self.text = None, ""
            return
        w = WELCOME.unpack(data)
        self.rc, self.session, self.c2d_bytes, self.d2c_bytes = w[2], w[4], w[5], w[6]
        self.text = w[12].split(b"\0")[0].decode()
        if self.rc == 0:
            self.c2d = mmap.mmap(fds[0], RING_AT + self.c2d_bytes)
            self.d2c = mmap.mmap(fds[1], RING_AT + self.d2c_bytes, prot=mmap.PROT_READ)
            self.tail = self.head = 0

    def write(self, data, advance=None):
        """Bytes into the ring, then the tail moves by `advance` (their padded length)."""
        cap = self.c2d_bytes
        at = self.tail % cap
        first = min(len(data), cap - at)
        self.c2d[RING_AT + at:RING_AT + at + first] = data[:first]
        self.c2d[RING_AT:RING_AT + len(data) - first] = data[first:]
        self.tail += (len(data) + 7) // 8 * 8 if advance is None else advance
        struct.pack_into("<Q", self.c2d, TAIL_AT, self.tail & (2**64 - 1))
        self.ring()

    def ring(self):
        if len(self.fds) > 2:
            os.eventfd_write(self.fds[2], 0)

    def frame(self, type, id=0, body=b"", flags=0, bytes=None):
        self.write(HEAD.pack(HEAD.size + len(body) if bytes is None else bytes, type, flags, id) + body)

    def begin(self, id, payload=b"hello", flags=LAST, **kw):
        self.frame(BEGIN, id, begin_body(payload, **kw), flags)

    def read(self):
        """Next frame: (type, id, body), or None."""
        tail = struct.unpack_from("<Q", self.d2c, TAIL_AT)[0]
        if tail == self.head:
            return None
        cap = self.d2c_bytes

        def copy(off, n):
            at = (self.head + off) % cap
            first = min(n, cap - at)
            return self.d2c[RING_AT + at:RING_AT + at + first] + self.d2c[RING_AT:RING_AT + n - first]
        n, type, _, id = HEAD.unpack(copy(0, 16))
        body = copy(16, n - 16)
        self.head += (n + 7) // 8 * 8
        struct.pack_into("<Q", self.c2d, HEAD_AT, self.head)
        return type, id, body

    def next(self, seconds=PATIENCE):
        return wait_until("a frame", self.read, seconds)

    def until(self, *types, seconds=PATIENCE):
        """Reads on to a frame of one of these types."""
        while True:
            f = self.next(seconds)
            if f[0] in types:
                return f

    def hung_up(self, seconds=PATIENCE):
        """True when the daemon has ended the session."""
        p = select.poll()
        p.register(self.sock, select.POLLIN | select.POLLHUP | select.POLLRDHUP)
        return bool(p.poll(seconds * 1000 * SLOWER))

    def close(self):
        self.sock.close()
        for m in ("c2d", "d2c"):
            if hasattr(self, m):
                getattr(self, m).close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def error_of(frame):
    """(code name, text) of an ERROR frame."""
    code, n = struct.unpack_from("<iI", frame[2])
    return lib().tenon_error_name(code).decode(), frame[2][8:8 + n].decode()


# ---- running ---------------------------------------------------------------------------------------------------------

def main(tests, seconds=5 * PATIENCE):
    if not os.path.exists(TINY):
        print("SKIP: no tests/tiny models (make check builds them)")
        sys.exit(77)
    only, failed = sys.argv[1:], 0

    def late(*_):
        for p in children_of(os.getpid()):
            subprocess.run([SRC + "/tests/run-limited", "--where", str(p)])
        raise AssertionError("took too long")
    signal.signal(signal.SIGALRM, late)
    for name, fn in [(k, v) for k, v in list(tests.items()) if k.startswith("test_")]:
        if only and name[5:] not in only:
            continue
        began = time.monotonic()
        signal.alarm(int(seconds * SLOWER))
        try:
            fn()
            print(f"ok   {name[5:]} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:
            signal.alarm(0)
            failed += 1
            print(f"FAIL {name[5:]}\n{traceback.format_exc()}", flush=True)
        signal.alarm(0)
    sys.exit(1 if failed else 0)


def seeded(name):
    """A generator whose seed is printed, so that a failure can be run again: TENON_E2E_SEED."""
    seed = int(os.environ.get("TENON_E2E_SEED", random.randrange(1 << 31)))
    print(f"     {name}: TENON_E2E_SEED={seed}", flush=True)
    return random.Random(seed)
