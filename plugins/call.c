/* SPDX-License-Identifier: Apache-2.0
 * The dispatcher: every call to a plugin goes through here. It tests size, feature bit and presence of optional
 * functions, maps codes, ends every text, and remembers a lost device (only a fresh process helps then). One device
 * is called from one thread at a time (rule R7); that thread owns the struct backend.
 */
#include "plugins/plugins_priv.h"
#include <string.h>
#include <unistd.h>

enum { WAIT_SLICE_MS = 1000 };

struct backend {
	struct plugin *plugin;
	const struct tnp_ops *ops;
	struct tnp_dev *dev;
	struct tnp_device info;
	bool lost;
};

struct backend_model {
	struct backend *b;
	struct tnp_model *m;
	struct tnp_kv *kv;
};

static const struct {
	tnp_rc rc;
	int code;
	const char *text;
} codes[] = {
	{ TNP_OK, TENON_OK, "" },
	{ TNP_E_INVALID, TENON_E_INTERNAL, "was asked something outside the contract" },
	{ TNP_E_UNSUPPORTED, TENON_E_UNSUPPORTED, "cannot do this" },
	{ TNP_E_NOMEM, TENON_E_NOMEM, "has no memory for this now" },
	{ TNP_E_BUSY, TENON_E_BUSY, "has too many steps in flight" },
	{ TNP_E_CANCELLED, TENON_E_CANCELLED, "was told to stop" },
	{ TNP_E_TIMEOUT, TENON_E_TIMEOUT, "took too long" },
	{ TNP_E_DEVICE, TENON_E_BACKEND, "lost its device; the worker must be replaced" },
	{ TNP_E_INTERNAL, TENON_E_INTERNAL, "failed inside" },
};

