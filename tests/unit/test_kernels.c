/* SPDX-License-Identifier: Apache-2.0
 * Row, element and attention kernels of every instruction set that this machine has: values against the plain C ones
 * and sums in double, equal bits wherever a slice begins, pages in place against widened tiles.
 */
#include "tests/unit/unit.h"
#include "plugins/cpu/attn.h"
#include "plugins/cpu/elem.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct variant {
	const char *isa;
	const struct elem_ops *elem;
	const struct attn_ops *attn;
} variants[] = {
	{ "baseline", &elem_base, &attn_base },
#if defined(__x86_64__)
	{ "avx2", &elem_avx2, &attn_avx2 },
#elif defined(__aarch64__)
	{ "neon", &elem_neon, &attn_neon },
#endif
};

static bool runs(const struct variant *v)
{
#if defined(__x86_64__)
	return strcmp(v->isa, "avx2") != 0 ||
		(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#else
	return v->isa;
#endif
}

static uint64_t seed = 88172645463325252u;

static float rng(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void fill(float *x, size_t n, float by)
{
	for (size_t i = 0; i < n; i++)
		x[i] = rng() * by;
}

static void near(
	const char *isa, const char *what, const float *got, const float *want, size_t n, double within)
{
	double most = 1e-3;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - (double)want[i]) <= within * most))
			fail_msg("%s %s [%zu of %zu]: %.9g, want %.9g", isa, what, i, n, (double)got[i],
				(double)want[i]);
}

/* ---- rows and elements ---- */

enum { LONGEST = 131 };

struct rows {
	float a[LONGEST], b[LONGEST], w[LONGEST], bias[LONGEST], y[LONGEST];
};

enum {
	RMSNORM,
	LAYERNORM,
	LAYERNORM_PLAIN,
	L2NORM,
	FIRST_ELEMENT,
	ADD = FIRST_ELEMENT,
	MUL,
	SCALE,
	AXPY,
	SOFTCAP,
	ACT,
	N_OPS = ACT + 5,
	GLU = N_OPS,
	ALL_OPS = GLU + 5
};
static const uint32_t acts[] = { TNP_ACT_SILU, TNP_ACT_GELU_TANH, TNP_ACT_GELU_ERF, TNP_ACT_RELU, 1000 };

/* Operator `op` over elements [from, from + n). */
static void op_run(const struct elem_ops *e, int op, struct rows *r, size_t from, size_t n)
{
	const float *a = r->a + from, *b = r->b + from, *w = r->w + from;
	float *y = r->y + from;

	if (op >= GLU)
		e->glu(acts[op - GLU], a, b, n, y);
	else if (op >= ACT)
		e->act(acts[op - ACT], a, n, y);
	else if (op == RMSNORM)
		e->rmsnorm(a, w, 1e-5f, n, y);
	else if (op == LAYERNORM || op == LAYERNORM_PLAIN)
		e->layernorm(a, w, op == LAYERNORM ? r->bias + from : NULL, 1e-5f, n, y);
	else if (op == L2NORM)
		e->l2norm(a, 1e-6f, n, y);
	else if (op == ADD)
		e->add(a, b, n, y);
	else if (op == MUL)
		e->mul(a, b, n, y);
	else if (op == SCALE)
		e->scale(a, 0.37f, n, y);
	else if (op == AXPY)
		e->axpy(a, 0.37f, n, y);
	else
		e->softcap(a, 30.0f, n, y);
}

static void rows_make(struct rows *r, float by)
{
	fill(r->a, LONGEST, by);
	fill(r->b, LONGEST, 1);
	fill(r->w, LONGEST, 1);
	fill(r->bias, LONGEST, 1);
	fill(r->y, LONGEST, 1);
}

