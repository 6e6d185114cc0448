/* SPDX-License-Identifier: Apache-2.0
 * Where the keys and values of a tile lie (attn.h), in pages or widened, and the widening itself, for vectors of any
 * width. A widened tile of a quantised type keeps the numbers and the scales apart, as pages do.
 *
 * A file that includes this has before it: enum { V (lanes, at most 16) }, INLINE, vec_store, load_key, load_value.
 */
#ifndef PLUGINS_CPU_ATTN_SOURCE_H
#define PLUGINS_CPU_ATTN_SOURCE_H
#include "attn.h"
#include <tenon/plugin.h>

enum {
	BLOCK = 32, /* dimensions that share a scale */
	MAX_BLOCKS = 1024 / BLOCK,
	FLAT = 64, /* beside TNP_*: a widened tile */
	WIDE = 65  /* the same of a quantised type: scales apart */
};

/* Keys and values of a tile in two halves; strides in elements. */
struct source {
	const void *k[2], *v[2];
	const float *ks, *vs; /* quantised types: scales of keys and of values, both [block][ATTN_TILE] */
	uint32_t k_stride, v_stride;
	bool k_apart;		   /* halves of the keys share no cache line */
	const struct source *next; /* what to fetch meanwhile; itself if there is nothing */
};

INLINE bool has_scales(const uint32_t type) { return type == WIDE || attn_has_scales(type); }

static struct source source_page(const struct attn_shape *s, const struct attn_half half[2])
{
	size_t plane = attn_plane(s->type, s->pad, s->page), column = plane / s->pad / s->page;
	struct source src = { .k_stride = s->page, .v_stride = s->pad };

	for (int h = 0; h < 2; h++) {
		const uint8_t *head = half[h].head;

		src.k[h] = head + half[h].token * (column ? column : 1);
		src.v[h] = head + plane + plane / s->page * half[h].token;
	}
	src.k_apart = ((uintptr_t)src.k[0] ^ (uintptr_t)src.k[1]) >= 64;
	return src;
}

static struct source source_wide(const struct attn_shape *s, const float *tile)
{
	const float *values = tile + (size_t)ATTN_TILE * s->pad;

	return (struct source){ .k = { tile, tile + ATTN_HALF },
		.v = { values, values + (size_t)ATTN_HALF * s->pad },
		.ks = attn_wide_scales(s, tile),
		.vs = attn_wide_scales(s, tile) + ATTN_TILE * (size_t)attn_blocks(s->pad),
		.k_stride = ATTN_TILE,
		.v_stride = s->pad };
}

/* ---- widening ------------------------------------------------------------------------------------- */
INLINE void widen(const uint32_t type, const struct attn_shape *s, const struct source *src, float *out)
{
	float *value = out + (size_t)ATTN_TILE * s->pad;

	for (uint32_t d = 0; d < s->pad; d++)
		for (uint32_t i = 0; i < ATTN_TILE; i += V, out += V)
			vec_store(
				out, load_key(type, src->k[i / ATTN_HALF], d, src->k_stride, i % ATTN_HALF));
	for (uint32_t t = 0; t < ATTN_TILE; t++)
		for (uint32_t h = 0; h < s->pad; h += V, value += V)
			vec_store(value,
				load_value(type, src->v[t / ATTN_HALF],
					(size_t)(t % ATTN_HALF) * src->v_stride + h));
}

/* Heads that are a multiple of V. */
static void tile_widen(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const struct source src = source_page(s, half);

	if (attn_has_scales(s->type))
		attn_scales_gather(s, half, attn_wide_scales(s, out));
	if (s->type == TNP_F16)
		widen(TNP_F16, s, &src, out);
	else if (s->type == TNP_Q8_0)
		widen(TNP_Q8_0, s, &src, out);
	else if (s->type == TNP_Q4_0)
		widen(TNP_Q4_0, s, &src, out);
	else
		widen(TNP_F32, s, &src, out);
}
#endif
