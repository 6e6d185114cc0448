/* SPDX-License-Identifier: Apache-2.0
 * common_subexpressions: a node that is made like an earlier one gives way to it: same operator, inputs, attributes and
 * shapes. Constants with the same values become one first. ATTEND over pages writes and is left alone; a node whose result
 * leaves the graph stays, for no tensor leaves it twice.
 */
#include "engine/pass_edit.h"
#include <string.h>

struct seen {
	uint64_t *hash;	 /* [slots]; 0: free */
	uint32_t *index; /* node or tensor */
	uint32_t slots;	 /* a power of two, more than twice of what comes in */
};

static bool seen_open(struct seen *s, struct pass_edit *x, uint32_t n)
{
	s->slots = 64;
	while (s->slots < 2 * n + 2)
		s->slots *= 2;
	s->hash = mem_zalloc(MEM_ENGINE, s->slots, sizeof *s->hash);
	s->index = mem_zalloc(MEM_ENGINE, s->slots, sizeof *s->index);
	if (s->hash && s->index)
		return true;
	graph_fail(x->g, TENON_E_NOMEM, "graph: no memory for the passes");
	return false;
}

static void seen_close(struct seen *s)
{
	mem_free(s->hash);
	mem_free(s->index);
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* The place of an equal one, or of the new one after it was entered (*fresh). */
static uint32_t seen_find(struct seen *s, uint64_t hash, uint32_t index, struct pass_edit *x,
	bool (*equal)(struct pass_edit *x, uint32_t a, uint32_t b), bool *fresh)
{
	uint64_t at;

	hash |= 1;
	for (at = hash >> 7 & (s->slots - 1); s->hash[at]; at = (at + 1) & (s->slots - 1))
		if (s->hash[at] == hash && equal(x, s->index[at], index)) {
			*fresh = false;
			return s->index[at];
		}
	s->hash[at] = hash;
	s->index[at] = index;
	*fresh = true;
	return index;
}

/* ---- constants ------------------------------------------------------------------------------------------------------- */

static const char *constant_data(const struct pass_edit *x, graph_tensor t)
{
	return (const char *)x->g->constants + pass_tensor(x, t)->offset;
}

static bool constants_equal(struct pass_edit *x, uint32_t a, uint32_t b)
{
	return pass_same_shape(x, a, b) &&
		!memcmp(constant_data(x, a), constant_data(x, b), pass_tensor(x, a)->bytes);
}

static void join_constants(struct pass_edit *x)
{
	struct seen s = { 0 };
	bool open = seen_open(&s, x, x->n_known), fresh;

	for (uint32_t t = 0; open && t < x->n_known; t++) {
		uint32_t first;

		if (pass_tensor(x, t)->buffer != 1 || x->same[t] != t || !x->uses[t])
			continue;
		first = seen_find(&s, mix(1, constant_data(x, t), pass_tensor(x, t)->bytes), t, x,
			constants_equal, &fresh);
		if (!fresh)
			pass_stand_in(x, t, first);
	}
	seen_close(&s);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------- */

static bool attrs_equal(const struct pass_node *a, const struct pass_node *b)
{
	for (uint32_t i = 0; i < a->n_attr; i++) {
		const struct tnp_attr *q = pass_attr(b, a->attr[i].key);

		if (!q || q->is_float != a->attr[i].is_float || q->v.i != a->attr[i].v.i)
			return false;
	}
	return a->n_attr == b->n_attr;
}

static bool nodes_equal(struct pass_edit *x, uint32_t i, uint32_t j)
{
	struct pass_node a, b;

	if (!pass_get(x, i, &a) || !pass_get(x, j, &b) || a.op != b.op || a.n_act != b.n_act ||
		a.n_weight != b.n_weight || a.n_out != b.n_out || !attrs_equal(&a, &b))
		return false;
	for (uint32_t k = 0; k < a.n_out; k++)
		if (!pass_same_shape(x, a.out[k], b.out[k]))
			return false;
	return !memcmp(a.act, b.act, a.n_act * sizeof *a.act) &&
		!memcmp(a.weight, b.weight, a.n_weight * sizeof *a.weight);
}

static uint64_t node_hash(const struct pass_node *n)
{
	uint64_t h = mix(n->op, n->act, n->n_act * sizeof *n->act);

	return mix(h, n->weight, n->n_weight * sizeof *n->weight);
}

static void look(struct pass_edit *x, uint32_t i, struct seen *s)
{
	struct pass_node n, first;
	uint32_t earlier;
	bool fresh;

	if (!pass_get(x, i, &n) || (n.op == TNP_OP_ATTEND && pass_int(&n, TNP_A_CAUSAL, 1)))
		return;
	for (uint32_t k = 0; k < n.n_out; k++)
		if (pass_is_out(x, n.out[k]))
			return;
	earlier = seen_find(s, node_hash(&n), i, x, nodes_equal, &fresh);
	if (fresh || !pass_get(x, earlier, &first))
		return;
	for (uint32_t k = 0; k < n.n_out; k++)
		pass_stand_in(x, n.out[k], first.out[k]);
	pass_drop(x, i);
}

void pass_common_subexpressions(struct pass_edit *x)
{
	struct seen s = { 0 };
	bool open;

	join_constants(x);
	open = seen_open(&s, x, x->g->g.n_nodes);
	for (uint32_t i = 0; open && i < x->g->g.n_nodes && !x->g->e.code; i++)
		look(x, i, &s);
	seen_close(&s);
}
