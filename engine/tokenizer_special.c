/* SPDX-License-Identifier: Apache-2.0
 * Finds special tokens in text. The texts are kept sorted: those that share a beginning are neighbours, and the one
 * that is the beginning itself comes first among them. So a match narrows a range byte by byte, and the last text
 * met as "first in the range and no longer than the depth" is the longest match. No trie has to be built at start.
 */
#include "engine/tokenizer_priv.h"
#include <stdlib.h>
#include <string.h>

static int compare(const void *pa, const void *pb)
{
	const struct special *a = pa, *b = pb;
	int c = memcmp(a->text.s, b->text.s, MIN_OF(a->text.len, b->text.len));

	if (c)
		return c;
	if (a->text.len != b->text.len)
		return a->text.len < b->text.len ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

static bool wanted(const struct vocab *v, uint32_t id, bool control, bool user)
{
	if (!v->text[id].len)
		return false;
	switch (v->type[id]) {
	case TOKEN_CONTROL:
	case TOKEN_UNKNOWN:
		return control;
	case TOKEN_USER:
		return user;
	default:
		return false;
	}
}

static void collect(struct specials *sp, const struct vocab *v, bool control, bool user, bool escape)
{
	size_t at = 0;

	for (uint32_t i = 0; i < v->n; i++) {
		struct special *s = &sp->item[sp->n];

		if (!wanted(v, i, control, user))
			continue;
		*s = (struct special){ v->text[i], (int32_t)i, v->type[i] != TOKEN_USER };
		if (escape) {
			char *copy = sp->escaped + at;

			for (size_t k = 0; k < v->text[i].len; k++) {
				bool space = v->text[i].s[k] == ' ';

				memcpy(sp->escaped + at, space ? U2581 : &v->text[i].s[k], space ? 3 : 1);
				at += space ? 3 : 1;
			}
			s->text = (struct gguf_str){ copy, (size_t)(sp->escaped + at - copy) };
		}
		sp->n++;
	}
}

/* Of equal texts the lowest id stays. */
static void sort_and_index(struct specials *sp)
{
	size_t kept = 0, i = 0;

	qsort(sp->item, sp->n, sizeof *sp->item, compare);
	for (size_t k = 0; k < sp->n; k++) {
		const struct special *last = kept ? &sp->item[kept - 1] : NULL;

		if (last && last->text.len == sp->item[k].text.len &&
			!memcmp(last->text.s, sp->item[k].text.s, last->text.len))
			continue;
		sp->item[kept++] = sp->item[k];
	}
	sp->n = kept;
	for (unsigned c = 0; c <= 256; c++) {
		while (i < sp->n && (uint8_t)sp->item[i].text.s[0] < c)
			i++;
		sp->first[c] = (uint32_t)i;
	}
}

int specials_build(
	struct specials *sp, const struct vocab *v, bool control, bool user, bool escape, struct error *e)
{
	size_t n = 0, bytes = 0;

	for (uint32_t i = 0; i < v->n; i++)
		if (wanted(v, i, control, user)) {
			n++;
			bytes += v->text[i].len * 3;
		}
	sp->item = mem_zalloc(MEM_TOKENIZER, n, sizeof *sp->item);
	if (escape)
		sp->escaped = mem_alloc(MEM_TOKENIZER, bytes);
	if (!sp->item || (escape && !sp->escaped))
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for %zu special tokens", n);
	collect(sp, v, control, user, escape);
	sort_and_index(sp);
	return TENON_OK;
}

void specials_finish(struct specials *sp)
{
	MEM_CLEAR(sp->item);
	MEM_CLEAR(sp->escaped);
}

/* First item of [lo, hi) whose byte at `depth` is at least c; all items are longer than depth. */
static size_t lower(const struct specials *sp, size_t lo, size_t hi, size_t depth, unsigned c)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if ((uint8_t)sp->item[mid].text.s[depth] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int32_t specials_match(
	const struct specials *sp, const char *s, size_t len, size_t trusted, size_t *match_len)
{
	size_t lo, hi, depth = 1;
	int32_t best = -1;

	if (!len)
		return -1;
	lo = sp->first[(uint8_t)s[0]];
	hi = sp->first[(uint8_t)s[0] + 1];
	while (lo < hi) {
		const struct special *it = &sp->item[lo];
		unsigned c;

		if (it->text.len == depth) {
			if (!it->control || depth <= trusted) {
				best = it->id;
				*match_len = depth;
			}
			lo++;
		}
		if (depth == len)
			break;
		c = (uint8_t)s[depth];
		lo = lower(sp, lo, hi, depth, c);
		hi = lower(sp, lo, hi, depth, c + 1);
		depth++;
	}
	return best;
}
