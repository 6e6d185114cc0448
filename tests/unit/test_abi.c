/* SPDX-License-Identifier: Apache-2.0
 * ABI 1.0 stays what it was. The layout is compared with the list frozen in tests/abi/1.0, once for the current header
 * (this file) and once for the frozen copy of that release (abi_frozen.c); a toy plugin built against the frozen copy
 * is loaded and run by today's host.
 */
#include "tests/unit/unit.h"
#include "plugins/plugins.h"
#include "tests/unit/tnp_make.h"
#include <string.h>

struct layout {
	const char *name, *member;
	size_t offset, bytes;
};

static const struct layout released[] = {
#define S(s, bytes)	    { #s, NULL, 0, bytes },
#define M(s, m, off, bytes) { #s, #m, off, bytes },
#include "tests/abi/1.0/layout.def"
#undef S
#undef M
};

static const struct layout current[] = {
#define S(s, bytes)	    { #s, NULL, 0, sizeof(struct s) },
#define M(s, m, off, bytes) { #s, #m, offsetof(struct s, m), sizeof(((struct s *)NULL)->m) },
#include "tests/abi/1.0/layout.def"
#undef S
#undef M
};

extern const size_t abi_frozen[]; /* the same from the frozen header: offset and bytes of each line */
extern const size_t abi_frozen_lines;

/* Structs with a size member may grow; elements of arrays may not. */
static bool may_grow(size_t line)
{
	return line + 1 < COUNT_OF(released) && !strcmp(released[line + 1].member, "size");
}

static void layout_is_kept(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(released); i++) {
		const struct layout *a = &released[i], *b = &current[i];

		if (a->member || !may_grow(i) ? a->bytes != b->bytes : b->bytes < a->bytes)
			fail_msg("%s.%s: %zu bytes, were %zu", a->name, a->member ? a->member : "", b->bytes,
				a->bytes);
		if (a->offset != b->offset)
			fail_msg("%s.%s: at %zu, was at %zu", a->name, a->member, b->offset, a->offset);
	}
}

static void frozen_header_fits(void **state)
{
	(void)state;
	assert_int_equal(abi_frozen_lines, COUNT_OF(released));
	for (size_t i = 0; i < COUNT_OF(released); i++) {
		assert_int_equal(abi_frozen[2 * i], released[i].offset);
		assert_int_equal(abi_frozen[2 * i + 1], released[i].bytes);
	}
}

/* No holes and no member left out of the list: each begins where the one before it ends, the last ends the struct. */
static void members_are_contiguous(void **state)
{
	size_t at = 0, total = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(released); i++) {
		const struct layout *a = &released[i];

		if (!a->member) {
			assert_int_equal(at, total);
			total = a->bytes;
			at = 0;
			continue;
		}
		if (a->offset != at)
			fail_msg("%s.%s: %zu bytes before it have no name", a->name, a->member,
				a->offset - at);
		at += a->bytes;
	}
	assert_int_equal(at, total);
}

/* Rule R2: what crosses as a whole starts with its size; elements of arrays do not have one. */
static void shared_structs_start_with_size(void **state)
{
	static const char *const shared[] = { "tnp_error", "tnp_host", "tnp_device", "tnp_graph",
		"tnp_limits", "tnp_sizes", "tnp_kv_spec", "tnp_batch", "tnp_ops" };
	size_t found = 0;

	(void)state;
	for (size_t i = 0; i + 1 < COUNT_OF(released); i++)
		for (size_t k = 0; !released[i].member && k < COUNT_OF(shared); k++)
			if (!strcmp(released[i].name, shared[k])) {
				assert_string_equal(released[i + 1].member, "size");
				found++;
			}
	assert_int_equal(found, COUNT_OF(shared));
}

/* ---- the toy of 1.0 under today's host ------------------------------------------------------------------------ */
static void toy_graph(struct tnp_make *m)
{
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 4), y = tnp_make_rows(m, TNP_N_TOKENS, 4);

	tnp_make_node(m, TNP_OP_SCALE, TNP_LIST(x), TNP_LIST(y));
	tnp_make_float(m, TNP_A_SCALE, -2);
	tnp_make_in(m, x);
	tnp_make_out(m, y);
}

static void toy_step(struct backend *b, const struct tnp_graph *g, struct error *e)
{
	const struct tnp_limits lim = { .size = sizeof lim, .max_tokens = 8, .max_seqs = 2, .max_out = 8 };
	const float in[8] = { 1, 2, 3, 4, -1, 0, 0.5f, 8 };
	const uint32_t tok0[2] = { 0, 2 }, past[1] = { 0 };
	const int32_t pos[2] = { 0, 1 };
	float out[8];
	tnp_rc rc = TNP_E_INTERNAL;
	struct tnp_rows rows = { out, 4 };
	struct tnp_batch batch = { .size = sizeof batch,
		.n_seqs = 1,
		.n_tokens = 2,
		.pos = pos,
		.tok0 = tok0,
		.past = past,
		.in = in,
		.out = &rows,
		.seq_rc = &rc };
	struct tnp_verdict v = { 0 };
	struct backend_model *m;

	assert_int_equal(backend_model_check(b, g, &v, e), TENON_OK);
	assert_int_equal(v.ok, 1);
	if (backend_model_open(b, g, &lim, NULL, &m, e) || backend_batch(m, &batch, e))
		fail_msg("%s", e->text);
	assert_int_equal(rc, TNP_OK);
	for (int i = 0; i < 8; i++)
		assert_true(out[i] == -2 * in[i]);
	backend_model_close(m);
}

static void old_plugin_runs(void **state)
{
	const char *build = getenv("TENON_BUILDDIR");
	struct tnp_make *make = tnp_make_create(1);
	struct error e = { 0 };
	char dir[4096];
	const char *dirs[1] = { dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1 };
	struct plugins *p;
	struct backend *b;

	(void)state;
	(void)snprintf(dir, sizeof dir, "%s/tests/abi/1.0/stage", build ? build : ".");
	if (plugins_open(&c, &p, &e) || backend_open(p, "toy10", 0, &b, &e))
		fail_msg("%s", e.text);
	toy_graph(make);
	toy_step(b, tnp_make_graph(make), &e);
	backend_close(b);
	plugins_close(p);
	tnp_make_destroy(make);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout_is_kept),
		cmocka_unit_test(frozen_header_fits),
		cmocka_unit_test(members_are_contiguous),
		cmocka_unit_test(shared_structs_start_with_size),
		cmocka_unit_test(old_plugin_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
