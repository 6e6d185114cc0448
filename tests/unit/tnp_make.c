/* SPDX-License-Identifier: Apache-2.0
 * See tnp_make.h. Arrays grow by doubling; weights sit in one block that moves, so only offsets are kept.
 */
#include "tests/unit/tnp_make.h"
#include "base/mem.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

struct list {
	void *v;
	uint32_t n, room;
}; /* room in elements */

struct tnp_make {
	struct list tensors, nodes, attrs, edges, in, out;
	uint8_t *data; /* 64-byte aligned inside `block` */
	void *block;
	uint64_t n_bytes, room_bytes, seed;
	struct tnp_span span;
	struct tnp_graph g;
	bool failed;
};

/* ---- random numbers: splitmix64 ------------------------------------------------------------- */
uint64_t tnp_rand(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

double tnp_rand_unit(uint64_t *state) { return (double)(tnp_rand(state) >> 11) * 0x1p-53; }

double tnp_rand_normal(uint64_t *state)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += tnp_rand_unit(state);
	return sum - 6;
}

/* ---- stored types ----------------------------------------------------------------------------- */
/* `spread`: standard deviation of the integers a block holds when its bits are random; scales: where the
 * half-precision scales of a block stand (d and, for the second, the minimum or its scale). */
struct stored {
	uint32_t type, block, bytes;
	int at_d, at_m;
	double spread, mean;
};

static const struct stored stored_types[] = {
	{ TNP_F32, 1, 4, -1, -1, 0, 0 },
	{ TNP_F16, 1, 2, -1, -1, 0, 0 },
	{ TNP_BF16, 1, 2, -1, -1, 0, 0 },
	{ TNP_Q8_0, 32, 34, 0, -1, 74, 0 },
	{ TNP_Q4_0, 32, 18, 0, -1, 4.6, 0 },
	{ TNP_Q4_1, 32, 20, 0, 2, 4.6, 7.5 },
	{ TNP_Q5_0, 32, 22, 0, -1, 9.2, 0 },
	{ TNP_Q5_1, 32, 24, 0, 2, 9.2, 15.5 },
	{ TNP_Q2_K, 256, 84, 80, 82, 12, 1.5 },
	{ TNP_Q3_K, 256, 110, 108, -1, 42, 0 },
	{ TNP_Q4_K, 256, 144, 0, 2, 340, 7.5 },
	{ TNP_Q5_K, 256, 176, 0, 2, 680, 15.5 },
	{ TNP_Q6_K, 256, 210, 208, -1, 1370, 0 },
	{ TNP_IQ4_NL, 32, 18, 0, -1, 69, 0 },
};

static const struct stored *stored_find(uint32_t type)
{
	for (size_t i = 0; i < sizeof stored_types / sizeof stored_types[0]; i++)
		if (stored_types[i].type == type)
			return &stored_types[i];
	return NULL;
}

uint64_t tnp_row_bytes(uint32_t type, uint64_t n)
{
	const struct stored *s = stored_find(type);

	return s && n % s->block == 0 ? n / s->block * s->bytes : 0;
}

