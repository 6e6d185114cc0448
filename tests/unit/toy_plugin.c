/* SPDX-License-Identifier: Apache-2.0
 * Toy plugin for test_plugins.c: one device that computes nothing, and misbehaves as host->config("do") says:
 * "WHAT:WHERE" with WHAT of crash, hang, exit, fail, lost, odd (a code that does not exist) and WHERE a function. The
 * build breaks one part each: TOY_NOSYM (no entry), TOY_REFUSE (speaks no common major), TOY_SHORT (old, short table),
 * TOY_HOLE (a required function is missing).
 */
#include <tenon/plugin.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct tnp_host *host;
static char device, model, pool;

static tnp_rc act(const char *where, struct tnp_error *e)
{
	const char *todo = host->config(host->ctx, "do");
	const char *colon = todo ? strchr(todo, ':') : NULL;

	if (!colon || strcmp(colon + 1, where))
		return TNP_OK;
	if (!strncmp(todo, "crash", 5))
		(void)raise(SIGSEGV);
	while (!strncmp(todo, "hang", 4))
		(void)pause();
	if (!strncmp(todo, "exit", 4))
		_exit(7);
	if (e)
		(void)snprintf(e->text, sizeof e->text, "told to fail in %s", where);
	return !strncmp(todo, "lost", 4) ? TNP_E_DEVICE : !strncmp(todo, "odd", 3) ? 77 : TNP_E_NOMEM;
}

static tnp_rc start(const struct tnp_host *h, struct tnp_error *e)
{
	host = h;
	h->log(h->ctx, 2, "toy", "started");
	return act("start", e);
}
static tnp_rc stop(struct tnp_error *e) { return act("stop", e); }
static tnp_rc dev_count(uint32_t *n, struct tnp_error *e)
{
	const char *devices = host->config(host->ctx, "devices");

	*n = devices ? (uint32_t)(devices[0] - '0') : 1;
	return act("dev_count", e);
}
static tnp_rc dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	const char *liar = host->config(host->ctx, "liar");

	(void)i;
	o->kind = TNP_OTHER;
	memset(o->name, 'n', sizeof o->name); /* not terminated on purpose */
	o->features = liar ? TNP_F_KV_IO : TNP_F_INVARIANT;
	return act("dev_info", e);
}
static tnp_rc dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	(void)i;
	*o = (struct tnp_dev *)(void *)&device;
	return act("dev_open", e);
}
static void dev_close(struct tnp_dev *d) { (void)d; }
static tnp_rc dev_memory(struct tnp_dev *d, uint64_t *n, struct tnp_error *e)
{
	(void)d;
	*n = 4096;
	return act("dev_memory", e);
}
static tnp_rc op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	(void)d;
	(void)rows;
	*n = 0;
	return act("op_caps", e);
}
static tnp_rc kv_caps(struct tnp_dev *d, uint64_t *types, uint32_t *lo, uint32_t *hi, struct tnp_error *e)
{
	(void)d;
	*types = TNP_TYPES(TNP_F16);
	*lo = 1;
	*hi = 64;
	return act("kv_caps", e);
}
static tnp_rc model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	(void)d;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		memset(&v[i], 'x', sizeof v[i]);
	return act("model_check", e);
}
static tnp_rc model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	(void)d;
	(void)g;
	(void)l;
	o->workspace = 1;
	return act("model_sizes", e);
}
static tnp_rc model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_graph other = *g;

	(void)d;
	(void)l;
	host->progress(host->ctx, g, 1, 2);
	host->progress(host->ctx, &other, 2, 2); /* nobody opens that */
	host->progress(host->ctx, g, 1, 0);
	host->progress(host->ctx, g, 9, 2); /* more than there is */
	*o = (struct tnp_model *)(void *)&model;
	return act("model_open", e);
}
static void model_close(struct tnp_model *m) { (void)m; }
static tnp_rc kv_open(
	struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	(void)m;
	(void)s;
	*o = (struct tnp_kv *)(void *)&pool;
	return act("kv_open", e);
}
static void kv_close(struct tnp_kv *k) { (void)k; }
static tnp_rc kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n, struct tnp_error *e)
{
	(void)k;
	(void)group;
	(void)from;
	(void)to;
	(void)n;
	return act("kv_copy", e);
}
static tnp_rc batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	struct tnp_error *e)
{
	(void)m;
	(void)k;
	(void)b;
	*ticket = 1;
	return act("batch", e);
}
static tnp_rc wait_done(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	(void)d;
	(void)ticket;
	(void)timeout_ns;
	return act("wait", e);
}

#ifndef TOY_NOSYM
const struct tnp_ops *tnp_entry(uint32_t want, uint32_t least);

__attribute__((visibility("default"))) const struct tnp_ops *tnp_entry(uint32_t want, uint32_t least)
{
	static struct tnp_ops ops = { .size = sizeof ops,
		.abi_major = 1,
		.name = "toy",
		.vendor = "tests",
		.version = "1",
		.start = start,
		.stop = stop,
		.dev_count = dev_count,
		.dev_info = dev_info,
		.dev_open = dev_open,
		.dev_close = dev_close,
		.dev_memory = dev_memory,
		.op_caps = op_caps,
		.kv_caps = kv_caps,
		.model_check = model_check,
		.model_sizes = model_sizes,
		.model_open = model_open,
		.model_close = model_close,
		.kv_open = kv_open,
		.kv_close = kv_close,
		.kv_copy = kv_copy,
		.batch = batch,
		.wait = wait_done };

#ifdef TOY_SHORT
	ops.size = offsetof(struct tnp_ops, wait);
#endif
#ifdef TOY_HOLE
	ops.kv_copy = NULL;
#endif
#ifdef TOY_REFUSE
	want = 0;
#endif
	return want >= 1 && least <= 1 ? &ops : NULL;
}
#else
const void *toy_table(void);
const void *toy_table(void)
{
	static const void *const all[] = { (const void *)start, (const void *)stop, (const void *)dev_count,
		(const void *)dev_info, (const void *)dev_open, (const void *)dev_close,
		(const void *)dev_memory, (const void *)op_caps, (const void *)kv_caps,
		(const void *)model_check, (const void *)model_sizes, (const void *)model_open,
		(const void *)model_close, (const void *)kv_open, (const void *)kv_close,
		(const void *)kv_copy, (const void *)batch, (const void *)wait_done };

	return all;
}
#endif
