/* SPDX-License-Identifier: Apache-2.0
 * GGUF rows into the panels of linear_avx2.h. Runs once a matrix when a model is opened, on the way to the first
 * token: one pass, each byte read and written once, eight row streams at a time. Rows past the last are packed as
 * copies of the last; their outputs are never stored.
 */
#include "plugins/cpu/linear_avx2.h"

/* Panel forms: how a chunk's bytes come from 8 rows. `row` points at the chunk's first block in each row. */
typedef void chunk_fn(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out);

enum { CHUNK_MAX = 1680 };

static chunk_fn chunk_q4, chunk_q5, chunk_q8, chunk_iq4nl, chunk_k;

static const struct pack_form {
	uint8_t type;
	uint16_t k, bytes, codes; /* columns, bytes, of these codes; scales come behind */
	chunk_fn *pack;		  /* NULL: floats                                       */
} pack_forms[] = {
	{ TNP_F32, 1, 32, 32, NULL },
	{ TNP_F16, 1, 16, 16, NULL },
	{ TNP_BF16, 1, 16, 16, NULL },
	{ TNP_Q4_0, 32, 144, 128, chunk_q4 },
	{ TNP_Q4_1, 32, 160, 128, chunk_q4 },
	{ TNP_Q5_0, 32, 176, 160, chunk_q5 },
	{ TNP_Q5_1, 32, 192, 160, chunk_q5 },
	{ TNP_Q8_0, 32, 272, 256, chunk_q8 },
	{ TNP_IQ4_NL, 32, 144, 128, chunk_iq4nl },
	{ TNP_Q2_K, 256, 672, 512, chunk_k },
	{ TNP_Q3_K, 256, 912, 768, chunk_k },
	{ TNP_Q4_K, 256, 1184, 1024, chunk_k },
	{ TNP_Q5_K, 256, 1440, 1280, chunk_k },
	{ TNP_Q6_K, 256, 1680, 1536, chunk_k },
};

static const struct pack_form *form_of(uint32_t type)
{
	for (size_t i = 0; i < sizeof pack_forms / sizeof *pack_forms; i++)
		if (pack_forms[i].type == type)
			return pack_forms + i;
	return NULL;
}

size_t avx2_chunk_bytes(uint32_t type)
{
	const struct pack_form *f = form_of(type);

	return f ? f->bytes : 0;
}

uint32_t avx2_chunk_k(uint32_t type)
{
	const struct pack_form *f = form_of(type);

	return f ? f->k : 0;
}

/* ---- helpers ---- */