static void elements_are_right(void **st)
{
	static const float sizes[] = { 0.01f, 1, 8, 90 };
	struct rows want, got;

	(void)st;
	for (size_t v = 1; v < COUNT(variants) && runs(&variants[v]); v++)
		for (int op = 0; op < ALL_OPS; op++)
			for (size_t n = 1; n <= LONGEST; n += n < 40 ? 1 : 13) {
				char name[16];

				(void)snprintf(name, sizeof name, "op %d", op);
				rows_make(&want, sizes[n % COUNT(sizes)]);
				got = want;
				op_run(&elem_base, op, &want, 0, n);
				op_run(variants[v].elem, op, &got, 0, n);
				near(variants[v].isa, name, got.y, want.y, n, 2e-6);
				for (size_t i = n; i < LONGEST; i++)
					assert_true(got.y[i] == want.y[i]);
			}
}

/* An element's bits depend neither on its place nor on whether the result lies on its argument. */
static void elements_do_not_depend_on_their_place(void **st)
{
	struct rows whole, part;

	(void)st;
	for (size_t v = 0; v < COUNT(variants) && runs(&variants[v]); v++)
		for (int op = FIRST_ELEMENT; op < ALL_OPS; op++)
			for (size_t cut = 1; cut < 20; cut++) {
				rows_make(&whole, 5);
				part = whole;
				op_run(variants[v].elem, op, &whole, 0, LONGEST);
				op_run(variants[v].elem, op, &part, 0, cut);
				op_run(variants[v].elem, op, &part, cut, LONGEST - cut);
				assert_memory_equal(whole.y, part.y, sizeof whole.y);
			}
}

static void odd_numbers_are_kept(void **st)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 0.0f, -0.0f };

	(void)st;
	for (size_t v = 0; v < COUNT(variants) && runs(&variants[v]); v++)
		for (size_t a = 0; a < COUNT(acts); a++) {
			float y[COUNT(odd)];

			variants[v].elem->act(acts[a], odd, COUNT(odd), y);
			assert_true(isnan(y[0]));
			assert_true(y[1] == INFINITY && y[3] == 1e30f);
			assert_true(y[5] == 0 && y[6] == 0);
			if (a < 4)
				assert_true(!(y[4] > 0) && y[4] > -1e30f);
		}
}

static void rotation_is_right(void **st)
{
	static const uint32_t shapes[][2] = { { 64, 64 }, { 32, 80 }, { 6, 10 }, { 20, 20 }, { 128, 128 } };
	float x[128], cs[128], want[128], got[128];

	(void)st;
	for (size_t v = 1; v < COUNT(variants) && runs(&variants[v]); v++)
		for (size_t s = 0; s < COUNT(shapes); s++)
			for (int pairs = 0; pairs < 2; pairs++) {
				const uint32_t mode = pairs ? TNP_ROPE_PAIRS : TNP_ROPE_HALVES;
				const size_t bytes = shapes[s][1] * sizeof *got;

				fill(x, 128, 3);
				fill(cs, 128, 1);
				elem_base.rope(x, cs, mode, shapes[s][0], shapes[s][1], want);
				variants[v].elem->rope(x, cs, mode, shapes[s][0], shapes[s][1], got);
				near(variants[v].isa, "rope", got, want, shapes[s][1], 1e-6);
				memcpy(want, got, bytes);
				memcpy(got, x, bytes);
				variants[v].elem->rope(got, cs, mode, shapes[s][0], shapes[s][1], got);
				assert_memory_equal(got, want, bytes);
			}
}

/* ---- attention ---- */

enum { KEYS = 96, MAX_DIM = 128 };

struct world {
	struct attn_shape s;
	size_t head_bytes;
	uint8_t *pages;
	float *tile;
	float k[KEYS][MAX_DIM], v[KEYS][MAX_DIM], q[ATTN_ROWS * MAX_DIM];
	int32_t lo[ATTN_ROWS], hi[ATTN_ROWS];
};

static void *take(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

	assert_non_null(p);
	memset(p, 0, bytes);
	return p;
}

