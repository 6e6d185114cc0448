/* SPDX-License-Identifier: Apache-2.0
 * Makes graphs of plugin.h by hand, for tests and for plugin-conform: tensors, nodes, attributes, and weights
 * of any stored type with random contents. Calls after a failed allocation do nothing; tnp_make_graph is then
 * NULL. Any thread, one at a time.
 *
 *     uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 64), w = tnp_make_random(m, TNP_Q4_1, 1.0, 128, 64, 0);
 *     uint32_t y = tnp_make_rows(m, TNP_N_TOKENS, 128);
 *     tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, w), TNP_LIST(y));
 *     tnp_make_int(m, TNP_A_ACT, TNP_ACT_SILU);
 *     tnp_make_in(m, x), tnp_make_out(m, y);
 */
#ifndef TESTS_TNP_MAKE_H
#define TESTS_TNP_MAKE_H
#include <tenon/plugin.h>

struct tnp_make;
struct tnp_make *tnp_make_create(uint64_t seed); /* NULL: no memory */
void tnp_make_destroy(struct tnp_make *m);

/* Activations: indices of tensors. A dimension is positive or TNP_N_*; 0 ends the list. */
uint32_t tnp_make_tensor(struct tnp_make *m, uint32_t type, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
uint32_t tnp_make_rows(struct tnp_make *m, int64_t rows, int64_t width); /* F32 [rows][width] */

/* Weights, [d0][d1][d2], 0 ends the list. Data is copied, each weight into 64-byte aligned memory of its own
 * place in buffer 0. Random ones have about the given standard deviation. */
uint32_t tnp_make_weight(
	struct tnp_make *m, uint32_t type, const void *data, int64_t d0, int64_t d1, int64_t d2);
uint32_t tnp_make_random(struct tnp_make *m, uint32_t type, double sd, int64_t d0, int64_t d1, int64_t d2);

/* The next node; attributes go to the node made last. */
#define TNP_LIST(...)                                                                                        \
	(const uint32_t[]){ __VA_ARGS__ },                                                                   \
		(uint32_t)(sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))
uint32_t tnp_make_node(struct tnp_make *m, uint32_t op, const uint32_t *in, uint32_t n_in,
	const uint32_t *out, uint32_t n_out);
void tnp_make_int(struct tnp_make *m, uint32_t key, int64_t v);
void tnp_make_float(struct tnp_make *m, uint32_t key, double v);

void tnp_make_in(struct tnp_make *m, uint32_t tensor);
void tnp_make_out(struct tnp_make *m, uint32_t tensor);

/* Valid until the next tnp_make_ call on m. NULL after a failed allocation. */
const struct tnp_graph *tnp_make_graph(struct tnp_make *m);

/* Bytes of n elements of a row; 0 for an unknown type or a broken block. */
uint64_t tnp_row_bytes(uint32_t type, uint64_t n);

/* Counter-free generator for tests: the next number in [0, 2^64), in [0, 1), about normal. */
uint64_t tnp_rand(uint64_t *state);
double tnp_rand_unit(uint64_t *state);
double tnp_rand_normal(uint64_t *state);
#endif