/* out[i] = 16-bit words i of all rows, rows in order */
INLINE void transpose_halves(const __m128i r[PANEL], __m128i out[8])
{
	__m128i a[8], b[8];

	UNROLL
	for (int i = 0; i < 4; i++) {
		a[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
		a[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
	}
	UNROLL
	for (int i = 0; i < 8; i += 4)
		UNROLL
	for (int h = 0; h < 2; h++) {
		b[i + 2 * h] = _mm_unpacklo_epi32(a[i + h], a[i + 2 + h]);
		b[i + 2 * h + 1] = _mm_unpackhi_epi32(a[i + h], a[i + 2 + h]);
	}
	UNROLL
	for (int i = 0; i < 4; i++) {
		out[2 * i] = _mm_unpacklo_epi64(b[i], b[i + 4]);
		out[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[i + 4]);
	}
}

/* f16 at the same offset of each row */
INLINE void put_scales(const uint8_t *const row[PANEL], size_t offset, uint8_t *out)
{
	UNROLL
	for (int r = 0; r < PANEL; r++)
		memcpy(out + 2 * r, row[r] + offset, 2);
}

/* 16 bytes of nibbles of each row, 4 vectors */
INLINE void put_nibbles(const __m128i n[PANEL], uint8_t *out)
{
	__m256i v[4];

	transpose_words(n, v);
	UNROLL
	for (int i = 0; i < 4; i++)
		store256(out + 32 * i, v[i]);
}

/* ---- floats: transposed, 8 columns at a time; two panels side by side, [k][16 rows] ---- */

static void panel_halves(const uint8_t *const row[PANEL], uint32_t k, uint8_t *out)
{
	uint32_t i = 0;

	for (; k - i >= 8; i += 8) {
		__m128i n[PANEL], t[8];

		UNROLL
		for (int r = 0; r < PANEL; r++)
			n[r] = load128(row[r] + 2 * (size_t)i);
		transpose_halves(n, t);
		UNROLL
		for (int j = 0; j < 8; j++)
			_mm_storeu_si128((__m128i *)(out + (i + (size_t)j) * 2 * 16), t[j]);
	}
	for (; i < k; i++)
		put_scales(row, 2 * (size_t)i, out + (size_t)i * 2 * 16);
}

static void panel_words(const uint8_t *const row[PANEL], uint32_t k, uint8_t *out)
{
	uint32_t i = 0;

	for (; k - i >= 4; i += 4) {
		__m128i n[PANEL];
		__m256i t[4];

		UNROLL
		for (int r = 0; r < PANEL; r++)
			n[r] = load128(row[r] + 4 * (size_t)i);
		transpose_words(n, t);
		UNROLL
		for (int j = 0; j < 4; j++)
			store256(out + (i + (size_t)j) * 2 * 32, t[j]);
	}
	for (; i < k; i++)
		for (int r = 0; r < PANEL; r++)
			memcpy(out + (size_t)i * 2 * 32 + 4 * r, row[r] + 4 * (size_t)i, 4);
}

/* ---- blocks of 32 ---- */

static void chunk_q4(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	const size_t head = type == TNP_Q4_1 ? 4 : 2;
	__m128i n[PANEL];

	UNROLL
	for (int r = 0; r < PANEL; r++)
		n[r] = load128(row[r] + head);
	put_nibbles(n, out);
	put_scales(row, 0, out + 128);
	if (type == TNP_Q4_1)
		put_scales(row, 2, out + 144);
}

static void chunk_iq4nl(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	__m128i n[PANEL], t[8];

	(void)type;
	UNROLL
	for (int r = 0; r < PANEL; r++)
		n[r] = load128(row[r] + 2);
	transpose_halves(n, t);
	UNROLL
	for (int i = 0; i < 8; i++)
		_mm_storeu_si128((__m128i *)(out + 16 * i), t[i]);
	put_scales(row, 0, out + 128);
}

static void chunk_q8(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	(void)type;
	UNROLL
	for (int h = 0; h < 2; h++) {
		__m128i n[PANEL], t[8];

		UNROLL
		for (int r = 0; r < PANEL; r++)
			n[r] = load128(row[r] + 2 + 16 * h);
		transpose_halves(n, t);
		UNROLL
		for (int i = 0; i < 8; i++)
			_mm_storeu_si128((__m128i *)(out + 128 * h + 16 * i), t[i]);
	}
	put_scales(row, 0, out + 256);
}

/* 32 bits of each row: bit v of byte 4r + j is bit 4v + j, bit 4 + v is bit 16 + 4v + j. */
INLINE __m256i high_bits(const uint8_t *const row[PANEL], size_t offset)
{
	uint32_t word[PANEL];
	__m256i all, out = _mm256_setzero_si256();

	for (int r = 0; r < PANEL; r++)
		memcpy(word + r, row[r] + offset, 4);
	all = load256(word);
	for (int j = 0; j < 4; j++) {
		__m256i x = _mm256_and_si256(
			_mm256_srl_epi32(all, _mm_cvtsi32_si128(j)), _mm256_set1_epi32(0x11111111));

		x = _mm256_and_si256(
			_mm256_or_si256(x, _mm256_srli_epi32(x, 3)), _mm256_set1_epi32(0x03030303));
		x = _mm256_and_si256(
			_mm256_or_si256(x, _mm256_srli_epi32(x, 6)), _mm256_set1_epi32(0x000f000f));
		x = _mm256_and_si256(_mm256_or_si256(x, _mm256_srli_epi32(x, 12)), _mm256_set1_epi32(0xff));
		out = _mm256_or_si256(out, _mm256_sll_epi32(x, _mm_cvtsi32_si128(8 * j)));
	}
	return out;
}

static void chunk_q5(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	const size_t head = type == TNP_Q5_1 ? 4 : 2;
	__m128i n[PANEL];

	UNROLL
	for (int r = 0; r < PANEL; r++)
		n[r] = load128(row[r] + head + 4);
	put_nibbles(n, out);
	store256(out + 128, high_bits(row, head));
	put_scales(row, 0, out + 160);
	if (type == TNP_Q5_1)
		put_scales(row, 2, out + 176);
}

/* ---- K types ---- */

/* Codes of 8 rows x 32 columns, code[g] = columns 4g..4g+3 of all rows. */
INLINE void codes_load(const struct dequant_k *k, int b, __m256i code[8])
{
	UNROLL
	for (int h = 0; h < 2; h++) {
		__m128i n[PANEL];

		UNROLL
		for (int r = 0; r < PANEL; r++)
			n[r] = load128(k[r].q + 32 * b + 16 * h);
		transpose_words(n, code + 4 * h);
	}
}

/* Bits [shift, shift + bits) of the codes: of the first 16 columns at bit v * bits, the others at (4 + v) * bits. */
INLINE __m256i codes_bits(const __m256i *code, int n, int shift, int bits)
{
	__m256i out = _mm256_setzero_si256();

	for (int v = 0; v < n; v++) {
		const __m256i field = _mm256_and_si256(_mm256_srl_epi16(code[v], _mm_cvtsi32_si128(shift)),
			_mm256_set1_epi8((char)((1 << bits) - 1)));

		out = _mm256_or_si256(out, _mm256_sll_epi16(field, _mm_cvtsi32_si128(v * bits)));
	}
	return out;
}

/* One block of 32 columns in the type's bits; returns the end. */
static uint8_t *block_codes(uint32_t type, const __m256i code[8], uint8_t *out)
{
	if (type == TNP_Q2_K || type == TNP_Q3_K) {
		store256(out, codes_bits(code, 4, 0, 2));
		store256(out + 32, codes_bits(code + 4, 4, 0, 2));
		if (type == TNP_Q2_K)
			return out + 64;
		store256(out + 64, codes_bits(code, 8, 2, 1));
		return out + 96;
	}
	for (int v = 0; v < 4; v++)
		store256(out + 32 * v,
			_mm256_or_si256(codes_bits(code + v, 1, 0, 4),
				_mm256_slli_epi16(codes_bits(code + 4 + v, 1, 0, 4), 4)));
	if (type == TNP_Q4_K)
		return out + 128;
	if (type == TNP_Q5_K) {
		store256(out + 128, codes_bits(code, 8, 4, 1));
		return out + 160;
	}
	store256(out + 128, codes_bits(code, 4, 4, 2));
	store256(out + 160, codes_bits(code + 4, 4, 4, 2));
	return out + 192;
}

/* Scales [16][8 rows], or [8][8] scales and then minima where they cover 32 columns; d, and dmin where there is one. */
static void chunk_k_scales(uint32_t type, const struct dequant_k *k, uint8_t *out)
{
	const int two = type == TNP_Q4_K || type == TNP_Q5_K;

	for (int r = 0; r < PANEL; r++) {
		for (int g = 0; g < 16; g++)
			if (type == TNP_Q2_K)
				out[g * PANEL + r] = (uint8_t)(k[r].sc[g] | k[r].mn[g] << 4);
			else if (!two)
				out[g * PANEL + r] = (uint8_t)k[r].sc[g];
			else
				out[g * PANEL + r] = g < 8 ? (uint8_t)k[r].sc[2 * g] : k[r].mn[2 * (g - 8)];
		memcpy(out + 128 + 2 * r, &k[r].d, 2);
		if (two || type == TNP_Q2_K)
			memcpy(out + 144 + 2 * r, &k[r].dmin, 2);
	}
}

static void chunk_k(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	struct dequant_k k[PANEL];
	__m256i code[8];

	for (int r = 0; r < PANEL; r++)
		dequant_split_k(type, row[r], k + r);
	for (int b = 0; b < DEQUANT_K / QK; b++) {
		codes_load(k, b, code);
		out = block_codes(type, code, out);
	}
	chunk_k_scales(type, k, out);
}

/* ---- entry ---- */

static void panel_pack(const struct pack_form *f, const uint8_t *row[PANEL], uint32_t k, uint8_t *out)
{
	const size_t block = dequant_block_bytes(f->type);

	if (!f->pack) {
		(f->bytes == 16 ? panel_halves : panel_words)(row, k, out);
		return;
	}
	for (uint32_t i = 0; i < k; i += f->k, out += f->bytes) {
		f->pack(f->type, row, out);
		for (int r = 0; r < PANEL; r++)
			row[r] += block;
	}
}

static uint8_t *panel_place(const struct pack_form *f, uint8_t *dst, uint32_t panel, size_t chunks)
{
	if (f->pack)
		return dst + panel * chunks * f->bytes;
	return dst + panel / 2 * 2 * chunks * f->bytes + panel % 2 * f->bytes;
}

static void panel_rows(
	const struct linear_weight *w, const void *src, size_t stride, uint32_t j, const uint8_t *row[PANEL])
{
	for (uint32_t r = 0; r < PANEL; r++)
		row[r] = (const uint8_t *)src + (j + r < w->n ? j + r : w->n - 1) * stride;
}

void avx2_weight_pack(const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst)
{
	const struct pack_form *f = form_of(w->type);
	const uint8_t *row[PANEL];
	uint32_t end;

	if (!f)
		return;
	end = f->pack ? n1 : (n1 + TILE_N - 1) / TILE_N * TILE_N; /* floats: a last pair is whole */
	for (uint32_t j = n0; j < end; j += PANEL) {
		const size_t chunks = w->k / f->k;

		panel_rows(w, src, chunks * dequant_block_bytes(w->type), j, row);
		panel_pack(f, row, w->k, panel_place(f, dst, j / PANEL, chunks));
	}
}

/* n bytes of two panels' chunks, in turns of `unit` bytes. */
INLINE uint8_t *turns(const uint8_t *chunk[TILE_R], size_t at, size_t n, const size_t unit, uint8_t *out)
{
	for (size_t i = at; i < at + n; i += unit)
		for (int r = 0; r < TILE_R; r++, out += unit)
			memcpy(out, chunk[r] + i, unit);
	return out;
}

/* A chunk of 16 rows: codes, byte scales and f16 scales of two panels in turns, a vector of 8 rows each. */
static void chunks_join(const struct pack_form *f, const uint8_t *chunk[TILE_R], uint8_t *out)
{
	const size_t codes = f->codes, bytes = f->k == DEQUANT_K ? DEQUANT_K / 2 : 0;

	if (f->pack == chunk_q8 || f->pack == chunk_iq4nl)
		out = turns(chunk, 0, codes, 16, out);
	else
		out = turns(chunk, 0, codes, 32, out);
	out = turns(chunk, codes, bytes, 8, out);
	turns(chunk, codes + bytes, f->bytes - codes - bytes, 16, out);
}

void avx2_weight_pack_pairs(
	const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst)
{
	const struct pack_form *f = form_of(w->type);
	const size_t block = dequant_block_bytes(w->type);
	uint8_t chunk[TILE_R][CHUNK_MAX];

	if (!f || !f->pack)
		return;
	for (uint32_t j = n0; j < n1; j += TILE_N) {
		const size_t chunks = w->k / f->k;
		const uint8_t *row[TILE_R][PANEL], *of[TILE_R] = { chunk[0], chunk[1] };
		uint8_t *out = (uint8_t *)dst + j / PANEL * chunks * f->bytes;

		for (uint32_t r = 0; r < TILE_R; r++)
			panel_rows(w, src, chunks * block, j + r * PANEL, row[r]);
		for (size_t i = 0; i < chunks; i++, out += TILE_R * f->bytes) {
			for (uint32_t r = 0; r < TILE_R; r++) {
				f->pack(f->type, row[r], chunk[r]);
				for (int k = 0; k < PANEL; k++)
					row[r][k] += block;
			}
			chunks_join(f, of, out);
		}
	}
}