static void world_make(
	struct world *w, const struct attn_ops *ops, uint32_t type, uint32_t dim, uint32_t page, float cap)
{
	w->s = (struct attn_shape){ .type = type,
		.dim = dim,
		.pad = attn_pad(dim),
		.page = page,
		.heads = 3,
		.kv_heads = 1,
		.group = 3,
		.scale = 1,
		.cap = cap };
	w->head_bytes = attn_head_bytes(type, dim, page);
	w->pages = take(KEYS / page * w->head_bytes);
	w->tile = take(attn_wide_floats(w->s.pad) * sizeof *w->tile);
	memset(w->q, 0, sizeof w->q);
	for (uint32_t i = 0; i < KEYS; i++) {
		fill(w->k[i], dim, 1);
		fill(w->v[i], dim, 2);
		ops->store(&w->s, w->pages + i / page * w->head_bytes, i % page, w->k[i], w->v[i]);
	}
	for (uint32_t r = 0; r < ATTN_ROWS; r++)
		fill(w->q + r * w->s.pad, dim, 0.7f);
}

static void world_free(struct world *w)
{
	free(w->pages);
	free(w->tile);
}

static void halves_of(const struct world *w, uint32_t key, struct attn_half half[4])
{
	for (uint32_t h = 0; h < 4; h++, key += ATTN_HALF) {
		const uint32_t at = key < KEYS ? key : 0;

		half[h].head = w->pages + at / w->s.page * w->head_bytes;
		half[h].token = at % w->s.page;
	}
}

/* The stored keys and values as numbers, from plain C. */
static void stored(struct world *w)
{
	for (uint32_t key = 0; key < KEYS; key += ATTN_TILE) {
		const float *values = w->tile + (size_t)ATTN_TILE * w->s.pad;
		struct attn_half half[4];

		halves_of(w, key, half);
		attn_base.widen(&w->s, half, w->tile);
		for (uint32_t t = 0; t < ATTN_TILE; t++)
			for (uint32_t d = 0; d < w->s.dim; d++) {
				w->k[key + t][d] = w->tile[(size_t)d * ATTN_TILE + t];
				w->v[key + t][d] = values[(size_t)t * w->s.pad + d];
			}
	}
}

static void want_row(const struct world *w, uint32_t r, float *out)
{
	double score[KEYS], top = -1e300, sum = 0, o[MAX_DIM] = { 0 };

	for (int32_t i = w->lo[r]; i < w->hi[r]; i++) {
		score[i] = 0;
		for (uint32_t d = 0; d < w->s.dim; d++)
			score[i] += (double)w->q[r * w->s.pad + d] * (double)w->k[i][d];
		if (w->s.cap > 0)
			score[i] = (double)w->s.cap * tanh(score[i]);
		top = fmax(top, score[i]);
	}
	for (int32_t i = w->lo[r]; i < w->hi[r]; i++) {
		const double p = exp2(score[i] - top);

		sum += p;
		for (uint32_t d = 0; d < w->s.dim; d++)
			o[d] += p * (double)w->v[i][d];
	}
	for (uint32_t d = 0; d < w->s.dim; d++)
		out[d] = (float)(o[d] / sum);
}

static int32_t clip(int32_t at, uint32_t key)
{
	at -= (int32_t)key;
	return at < 0 ? 0 : at > ATTN_TILE ? ATTN_TILE : at;
}

/* out[n][dim]; tiles before key `cut` form a segment of their own. */
static void attend(
	struct world *w, const struct attn_ops *ops, uint32_t n, bool paged, uint32_t cut, float *out)
{
	const size_t stride = attn_state_floats(w->s.pad);
	float *state = take(2 * ATTN_ROWS * stride * sizeof *state), *seg = state;

	for (uint32_t r = 0; r < 2 * n; r++)
		attn_state_init(state + r * stride, w->s.pad);
	for (uint32_t key = 0; key < KEYS; key += ATTN_TILE) {
		struct attn_half half[4];
		int32_t lo[ATTN_ROWS], hi[ATTN_ROWS];

		seg = state + (key >= cut ? n * stride : 0);
		for (uint32_t r = 0; r < n; r++) {
			lo[r] = clip(w->lo[r], key);
			hi[r] = clip(w->hi[r], key);
		}
		halves_of(w, key, half);
		if (paged) {
			ops->tile_page(&w->s, half, n, w->q, lo, hi, seg, stride);
			continue;
		}
		ops->widen(&w->s, half, w->tile);
		ops->tile_wide(&w->s, w->tile, n, w->q, lo, hi, seg, stride);
	}
	for (uint32_t r = 0; r < n; r++) {
		ops->merge(w->s.pad, state + (n + r) * stride, state + r * stride);
		ops->finish(w->s.dim, state + r * stride, out + r * w->s.dim);
	}
	free(state);
}

