/* SPDX-License-Identifier: Apache-2.0
 * Merging: symbols lie in an array and form a list; a heap holds the pairs that may merge. The best pair goes first,
 * of equals the leftmost. A pair that has changed since it was put into the heap is recognised by its contents and
 * dropped. Each merge adds at most two pairs, so all takes n log n steps however uniform the text is.
 */
#include "engine/tokenizer_priv.h"
#include <string.h>

#define NONE UINT32_MAX

enum { PAIR_BLOCK = 32 };

int encoder_no_memory(const struct encoder *x)
{
	return error_set(x->e, TENON_E_NOMEM, "tokenizer: no memory for this text; send a shorter one");
}

/* Room for one more element in a growing array. */
static bool grow(void **p, size_t n, size_t *cap, size_t bytes)
{
	size_t more = *cap ? *cap * 2 : 64, all;
	void *q;

	if (n < *cap)
		return true;
	if (!checked_mul_size(more, bytes, &all))
		return false;
	q = mem_resize(MEM_TOKENIZER, *p, all);
	if (!q)
		return false;
	*p = q;
	*cap = more;
	return true;
}

bool encoder_add_symbol(struct encoder *x, uint32_t off, uint32_t len, int32_t id)
{
	uint32_t n = (uint32_t)x->n_symbols;
	void *p = x->symbol;

	if (!grow(&p, n, &x->symbols_cap, sizeof *x->symbol))
		return false;
	x->symbol = p;
	x->symbol[n] = (struct symbol){ off, len, id, n ? n - 1 : NONE, NONE };
	if (n)
		x->symbol[n - 1].next = n;
	x->n_symbols++;
	return true;
}

static bool heap_push(struct encoder *x, struct candidate c)
{
	void *p = x->heap;
	size_t i = x->heap_n;

	if (!grow(&p, i, &x->heap_cap, sizeof *x->heap))
		return false;
	x->heap = p;
	x->heap_n++;
	for (; i && x->heap[(i - 1) / 2].key > c.key; i = (i - 1) / 2)
		x->heap[i] = x->heap[(i - 1) / 2];
	x->heap[i] = c;
	return true;
}

static struct candidate heap_pop(struct encoder *x)
{
	struct candidate top = x->heap[0], last = x->heap[--x->heap_n];
	size_t i = 0, n = x->heap_n;

	for (size_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && x->heap[child + 1].key < x->heap[child].key)
			child++;
		if (last.key <= x->heap[child].key)
			break;
		x->heap[i] = x->heap[child];
	}
	if (n)
		x->heap[i] = last;
	return top;
}

/* The right symbol becomes part of the left one. */
static void join(struct encoder *x, uint32_t left, int32_t id)
{
	struct symbol *a = &x->symbol[left], *b = &x->symbol[a->next];

	a->id = id;
	a->len += b->len;
	a->next = b->next;
	b->len = 0;
	if (b->next != NONE)
		x->symbol[b->next].prev = left;
}

/* ---- by rank ----------------------------------------------------------------------------------------- */

static uint32_t pair_slot(const struct merges *m, int32_t left, int32_t right)
{
	uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

	return (uint32_t)vocab_mix(key ^ m->seed, 0x9e3779b97f4a7c15u) & m->mask;
}

static const struct merge *find_pair(const struct merges *m, int32_t left, int32_t right)
{
	for (uint32_t i = pair_slot(m, left, right); m->slot[i].rank != UINT32_MAX; i = (i + 1) & m->mask)
		if (m->slot[i].left == left && m->slot[i].right == right)
			return &m->slot[i];
	return NULL;
}

static bool offer_pair(struct encoder *x, const struct merges *m, uint32_t left)
{
	const struct symbol *a = &x->symbol[left];
	const struct merge *pair;

	if (a->next == NONE)
		return true;
	pair = find_pair(m, a->id, x->symbol[a->next].id);
	return !pair ||
		heap_push(x,
			(struct candidate){
				(uint64_t)pair->rank << 32 | left, (uint32_t)(pair - m->slot), 0 });
}

int merge_by_rank(struct encoder *x, const struct merges *m)
{
	x->heap_n = 0;
	for (uint32_t i = 0; i + 1 < x->n_symbols; i++)
		if (!offer_pair(x, m, i))
			return encoder_no_memory(x);
	while (x->heap_n) {
		struct candidate c = heap_pop(x);
		const struct merge *pair = &m->slot[c.a];
		uint32_t left = (uint32_t)c.key;
		struct symbol *a = &x->symbol[left];

		if (!a->len || a->next == NONE || a->id != pair->left || x->symbol[a->next].id != pair->right)
			continue;
		join(x, left, pair->id);
		if ((a->prev != NONE && !offer_pair(x, m, a->prev)) || !offer_pair(x, m, left))
			return encoder_no_memory(x);
	}
	return TENON_OK;
}

/* ---- by score ---------------------------------------------------------------------------------------- */

