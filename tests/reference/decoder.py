#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits of a decoder in double precision with numpy, written from the models' own descriptions and not from Tenon's
graphs: what tests/reference/expected.json holds and tests/cli/reference checks. Needed only to make that file anew:

  tests/reference/decoder.py BUILD_DIR >tests/reference/expected.json

Reads GGUF with F32 tensors only. Architectures: llama, mixtures of experts of it, gemma3, phi3, qwen2, qwen3, qwen3moe.
"""
import json, math, os, struct, sys
import numpy as np

SCALAR = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
MODELS = ("f32", "gemma3", "gemma3_27b", "phi3", "qwen2", "qwen3", "mixtral", "qwen3moe")
N_TOKENS, POSITIONS = 100, (0, 1, 37, 99)


class File:
    def __init__(self, path):
        self.d, self.at = open(path, "rb").read(), 4
        self.take("<I")
        n_tensors, n_keys = self.take("<Q"), self.take("<Q")
        self.meta = {self.text(): self.value(self.take("<I")) for _ in range(n_keys)}
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("<Q") for _ in range(self.take("<I"))][::-1]
            kind, off = self.take("<I"), self.take("<Q")
            assert kind == 0, f"{name}: only F32"
            infos.append((name, dims, off))
        start = -(-self.at // 32) * 32
        self.t = {n: np.frombuffer(self.d, "<f4", math.prod(dims), start + off).reshape(dims).astype(np.float64)
                  for n, dims, off in infos}
        self.arch = self.meta["general.architecture"]

    def take(self, form):
        v = struct.unpack_from(form, self.d, self.at)[0]
        self.at += struct.calcsize(form)
        return v

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.d[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(n)]
        return self.take(SCALAR[kind])

    def __call__(self, key, otherwise=None):
        return self.meta.get(f"{self.arch}.{key}", otherwise)


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, pos, base, neighbours):
    """x [n][heads][d]; the pair of frequency i is (2i, 2i + 1), or (i, i + d/2)."""
    d = x.shape[-1]
    angle = pos[:, None] * base ** (-2 * np.arange(d // 2) / d)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :d // 2], x[..., d // 2:])
    out = np.empty_like(x)
    if neighbours:
        out[..., 0::2], out[..., 1::2] = a * c - b * s, a * s + b * c
    else:
        out[..., :d // 2], out[..., d // 2:] = a * c - b * s, a * s + b * c
    return out


def attention(f, w, h, layer):
    n, heads, kv = len(h), f("attention.head_count"), f("attention.head_count_kv")
    d, gemma = f("attention.key_length", f("embedding_length") // f("attention.head_count")), f.arch == "gemma3"
    if f.arch == "phi3":
        q, k, v = np.split(h @ w("attn_qkv").T, [heads * d, (heads + kv) * d], axis=1)
    else:
        q, k, v = (h @ w(f"attn_{p}").T + w(f"attn_{p}", "bias", 0.0) for p in "qkv")
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    eps = f("attention.layer_norm_rms_epsilon")
    if f.arch in ("gemma3", "qwen3", "qwen3moe"):
        q, k = rms(q, w("attn_q_norm"), eps), rms(k, w("attn_k_norm"), eps)
    window, pos, base = f("attention.sliding_window", 0), np.arange(n, dtype=float), f("rope.freq_base")
    near = window and (not gemma or (layer + 1) % f("attention.sliding_window_pattern", 6) != 0)
    if gemma and near:
        base = f("rope.freq_base_swa", 10000.0)
    else:
        pos = pos / f("rope.scaling.factor", 1.0)
    q, k = rotate(q, pos, base, f.arch == "llama"), rotate(k, pos, base, f.arch == "llama")
    ago = np.arange(n)[:, None] - np.arange(n)[None]
    hidden = (ago < 0) | (ago >= window if near else False)
    share = f("embedding_length") / heads if gemma and f("block_count") == 62 else d  # the 27B model alone
    out, cap = np.empty_like(q), f("attn_logit_softcapping", 0.0)
    for j in range(heads):
        s = q[:, j] @ k[:, j // (heads // kv)].T / math.sqrt(share)
        s = cap * np.tanh(s / cap) if cap else s
        s = np.exp(np.where(hidden, -np.inf, s) - np.where(hidden, -np.inf, s).max(-1, keepdims=True))
        out[:, j] = s / s.sum(-1, keepdims=True) @ v[:, j // (heads // kv)]
    return out.reshape(n, heads * d) @ w("attn_output").T


def activation(x, gemma):
    if gemma:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    return x / (1 + np.exp(-x))


def mixture(f, w, h):
    """Each token by itself: softmax over the experts, the best few, their shares made to add up to one."""
    out = np.zeros_like(h)
    for t, row in enumerate(h):
        score = w("ffn_gate_inp") @ row
        share = np.exp(score - score.max()) / np.exp(score - score.max()).sum()
        best = np.argsort(-share, kind="stable")[:f("expert_used_count")]
        for e in best:
            inner = activation(w("ffn_gate_exps")[e] @ row, False) * (w("ffn_up_exps")[e] @ row)
            out[t] += share[e] / share[best].sum() * (w("ffn_down_exps")[e] @ inner)
    return out


def logits(f, ids):
    gemma, eps = f.arch == "gemma3", f("attention.layer_norm_rms_epsilon")
    x = f.t["token_embd.weight"][ids] * (math.sqrt(f("embedding_length")) if gemma else 1)
    for i in range(f("block_count")):
        def w(name, kind="weight", otherwise=None):
            return f.t.get(f"blk.{i}.{name}.{kind}", otherwise)

        y = attention(f, w, rms(x, w("attn_norm"), eps), i)
        x = x + (rms(y, w("post_attention_norm"), eps) if gemma else y)
        h = rms(x, w("ffn_norm"), eps)
        if f("expert_count"):
            x = x + mixture(f, w, h)
            continue
        gate, up = np.split(w("ffn_up"), 2) if f.arch == "phi3" else (w("ffn_gate"), w("ffn_up"))
        y = (activation(h @ gate.T, gemma) * (h @ up.T)) @ w("ffn_down").T
        x = x + (rms(y, w("post_ffw_norm"), eps) if gemma else y)
    y = rms(x, f.t["output_norm.weight"], eps) @ f.t.get("output.weight", f.t["token_embd.weight"]).T
    cap = f("final_logit_softcapping", 0.0)
    return cap * np.tanh(y / cap) if cap else y


def main():
    out = {"ids": [(7 * i * i + 3 * i + 11) % 500 for i in range(N_TOKENS)], "positions": POSITIONS, "models": {}}
    for name in MODELS:
        rows = logits(File(os.path.join(sys.argv[1], "tests", "tiny", name + ".gguf")), out["ids"])
        out["models"][name] = [[round(v, 5) for v in rows[p]] for p in POSITIONS]
    print(json.dumps(out, separators=(",", ":")).replace("]],", "]],\n"))


main()