int plugin_error(const char *name, const char *what, tnp_rc rc, struct tnp_error *te, struct error *e)
{
	size_t i = 0;

	if (rc == TNP_OK)
		return TENON_OK;
	while (i < COUNT_OF(codes) && codes[i].rc != rc)
		i++;
	te->text[sizeof te->text - 1] = 0;
	if (i == COUNT_OF(codes))
		return error_set(e, TENON_E_BACKEND, "backend %s: %s: answered with code %d, which is none",
			name, what, (int)rc);
	return error_set(
		e, codes[i].code, "backend %s: %s: %s", name, what, te->text[0] ? te->text : codes[i].text);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static struct plugin *choose(struct plugins *list, const char *name, struct error *e)
{
	struct plugin *best = NULL;

	for (size_t i = 0; i < list->n; i++) {
		struct plugin *p = list->list[i];
		bool fit = p->info.state == PLUGIN_LISTED || p->info.state == PLUGIN_USABLE;

		if (name && !strcmp(p->info.name, name)) {
			if (fit)
				return p;
			(void)error_set(e,
				p->info.state == PLUGIN_QUARANTINED ? TENON_E_BACKEND : TENON_E_UNSUPPORTED,
				"backend '%s': %s", name, p->info.reason);
			return NULL;
		}
		if (!name && fit && p->manifest.rank > 0 && (!best || p->manifest.rank > best->manifest.rank))
			best = p;
	}
	if (!best && name)
		(void)error_set(e, TENON_E_NOT_FOUND,
			"backend '%.40s': no such plugin; 'tenonctl backends' lists them", name);
	else if (!best)
		(void)error_set(e, TENON_E_NOT_FOUND,
			"backend: no usable plugin in %.160s; install one or set TENON_PLUGINS",
			list->config.n_dirs ? list->config.dirs[0] : "any folder");
	return best;
}

static int load(struct plugin *p, struct error *e)
{
	uint8_t object[32];
	int fd, rc;

	if (p->loaded)
		return TENON_OK;
	rc = plugin_open_object(p, &fd, object, e);
	if (rc)
		return rc;
	rc = module_load(&p->module, fd, p->info.name, e);
	(void)close(fd);
	p->loaded = !rc;
	return rc;
}

static int open_device(struct backend *b, uint32_t device, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	struct module *m = &b->plugin->module;
	uint32_t n = 0;
	int rc = module_devices(m, &n, e);

	if (!rc && device >= n)
		rc = error_set(e, TENON_E_NOT_FOUND, "backend %s: device %u: there are %u",
			b->plugin->info.name, device, n);
	if (!rc)
		rc = module_device(m, device, &b->info, e);
	if (!rc)
		rc = plugin_error(
			b->plugin->info.name, "dev_open", m->ops.dev_open(device, &b->dev, &te), &te, e);
	if (!rc && !b->dev)
		rc = error_set(
			e, TENON_E_BACKEND, "backend %s: dev_open: gave no device", b->plugin->info.name);
	return rc;
}

int backend_open(
	struct plugins *list, const char *name, uint32_t device, struct backend **out, struct error *e)
{
	struct plugin *p = choose(list, name, e);
	struct backend *b;
	int rc;

	if (!p)
		return e ? e->code : TENON_E_NOT_FOUND;
	rc = load(p, e);
	if (!rc && !p->module.started)
		rc = module_start(&p->module, &p->host, e);
	if (rc)
		return rc;
	b = mem_zalloc(MEM_PLUGIN, 1, sizeof *b);
	if (!b)
		rc = error_set(e, TENON_E_NOMEM, "backend %s: no memory", p->info.name);
	if (b) {
		b->plugin = p;
		b->ops = &p->module.ops;
		p->module.n_open++;
		rc = open_device(b, device, e);
	}
	if (!rc)
		*out = b;
	else if (b)
		backend_close(b);
	else if (!p->module.n_open)
		module_stop(&p->module);
	return rc;
}

void backend_close(struct backend *b)
{
	if (!b)
		return;
	if (b->dev)
		b->ops->dev_close(b->dev);
	if (!--b->plugin->module.n_open)
		module_stop(&b->plugin->module);
	mem_free(b);
}

const char *backend_name(const struct backend *b) { return b->plugin->info.name; }
const struct tnp_device *backend_device(const struct backend *b) { return &b->info; }
bool backend_has(const struct backend *b, uint64_t feature)
{
	return (b->info.features & feature) == feature;
}

void backend_stop_slow_calls(struct backend *b)
{
	atomic_store_explicit(&b->plugin->host.stopping, 1, memory_order_relaxed);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static int lost(const struct backend *b, struct error *e)
{
	return error_set(e, TENON_E_BACKEND, "backend %s: its device is lost; the worker must be replaced",
		b->plugin->info.name);
}

static int done(struct backend *b, const char *what, tnp_rc rc, struct tnp_error *te, struct error *e)
{
	if (rc == TNP_E_DEVICE)
		b->lost = true;
	return plugin_error(b->plugin->info.name, what, rc, te, e);
}

static int missing(const struct backend *b, const char *what, struct error *e)
{
	return error_set(e, TENON_E_UNSUPPORTED, "backend %s: has no %s", b->plugin->info.name, what);
}

int backend_memory(struct backend *b, uint64_t *free_bytes, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	return b->lost ? lost(b, e)
		       : done(b, "dev_memory", b->ops->dev_memory(b->dev, free_bytes, &te), &te, e);
}

int backend_op_caps(struct backend *b, struct tnp_op_cap *rows, uint32_t *n, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	return b->lost ? lost(b, e) : done(b, "op_caps", b->ops->op_caps(b->dev, rows, n, &te), &te, e);
}

int backend_kv_caps(
	struct backend *b, uint64_t *types, uint32_t *page_min, uint32_t *page_max, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	return b->lost ? lost(b, e)
		       : done(b, "kv_caps", b->ops->kv_caps(b->dev, types, page_min, page_max, &te), &te, e);
}

int backend_model_check(struct backend *b, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	int rc;

	if (b->lost)
		return lost(b, e);
	memset(v, 0, g->n_nodes * sizeof *v);
	rc = done(b, "model_check", b->ops->model_check(b->dev, g, v, &te), &te, e);
	for (uint32_t i = 0; i < g->n_nodes; i++)
		v[i].text[sizeof v[i].text - 1] = 0;
	return rc;
}

int backend_model_sizes(struct backend *b, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (b->lost)
		return lost(b, e);
	*o = (struct tnp_sizes){ .size = sizeof *o };
	return done(b, "model_sizes", b->ops->model_sizes(b->dev, g, l, o, &te), &te, e);
}

int backend_model_open(struct backend *b, const struct tnp_graph *g, const struct tnp_limits *l,
	const struct backend_progress *progress, struct backend_model **out, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	struct plugin_open open = { .g = g, .to = progress };
	struct backend_model *m;
	int rc;

	if (b->lost)
		return lost(b, e);
	m = mem_zalloc(MEM_PLUGIN, 1, sizeof *m);
	if (!m)
		return error_set(e, TENON_E_NOMEM, "backend %s: no memory", backend_name(b));
	m->b = b;
	plugin_host_open_begin(&b->plugin->host, &open);
	rc = done(b, "model_open", b->ops->model_open(b->dev, g, l, &m->m, &te), &te, e);
	plugin_host_open_end(&b->plugin->host, &open);
	if (!rc && !m->m)
		rc = error_set(e, TENON_E_BACKEND, "backend %s: model_open: gave no model", backend_name(b));
	if (rc)
		mem_free(m);
	else
		*out = m;
	return rc;
}

int backend_kv_open(struct backend_model *m, const struct tnp_kv_spec *s, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	int rc;

	if (m->b->lost)
		return lost(m->b, e);
	if (m->kv)
		return error_set(e, TENON_E_INVALID, "backend %s: this model has its KV pool already",
			backend_name(m->b));
	rc = done(m->b, "kv_open", m->b->ops->kv_open(m->m, s, &m->kv, &te), &te, e);
	return !rc && !m->kv
		? error_set(e, TENON_E_BACKEND, "backend %s: kv_open: gave no pool", backend_name(m->b))
		: rc;
}

void backend_model_close(struct backend_model *m)
{
	if (!m)
		return;
	if (m->kv)
		m->b->ops->kv_close(m->kv);
	m->b->ops->model_close(m->m);
	mem_free(m);
}

int backend_kv_copy(struct backend_model *m, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens,
	struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (m->b->lost)
		return lost(m->b, e);
	return done(m->b, "kv_copy", m->b->ops->kv_copy(m->kv, group, from, to, n_tokens, &te), &te, e);
}

int backend_kv_read(struct backend_model *m, uint32_t group, uint32_t page, void *out, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (m->b->lost)
		return lost(m->b, e);
	if (!backend_has(m->b, TNP_F_KV_IO))
		return missing(m->b, "kv_read", e);
	return done(m->b, "kv_read", m->b->ops->kv_read(m->kv, group, page, out, &te), &te, e);
}

int backend_kv_write(struct backend_model *m, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (m->b->lost)
		return lost(m->b, e);
	if (!backend_has(m->b, TNP_F_KV_IO))
		return missing(m->b, "kv_write", e);
	return done(m->b, "kv_write", m->b->ops->kv_write(m->kv, group, page, in, &te), &te, e);
}

/* A hang is not judged here: who watches the worker replaces it. The slices let the plugin be asked again, and no
 * more: what `batch` named must stay until the ticket is done. */
static int wait_for(struct backend *b, uint64_t ticket, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	tnp_rc rc;

	do
		rc = b->ops->wait(b->dev, ticket, WAIT_SLICE_MS * NS_PER_MS, &te);
	while (rc == TNP_E_TIMEOUT);
	return done(b, "step", rc, &te, e);
}

int backend_batch(struct backend_model *m, const struct tnp_batch *batch, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	uint64_t ticket = 0;
	int rc;

	if (m->b->lost)
		return lost(m->b, e);
	rc = done(m->b, "batch", m->b->ops->batch(m->m, m->kv, batch, &ticket, &te), &te, e);
	return rc ? rc : wait_for(m->b, ticket, e);
}

int backend_profile(
	struct backend_model *m, uint32_t on, struct tnp_timing *rows, uint32_t *n, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (m->b->lost)
		return lost(m->b, e);
	if (!backend_has(m->b, TNP_F_PROFILE))
		return missing(m->b, "profile", e);
	return done(m->b, "profile", m->b->ops->profile(m->m, on, rows, n, &te), &te, e);
}
