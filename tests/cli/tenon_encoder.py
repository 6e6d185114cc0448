# SPDX-License-Identifier: Apache-2.0
"""An encoder (bert, nomic-bert) in double precision, written from the models' own descriptions, over any weight type."""
import math
from tenon_gguf import Gguf


class Encoder(Gguf):
    """t: matrices as lists of rows, vectors as lists."""

    def __init__(self, path):
        super().__init__(path)
        self.t = {}
        for name, (dims, _, _) in self.tensors.items():
            v = self.floats(name)
            self.t[name] = [v[i:i + dims[0]] for i in range(0, len(v), dims[0])] if len(dims) == 2 else v

    def __call__(self, key):
        return self.keys[self.keys["general.architecture"] + "." + key]


def linear(f, name, x):
    w, b = f.t[name + ".weight"], f.t.get(name + ".bias")
    return [[sum(map(float.__mul__, row, r)) + (b[i] if b else 0.0) for i, row in enumerate(w)] for r in x]


def norm(f, name, x):
    w, b, eps = f.t[name + ".weight"], f.t[name + ".bias"], f("attention.layer_norm_epsilon")
    out = []
    for r in x:
        mean = math.fsum(r) / len(r)
        s = math.sqrt(math.fsum((v - mean) ** 2 for v in r) / len(r) + eps)
        out.append([(v - mean) / s * w[i] + b[i] for i, v in enumerate(r)])
    return out


def add(a, b):
    return [[x + y for x, y in zip(r, s)] for r, s in zip(a, b)]


def rotate(r, pos, d, base):
    out = list(r)
    for h in range(0, len(r), d):
        for i in range(d // 2):
            a = pos * base ** (-2 * i / d)
            u, v = r[h + i], r[h + d // 2 + i]
            out[h + i], out[h + d // 2 + i] = u * math.cos(a) - v * math.sin(a), u * math.sin(a) + v * math.cos(a)
    return out


def attend(f, q, k, v):
    heads = f("attention.head_count")
    d, out = len(q[0]) // heads, [[] for _ in q]
    for h in range(0, heads * d, d):
        for i, r in enumerate(q):
            s = [math.exp(sum(r[h + j] * kk[h + j] for j in range(d)) / math.sqrt(d)) for kk in k]
            out[i] += [sum(p * vv[h + j] for p, vv in zip(s, v)) / sum(s) for j in range(d)]
    return out


def first(f, ids):
    """The stream in front of the first layer."""
    x = [[a + b for a, b in zip(f.t["token_embd.weight"][t], f.t["token_types.weight"][0])] for t in ids]
    if "position_embd.weight" in f.t:
        x = add(x, f.t["position_embd.weight"])
    return norm(f, "token_embd_norm", x)


def embedding(f, ids):
    nomic, x = f.keys["general.architecture"] == "nomic-bert", first(f, ids)
    for i in range(f("block_count")):
        p = f"blk.{i}."
        if nomic:
            n, d = len(x[0]), len(x[0]) // f("attention.head_count")
            all3 = linear(f, p + "attn_qkv", x)
            q, k, v = ([r[n * j:n * j + n] for r in all3] for j in range(3))
            q, k = ([rotate(r, pos, d, f("rope.freq_base")) for pos, r in enumerate(m)] for m in (q, k))
        else:
            q, k, v = (linear(f, p + "attn_" + c, x) for c in "qkv")
        x = norm(f, p + "attn_output_norm", add(x, linear(f, p + "attn_output", attend(f, q, k, v))))
        h = linear(f, p + "ffn_up", x)
        if nomic:
            h = [[g / (1 + math.exp(-g)) * u for g, u in zip(a, b)] for a, b in zip(linear(f, p + "ffn_gate", x), h)]
        else:
            h = [[u / 2 * (1 + math.erf(u / math.sqrt(2))) for u in r] for r in h]
        x = norm(f, p + "layer_output_norm", add(x, linear(f, p + "ffn_down", h)))
    y = x[0] if f("pooling_type") == 2 else [math.fsum(c) / len(x) for c in zip(*x)]
    length = math.sqrt(math.fsum(v * v for v in y))
    return [v / length for v in y]


def word_pieces(f, text):
    names = {t: i for i, t in reversed(list(enumerate(f.keys["tokenizer.ggml.tokens"])))}
    ids, spaced = [2], "".join(c if c.isalnum() else f" {c} " for c in text.lower())
    for word in spaced.split():
        rest, parts = "\u2581" + word, []
        while rest:
            n = next((n for n in range(len(rest), 0, -1) if rest[:n] in names), 0)
            if not n:
                parts = [1]
                break
            parts.append(names[rest[:n]])
            rest = rest[n:]
        ids += parts
    return ids + [3]
