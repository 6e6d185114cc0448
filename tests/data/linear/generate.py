# SPDX-License-Identifier: Apache-2.0
"""Writes dequant.bin: random blocks of every quantised GGUF type and the floats that the gguf package (0.19 when
this was last run) makes of them. Run by hand: python3 generate.py > dequant.bin. Records of little-endian
u32 type, u32 bytes, u32 elements, then the bytes and the f32 elements."""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# offsets of the f16 scales in a block: random bytes there would be infinities
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
rng = np.random.default_rng(7)
for name, offsets in SCALES.items():
    kind = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (4 if elements == 32 else 2, size), dtype=np.uint8)
    for block in blocks:
        for at in offsets:
            block[at:at + 2] = np.frombuffer(np.float16(rng.normal() * 0.05).tobytes(), dtype=np.uint8)
    want = quants.dequantize(blocks.reshape(1, -1), kind).astype("<f4").reshape(-1)
    sys.stdout.buffer.write(struct.pack("<III", kind, blocks.size, want.size) + blocks.tobytes() + want.tobytes())