/* Half precision of a normal number, truncated: good enough for made-up data. */
static void put_f16(uint8_t *p, double x)
{
	int exp;
	double m = frexp(fabs(x), &exp); /* 0.5 <= m < 1 */
	uint32_t h = 0;

	if (x != 0 && exp > -14 && exp < 16)
		h = (uint32_t)(exp + 14) << 10 | ((uint32_t)(m * 2048) & 1023);
	h |= x < 0 ? 0x8000 : 0;
	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

static void fill_plain(const struct stored *s, double x, uint8_t *p)
{
	float f = (float)x;
	uint8_t wide[4];

	memcpy(wide, &f, 4);
	if (s->type == TNP_F32)
		memcpy(p, wide, 4);
	else if (s->type == TNP_BF16)
		memcpy(p, wide + 2, 2);
	else
		put_f16(p, x);
}

static void fill_block(const struct stored *s, double sd, uint64_t *seed, uint8_t *p)
{
	double d = sd / s->spread * (0.5 + tnp_rand_unit(seed));

	if (s->block == 1) {
		fill_plain(s, sd * tnp_rand_normal(seed), p);
		return;
	}
	for (uint32_t i = 0; i < s->bytes; i++)
		p[i] = (uint8_t)tnp_rand(seed);
	put_f16(p + s->at_d, tnp_rand(seed) & 1 && s->at_m < 0 ? -d : d);
	if (s->at_m >= 0 && s->block == 32)
		put_f16(p + s->at_m, -d * s->mean);
	else if (s->at_m >= 0)
		put_f16(p + s->at_m, d * s->mean);
}

/* ---- arrays --------------------------------------------------------------------------------------- */
static void *push(struct tnp_make *m, struct list *l, size_t bytes)
{
	if (m->failed)
		return NULL;
	if (l->n == l->room) {
		uint32_t room = l->room ? l->room * 2 : 16;
		void *v = mem_resize(MEM_TOOL, l->v, room * bytes);

		if (!v) {
			m->failed = true;
			return NULL;
		}
		l->v = v;
		l->room = room;
	}
	return (uint8_t *)l->v + bytes * l->n++;
}

static void push_u32(struct tnp_make *m, struct list *l, uint32_t v)
{
	uint32_t *p = push(m, l, sizeof *p);

	if (p)
		*p = v;
}

struct tnp_make *tnp_make_create(uint64_t seed)
{
	struct tnp_make *m = mem_zalloc(MEM_TOOL, 1, sizeof *m);

	if (m)
		m->seed = seed;
	return m;
}

void tnp_make_destroy(struct tnp_make *m)
{
	if (!m)
		return;
	mem_free(m->tensors.v);
	mem_free(m->nodes.v);
	mem_free(m->attrs.v);
	mem_free(m->edges.v);
	mem_free(m->in.v);
	mem_free(m->out.v);
	mem_free(m->block);
	mem_free(m);
}

/* ---- tensors ---------------------------------------------------------------------------------------- */
uint32_t tnp_make_tensor(struct tnp_make *m, uint32_t type, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
	struct tnp_tensor *t = push(m, &m->tensors, sizeof *t);

	if (!t)
		return 0;
	*t = (struct tnp_tensor){ .type = type, .dim = { d0, d1, d2, d3 }, .buffer = TNP_NONE };
	while (t->rank < TNP_MAX_RANK && t->dim[t->rank])
		t->rank++;
	return m->tensors.n - 1;
}

uint32_t tnp_make_rows(struct tnp_make *m, int64_t rows, int64_t width)
{
	return tnp_make_tensor(m, TNP_F32, rows, width, 0, 0);
}

/* Room for `bytes` more at a multiple of 64; the block's old contents move along. */
static bool data_room(struct tnp_make *m, uint64_t bytes)
{
	uint64_t need = (m->n_bytes + 63) / 64 * 64 + bytes, room = m->room_bytes ? m->room_bytes : 4096;
	uint8_t *block, *data;

	while (room < need)
		room *= 2;
	if (m->block && room == m->room_bytes)
		return true;
	block = mem_alloc(MEM_TOOL, room + 64);
	if (!block) {
		m->failed = true;
		return false;
	}
	data = block + (64 - (uintptr_t)block % 64) % 64;
	if (m->n_bytes)
		memcpy(data, m->data, m->n_bytes);
	mem_free(m->block);
	m->block = block;
	m->data = data;
	m->room_bytes = room;
	return true;
}

static struct tnp_tensor *weight_add(struct tnp_make *m, uint32_t type, int64_t d0, int64_t d1, int64_t d2)
{
	uint32_t i = tnp_make_tensor(m, type, d0, d1, d2, 0);
	struct tnp_tensor *t;

	if (m->failed)
		return NULL;
	t = (struct tnp_tensor *)m->tensors.v + i;
	t->buffer = 0;
	t->bytes = tnp_row_bytes(type, (uint64_t)t->dim[t->rank - 1]);
	for (uint32_t k = 0; k + 1 < t->rank; k++)
		t->bytes *= (uint64_t)t->dim[k];
	if (!data_room(m, t->bytes))
		return NULL;
	t->offset = (m->n_bytes + 63) / 64 * 64;
	m->n_bytes = t->offset + t->bytes;
	return t;
}

uint32_t tnp_make_weight(
	struct tnp_make *m, uint32_t type, const void *data, int64_t d0, int64_t d1, int64_t d2)
{
	struct tnp_tensor *t = weight_add(m, type, d0, d1, d2);

	if (!t)
		return 0;
	memcpy(m->data + t->offset, data, t->bytes);
	return m->tensors.n - 1;
}

uint32_t tnp_make_random(struct tnp_make *m, uint32_t type, double sd, int64_t d0, int64_t d1, int64_t d2)
{
	struct tnp_tensor *t = weight_add(m, type, d0, d1, d2);
	const struct stored *s = stored_find(type);

	if (!t)
		return 0;
	for (uint64_t at = 0; s && at < t->bytes; at += s->bytes)
		fill_block(s, sd, &m->seed, m->data + t->offset + at);
	return m->tensors.n - 1;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
uint32_t tnp_make_node(struct tnp_make *m, uint32_t op, const uint32_t *in, uint32_t n_in,
	const uint32_t *out, uint32_t n_out)
{
	struct tnp_node *n = push(m, &m->nodes, sizeof *n);

	if (!n)
		return 0;
	*n = (struct tnp_node){ .op = op,
		.in0 = m->edges.n,
		.n_in = n_in,
		.out0 = m->edges.n + n_in,
		.n_out = n_out,
		.attr0 = m->attrs.n };
	for (uint32_t i = 0; i < n_in; i++)
		push_u32(m, &m->edges, in[i]);
	for (uint32_t i = 0; i < n_out; i++)
		push_u32(m, &m->edges, out[i]);
	return m->nodes.n - 1;
}

static void attr_add(struct tnp_make *m, struct tnp_attr a)
{
	struct tnp_attr *to = m->nodes.n ? push(m, &m->attrs, sizeof *to) : NULL;

	if (!to)
		return;
	*to = a;
	((struct tnp_node *)m->nodes.v)[m->nodes.n - 1].n_attr++;
}

void tnp_make_int(struct tnp_make *m, uint32_t key, int64_t v)
{
	attr_add(m, (struct tnp_attr){ .key = key, .v.i = v });
}

void tnp_make_float(struct tnp_make *m, uint32_t key, double v)
{
	attr_add(m, (struct tnp_attr){ .key = key, .is_float = 1, .v.f = v });
}

void tnp_make_in(struct tnp_make *m, uint32_t tensor) { push_u32(m, &m->in, tensor); }
void tnp_make_out(struct tnp_make *m, uint32_t tensor) { push_u32(m, &m->out, tensor); }

const struct tnp_graph *tnp_make_graph(struct tnp_make *m)
{
	if (m->failed)
		return NULL;
	m->span = (struct tnp_span){ .data = m->data, .bytes = m->n_bytes, .fd = -1 };
	m->g = (struct tnp_graph){ .size = sizeof m->g,
		.opset = TNP_OPSET,
		.n_tensors = m->tensors.n,
		.n_nodes = m->nodes.n,
		.n_edges = m->edges.n,
		.n_attrs = m->attrs.n,
		.n_buffers = m->data ? 1 : 0,
		.n_in = m->in.n,
		.n_out = m->out.n,
		.tensors = m->tensors.v,
		.nodes = m->nodes.v,
		.attrs = m->attrs.v,
		.edges = m->edges.v,
		.buffers = &m->span,
		.in = m->in.v,
		.out = m->out.v };
	return &m->g;
}
