# SPDX-License-Identifier: Apache-2.0
"""What tests of weight files share: running a command, a reader of GGUF with the types' blocks decoded from their description."""
import math, os, resource, struct, subprocess, sys

BUILD = os.environ.get("TENON_BUILDDIR", ".")
TINY = os.path.join(BUILD, "tests", "tiny")
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
         12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 30: (1, 2)}


def run(*args, text=b"", limit=None):
    def child():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    p = subprocess.run([os.path.join(BUILD, "tenon"), *args], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       preexec_fn=child if limit else None)
    return p.returncode, p.stdout, p.stderr.decode()


def check(what, ok, *seen):
    if not ok:
        sys.exit(f"FAIL {what}: {seen}")
    print("ok", what)


# ---- a reader of GGUF ----

class Gguf:
    def __init__(self, path):
        self.b, self.at, self.keys, self.tensors, self.type_at = open(path, "rb").read(), 24, {}, {}, {}
        magic, version, n, n_keys = struct.unpack_from("<4sIQQ", self.b)
        assert magic == b"GGUF" and version == 3
        for _ in range(n_keys):
            name = self.string()
            self.keys[name] = self.value(self.take("<I"))
        for _ in range(n):
            name, rank = self.string(), self.take("<I")
            dims = [self.take("<Q") for _ in range(rank)]
            self.type_at[name] = self.at  # where the number of its type stands
            self.tensors[name] = (dims, self.take("<I"), self.take("<Q"))
        align = self.keys.get("general.alignment", 32)
        self.data = -(-self.at // align) * align
        assert all(t[2] % align == 0 for t in self.tensors.values())

    def take(self, form):
        v = struct.unpack_from(form, self.b, self.at)[0]
        self.at += struct.calcsize(form)
        return v

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.b[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(n)]
        return self.take("<" + "BbHhIif?..Qqd"[kind])

    def raw(self, name):
        dims, kind, off = self.tensors[name]
        block, size = BLOCK[kind]
        n = math.prod(dims)
        return kind, n, self.b[self.data + off:self.data + off + n // block * size]

    def floats(self, name):
        kind, n, raw = self.raw(name)
        if kind in (0, 1):
            return list(struct.unpack(f"<{n}{'fe'[kind]}", raw))
        if kind == 30:
            return [struct.unpack("<f", b"\0\0" + raw[2 * i:2 * i + 2])[0] for i in range(n)]
        block, size = BLOCK[kind]
        return [v for i in range(0, len(raw), size) for v in decode(kind, raw[i:i + size])]


def halves(b, *at):
    return [struct.unpack_from("<e", b, i)[0] for i in at]


def nibbles(q):
    return [c & 15 for c in q] + [c >> 4 for c in q]


def fives(high, q):
    h = int.from_bytes(high, "little")
    return [c | (h >> i & 1) << 4 for i, c in enumerate(nibbles(q))]


def sixes(s):
    low = [(s[j] & 63, s[j + 4] & 63) for j in range(4)]
    return low + [(s[j + 8] & 15 | (s[j] >> 6) << 4, s[j + 8] >> 4 | (s[j + 4] >> 6) << 4) for j in range(4)]


def twos(q):
    return [(q[half + i] >> shift) & 3 for half in (0, 32) for shift in (0, 2, 4, 6) for i in range(32)]


def k_nibbles(q):
    return [v for g in range(4) for v in nibbles(q[32 * g:32 * g + 32])]


def decode(kind, b):
    """One block of a quantised type, from the description of the formats."""
    if kind == 8:
        return [halves(b, 0)[0] * q for q in struct.unpack_from("<32b", b, 2)]
    if kind == 2:
        return [halves(b, 0)[0] * (q - 8) for q in nibbles(b[2:])]
    if kind == 6:
        return [halves(b, 0)[0] * (q - 16) for q in fives(b[2:6], b[6:])]
    if kind in (3, 7):
        d, m = halves(b, 0, 2)
        return [d * q + m for q in (nibbles(b[4:]) if kind == 3 else fives(b[4:8], b[8:]))]
    if kind == 20:
        level = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
        return [halves(b, 0)[0] * level[q] for q in nibbles(b[2:])]
    if kind == 10:
        d, m = halves(b, 80, 82)
        return [d * (b[i // 16] & 15) * q - m * (b[i // 16] >> 4) for i, q in enumerate(twos(b[16:80]))]
    if kind == 11:
        d, s = halves(b, 108)[0], b[96:108]
        scale = [(s[j % 8] >> (j // 8 * 4) & 15 | (s[8 + j % 4] >> (j // 4 * 2) & 3) << 4) - 32 for j in range(16)]
        return [d * scale[i // 16] * (q - (0 if b[i % 32] >> (i // 32) & 1 else 4)) for i, q in enumerate(twos(b[32:96]))]
    if kind in (12, 13):
        (d, m), s = halves(b, 0, 2), sixes(b[4:16])
        q = k_nibbles(b[16:] if kind == 12 else b[48:])
        if kind == 13:
            q = [v | (b[16 + i % 32] >> (i // 32) & 1) << 4 for i, v in enumerate(q)]
        return [d * s[i // 32][0] * v - m * s[i // 32][1] for i, v in enumerate(q)]
    d, scale, out = halves(b, 208)[0], struct.unpack_from("<16b", b, 192), []
    for i in range(256):
        half, g, l = i // 128, i // 32 % 4, i % 32
        low = b[half * 64 + g % 2 * 32 + l] >> (g // 2 * 4) & 15
        out.append(d * scale[i // 16] * ((low | (b[128 + half * 32 + l] >> 2 * g & 3) << 4) - 32))
    return out


def relative(x, y, w=None):
    w = w or [1] * len(x)
    return math.sqrt(math.fsum(c * (a - b) ** 2 for a, b, c in zip(x, y, w)) / math.fsum(c * a * a for a, c in zip(x, w)))