/* Smaller for a higher score; a total order, whatever bits the file holds. */
static uint32_t score_key(float score)
{
	uint32_t bits;

	score += 0.0f; /* -0 is 0 */
	memcpy(&bits, &score, sizeof bits);
	return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

static bool offer_joined(struct encoder *x, const char *base, uint32_t left)
{
	const struct vocab *v = &x->t->v;
	const struct symbol *a = &x->symbol[left];
	uint32_t len;
	int32_t id;

	if (a->next == NONE)
		return true;
	len = a->len + x->symbol[a->next].len;
	id = vocab_find_text(v, base + a->off, len);
	return id < 0 ||
		heap_push(x,
			(struct candidate){
				(uint64_t)score_key(vocab_score(v, id)) << 32 | left, len, (uint32_t)id });
}

int merge_by_score(struct encoder *x, const char *base)
{
	x->heap_n = 0;
	for (uint32_t i = 0; i + 1 < x->n_symbols; i++)
		if (!offer_joined(x, base, i))
			return encoder_no_memory(x);
	while (x->heap_n) {
		struct candidate c = heap_pop(x);
		uint32_t left = (uint32_t)c.key;
		struct symbol *a = &x->symbol[left];

		if (!a->len || a->next == NONE || a->len + x->symbol[a->next].len != c.a)
			continue;
		join(x, left, (int32_t)c.b);
		if ((a->prev != NONE && !offer_joined(x, base, a->prev)) || !offer_joined(x, base, left))
			return encoder_no_memory(x);
	}
	return TENON_OK;
}

/* ---- the pair table ---------------------------------------------------------------------------------- */

static void add_pair(struct merges *m, struct merge pair)
{
	uint32_t i = pair_slot(m, pair.left, pair.right);

	for (; m->slot[i].rank != UINT32_MAX; i = (i + 1) & m->mask)
		if (m->slot[i].left == pair.left && m->slot[i].right == pair.right)
			return;
	m->slot[i] = pair;
}

/* "left right": neither part holds a space, but a part may begin with one. */
static int parse_pair(const struct vocab *v, struct gguf_str s, uint32_t rank, struct merge *out)
{
	char joined[2 * TOKENIZER_MAX_TOKEN_BYTES];
	const char *space = s.len > 2 ? memchr(s.s + 1, ' ', s.len - 1) : NULL;
	size_t n = space ? (size_t)(space - s.s) : 0, rest = s.len - n - 1;

	if (!space || !rest || n > TOKENIZER_MAX_TOKEN_BYTES || rest > TOKENIZER_MAX_TOKEN_BYTES)
		return -1;
	memcpy(joined, s.s, n);
	memcpy(joined + n, space + 1, rest);
	*out = (struct merge){ vocab_find_known(v, s.s, n), vocab_find_known(v, space + 1, rest), rank,
		vocab_find_known(v, joined, n + rest) };
	return out->left < 0 || out->right < 0 || out->id < 0 ? -1 : 0;
}

static int reserve_pairs(struct merges *m, uint64_t n, struct error *e)
{
	uint32_t size = 16;

	while (size < n + n / 2 + 1)
		size *= 2;
	m->slot = mem_alloc(MEM_TOKENIZER, size * sizeof *m->slot);
	if (!m->slot)
		return error_set(
			e, TENON_E_NOMEM, "tokenizer: no memory for %llu merges", (unsigned long long)n);
	memset(m->slot, 0xff, size * sizeof *m->slot);
	m->mask = size - 1;
	return TENON_OK;
}

/* Pairs go into the table a block at a time, so that the memory they land in is under way while others are parsed. */
static int add_block(struct merges *m, const struct vocab *v, const struct gguf_str *s, uint32_t rank,
	uint32_t n, uint32_t *bad)
{
	struct merge pair[PAIR_BLOCK];

	for (uint32_t i = 0; i < n; i++) {
		if (parse_pair(v, s[i], rank + i, &pair[i])) {
			*bad = rank + i;
			return -1;
		}
		__builtin_prefetch(&m->slot[pair_slot(m, pair[i].left, pair[i].right)], 1);
	}
	for (uint32_t i = 0; i < n; i++)
		add_pair(m, pair[i]);
	return 0;
}

int merges_load(struct merges *m, const struct gguf *g, const struct vocab *v, struct error *e)
{
	static const char key[] = "tokenizer.ggml.merges";
	struct gguf_array a;
	uint32_t bad;
	int rc = gguf_get_array(g, key, &a, e);

	if (rc)
		return rc;
	if (a.kind != GGUF_STRING || a.n > TOKENIZER_MAX_VOCAB * 2)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": it is not a list of at most %d strings; take another file", key,
			TOKENIZER_MAX_VOCAB * 2);
	rc = reserve_pairs(m, a.n, e);
	if (rc)
		return rc;
	m->seed = v->seed;
	for (uint32_t i = 0; i < a.n; i += PAIR_BLOCK)
		if (add_block(m, v, a.strs + i, i, MIN_OF((uint32_t)a.n - i, (uint32_t)PAIR_BLOCK), &bad))
			return error_set(e, TENON_E_FORMAT,
				"key \"%s\": merge %u is not two tokens that make a third; take another file",
				key, bad);
	return TENON_OK;
}

void merges_finish(struct merges *m) { MEM_CLEAR(m->slot); }