static void one_attention(const struct variant *v, uint32_t type, uint32_t dim, uint32_t page, float cap)
{
	static const int32_t spans[][2] = { { 0, KEYS }, { 37, 90 }, { 0, 5 }, { 70, 71 } };
	static float got[ATTN_ROWS * MAX_DIM], page_got[ATTN_ROWS * MAX_DIM], want[MAX_DIM];
	static struct world w;

	world_make(&w, v->attn, type, dim, page, cap);
	stored(&w);
	for (uint32_t n = 1; n <= ATTN_ROWS; n++)
		for (uint32_t first = 0; first < COUNT(spans); first++) {
			for (uint32_t r = 0; r < n; r++) {
				w.lo[r] = spans[(first + r) % COUNT(spans)][0];
				w.hi[r] = spans[(first + r) % COUNT(spans)][1];
			}
			attend(&w, v->attn, n, false, 64, got);
			for (uint32_t r = 0; r < n; r++) {
				want_row(&w, r, want);
				near(v->isa, "attention", got + r * dim, want, dim, 2e-5);
			}
			if (!v->attn->tile_page)
				continue;
			attend(&w, v->attn, n, true, 64, page_got);
			assert_memory_equal(got, page_got, n * dim * sizeof *got);
		}
	world_free(&w);
}

static void attention_is_right(void **st)
{
	static const uint32_t types[] = { TNP_F32, TNP_F16, TNP_Q8_0, TNP_Q4_0 };
	static const uint32_t dims[] = { 64, 128, 20, 72 };

	(void)st;
	for (size_t v = 0; v < COUNT(variants) && runs(&variants[v]); v++)
		for (size_t t = 0; t < COUNT(types); t++)
			for (size_t d = 0; d < COUNT(dims); d++)
				for (int cap = 0; cap < 2; cap++)
					one_attention(&variants[v], types[t], dims[d], d % 2 ? 48 : 32,
						cap ? 3.0f : 0.0f);
}

/* Rows of this step that are not stored yet, read through gather. */
static void gathered_rows_are_right(void **st)
{
	static float got[MAX_DIM], want[MAX_DIM];
	static struct world w;

	(void)st;
	for (size_t v = 0; v < COUNT(variants) && runs(&variants[v]); v++)
		for (uint32_t n = 1; n <= ATTN_TILE; n += 7) {
			const struct attn_ops *ops = variants[v].attn;
			const int32_t lo = 0, hi = (int32_t)n;
			float state[ATTN_STATE_HEAD + MAX_DIM];

			world_make(&w, ops, n % 2 ? TNP_Q8_0 : TNP_F16, 40, 32, 0);
			w.lo[0] = lo;
			w.hi[0] = hi;
			attn_state_init(state, w.s.pad);
			ops->gather(&w.s, w.k[0], w.v[0], MAX_DIM, MAX_DIM, n, w.tile);
			ops->tile_wide(&w.s, w.tile, 1, w.q, &lo, &hi, state, sizeof state / sizeof *state);
			ops->finish(w.s.dim, state, got);
			want_row(&w, 0, want);
			near(variants[v].isa, "gathered", got, want, w.s.dim, 2e-5);
			world_free(&w);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_are_right),
		cmocka_unit_test(elements_do_not_depend_on_their_place),
		cmocka_unit_test(odd_numbers_are_kept),
		cmocka_unit_test(rotation_is_right),
		cmocka_unit_test(attention_is_right),
		cmocka_unit_test(gathered_rows_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
