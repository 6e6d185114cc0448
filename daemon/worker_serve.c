/* SPDX-License-Identifier: Apache-2.0
 * Models come and go: what is left of the memory for them, their tiers, the cost model that an earlier start has
 * learned. Step thread, but for loader_main.
 */
#include "daemon/process_memory.h"
#include "daemon/worker_step.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 16 };

struct served *served_find(const struct stepper *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_served; i++)
		if (!strcmp(s->served[i]->name, name))
			return s->served[i];
	return NULL;
}

/* ---- files ------------------------------------------------------------------------------------------------------------- */

/* Every folder of the path, for this user alone. */
static bool make_folders(const char *path)
{
	char part[4096];

	if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
		return false;
	for (char *at = strchr(part + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		if (mkdir(part, 0700) && errno != EEXIST)
			return false;
		*at = '/';
	}
	return !mkdir(part, 0700) || errno == EEXIST;
}

/* What the cost of a step depends on: all that decides the bits of pages, and how they are computed. */
static void key_of(const struct stepper *s, const struct served *m, char hex[2 * KEY_BYTES + 1])
{
	const struct model_info *i = model_info(m->model);
	const uint32_t numbers[] = { i->kv_type, i->page_tokens, i->step_tokens, i->step_seqs,
		(uint32_t)sysconf(_SC_NPROCESSORS_ONLN) };
	crypto_generichash_state h;
	uint8_t key[KEY_BYTES];

	(void)crypto_generichash_init(&h, NULL, 0, sizeof key);
	(void)crypto_generichash_update(&h, i->kv_compat, sizeof i->kv_compat);
	(void)crypto_generichash_update(&h, (const uint8_t *)numbers, sizeof numbers);
	for (size_t o = 0; o < s->setup->n_options; o++) {
		const struct plugin_option *p = &s->setup->options[o];

		if (!backends_use(m->own.n ? &m->own : &s->backends, p->plugin))
			continue;
		(void)crypto_generichash_update(&h, (const uint8_t *)p->key, strlen(p->key) + 1);
		(void)crypto_generichash_update(&h, (const uint8_t *)p->value, strlen(p->value) + 1);
	}
	(void)crypto_generichash_final(&h, key, sizeof key);
	(void)sodium_bin2hex(hex, 2 * KEY_BYTES + 1, key, sizeof key);
}

/* ---- cost -------------------------------------------------------------------------------------------------------------- */

/* False: nowhere to keep it. */
static bool cost_place(const struct stepper *s, const char *key, char *path, size_t room)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char dir[4000];

	if (s->setup->cache_dir)
		(void)snprintf(dir, sizeof dir, "%s/cost", s->setup->cache_dir);
	else if (cache && *cache)
		(void)snprintf(dir, sizeof dir, "%s/tenon/cost", cache);
	else if (home && *home)
		(void)snprintf(dir, sizeof dir, "%s/.cache/tenon/cost", home);
	else
		return false;
	return make_folders(dir) && (size_t)snprintf(path, room, "%s/%s", dir, key) < room;
}

/* Whatever is odd about the file is as if there were none. */
static void cost_read(struct served *m)
{
	uint8_t bytes[COST_SAVE_BYTES];
	int fd = open(m->cost_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
	struct cost_status st;

	if (fd >= 0)
		(void)close(fd);
	if (n <= 0 || cost_load(m->cost, bytes, (size_t)n, NULL))
		return;
	cost_get_status(m->cost, &st);
	m->observed_before = st.n_observed;
	m->cost_saved = st.calibrated;
}

void served_keep_cost(struct served *m)
{
	uint8_t bytes[COST_SAVE_BYTES];
	size_t len = m->keep_cost ? cost_save(m->cost, bytes, sizeof bytes) : 0;
	char part[4120];
	int fd;
	bool ok;

	if (!len)
		return;
	(void)snprintf(part, sizeof part, "%s.%d", m->cost_path, (int)getpid());
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	ok = write(fd, bytes, len) == (ssize_t)len;
	ok = !close(fd) && ok && !rename(part, m->cost_path);
	if (!ok)
		(void)unlink(part);
	m->cost_saved = cost_calibrated(m->cost);
}

static int open_cost(struct stepper *s, struct served *m, const struct settings *set, struct error *e)
{
	char key[2 * KEY_BYTES + 1];
	int rc = cost_create(&m->cost, e);

	if (rc)
		return rc;
	if (!set->calibrate) {
		cost_set_calibrated(m->cost);
		return TENON_OK;
	}
	key_of(s, m, key);
	m->keep_cost = cost_place(s, key, m->cost_path, sizeof m->cost_path);
	if (m->keep_cost)
		cost_read(m);
	return TENON_OK;
}

/* ---- tiers ------------------------------------------------------------------------------------------------------------- */

static void no_tier(struct served *m, const char *why)
{
	(void)snprintf(m->tier_why, sizeof m->tier_why, "%s", why);
	log_write(m->owner->w->log, LOG_WARN, "tier", "model=%s has none: %s", m->name, why);
}

/* The name is a client's or the config's: only what is harmless in a file's name stays. */
static bool tier_path(const struct served *m, const char *dir, char *path, size_t room)
{
	const char *slash = strrchr(m->name, '/');
	char key[2 * KEY_BYTES + 1], name[101];

	(void)snprintf(name, sizeof name, "%.100s", slash ? slash + 1 : m->name);
	for (char *c = name; *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
			    *c == '-' || *c == '.'))
			*c = '_';
	(void)sodium_bin2hex(key, sizeof key, model_info(m->model)->kv_compat, KEY_BYTES);
	return make_folders(dir) && (size_t)snprintf(path, room, "%s/%s-%s.kv", dir, name, key) < room;
}

/* A tier that cannot be had is a warning: the model serves without it. Memory always gets one, so that its limit can be
 * raised later; a file only comes where one is asked for. */
static void open_tiers(struct served *m, const struct settings *set)
{
	const struct model_info *i = model_info(m->model);
	struct kv_tier_config tc = {
		.limit_bytes = set->host_bytes, .n_groups = i->n_groups, .page_tokens = i->page_tokens
	};
	struct error e = { 0 };
	char path[4096];

	if (set->sched.no_prefix || i->is_encoder)
		return;
	if (!i->kv_io) {
		if (set->host_bytes || set->disk_bytes)
			no_tier(m, "this backend cannot read and write pages");
		return;
	}
	memcpy(tc.compat, i->kv_compat, sizeof tc.compat);
	memcpy(tc.page_bytes, i->page_bytes, sizeof tc.page_bytes);
	if (kv_tier_open(&tc, &m->host, &e))
		no_tier(m, e.text);
	if (!set->disk_bytes || !set->disk_dir)
		return;
	tc.limit_bytes = set->disk_bytes;
	tc.path = path;
	if (!tier_path(m, set->disk_dir, path, sizeof path))
		(void)error_errno(&e, TENON_E_IO, errno, "prefix.disk_dir: its folder cannot be made");
	else if (!kv_tier_open(&tc, &m->disk, &e))
		return;
	no_tier(m, e.text);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* What one more model may take. Pages of a pool that were promised to loaded models but never touched look available to
 * the kernel, and so do their mapped files; they are not. */
static uint64_t memory_left(const struct stepper *s, const struct settings *set)
{
	struct process_memory now = process_memory_read();
	uint64_t own = 0, mapped = 0, left = memory_available();

	for (uint32_t i = 0; i < s->n_served; i++) {
		const struct ledger *l = model_ledger(s->served[i]->model);
		uint64_t file = l->bytes[LEDGER_WEIGHTS_MAPPED];

		own += l->loaded - file - l->bytes[LEDGER_TIER] + s->served[i]->host_limit_bytes;
		mapped += file;
	}
	left = less(less(left, less(own, now.resident_bytes - now.shared_bytes)), mapped);
	if (set->memory_limit)
		left = MIN_OF(left, less(set->memory_limit, own + mapped));
	return MAX_OF(less(left, set->host_bytes), 1); /* 0 would mean no limit */
}

/* ---- load --------------------------------------------------------------------------------------------------------------- */

void worker_setup(struct stepper *s, struct command *c)
{
	struct plugins_config pc = setup_plugins(c->setup, s->w->log);
	struct error *e = &c->error;
	const struct tnp_device *dev;
	char name[BACKENDS_TEXT_BYTES];
	bool invariant = true;

	s->setup = c->setup;
	c->setup = NULL;
	if (plugins_open(&pc, &s->plugins, e) ||
		backends_parse(s->setup->backend, s->setup->device, &s->list, e) ||
		backends_open(s->plugins, &s->list, &s->backends, e))
		return;
	backends_text(s->backends.place, s->backends.n, name);
	dev = backend_device(s->backends.place[0].backend);
	for (uint32_t i = 0; i < s->backends.n; i++)
		invariant = invariant && backend_has(s->backends.place[i].backend, TNP_F_INVARIANT);
	c->reply = json_pack("{s:s, s:s, s:s, s:b}", "backend", name, "device", dev->name, "isa", dev->isa,
		"invariant", invariant);
}

static void served_free(struct served *m)
{
	sched_destroy(m->sched);
	kv_tier_close(m->host);
	kv_tier_close(m->disk);
	if (m->cost)
		served_keep_cost(m);
	cost_destroy(m->cost);
	model_close(m->model);
	backends_close(&m->own);
	mem_free(m);
}

static int open_sched(struct stepper *s, struct served *m, const struct settings *set, struct error *e)
{
	const struct model_info *i = model_info(m->model);
	struct sched_config sc = set->sched;

	sc.engine = sched_engine_of(m->model);
	sc.cost = m->cost;
	sc.prefix.max_pinned_pages = (uint32_t)MAX_OF((uint64_t)i->n_pages[0] * set->pinned_percent / 100, 1);
	sc.prefix.host = m->host;
	sc.prefix.disk = m->disk;
	return sched_create(&sc, &s->sink, &m->sched, e);
}

/* A loaded model gets what it is served with; takes `model` and `own`. */
static int serve(struct stepper *s, struct command *c, struct model *model, struct backends *own)
{
	const struct settings *set = &c->settings;
	struct served *m = mem_zalloc(MEM_DAEMON, 1, sizeof *m);
	int rc;

	if (!m) {
		model_close(model);
		backends_close(own);
		return error_set(&c->error, TENON_E_NOMEM, "model: out of memory");
	}
	m->owner = s;
	m->model = model;
	m->own = *own;
	m->restless = true;
	m->host_limit_bytes = set->host_bytes;
	memcpy(m->name, c->model, sizeof m->name);
	rc = open_cost(s, m, set, &c->error);
	if (!rc)
		open_tiers(m, set);
	if (!rc)
		rc = open_sched(s, m, set, &c->error);
	if (rc) {
		m->keep_cost = false;
		served_free(m);
		return rc;
	}
	s->served[s->n_served++] = m;
	c->loaded = m->model;
	c->reply = json_pack("{s:o}", "info", worker_model_json(m->model));
	return TENON_OK;
}

/* ---- progress ------------------------------------------------------------------------------------------------------------- */

static uint32_t permille(uint64_t done, uint64_t total)
{
	return (uint32_t)((double)done * 1000 / (double)total);
}

void worker_load_tell(void *ctx, uint64_t done, uint64_t total)
{
	box_loaded(ctx, false, permille(done, total));
}

void worker_load_tell_beside(void *ctx, uint64_t done, uint64_t total)
{
	box_loaded(ctx, true, permille(done, total));
}

/* ---- beside the steps ---------------------------------------------------------------------------------------------------- */

static void *loader_main(void *arg)
{
	struct loader *l = arg;

	(void)model_open(&l->c->options, &l->model, &l->c->error);
	atomic_store(&l->done,
		true); /* after everything, before the bell: the step thread looks when it is rung */
	orders_wake(l->orders);
	return NULL;
}

/* Backends for one model alone: those it names, or once more the worker's. */
static int own_open(struct stepper *s, const struct command *c, struct backends *out, struct error *e)
{
	struct backends_list list = s->list;
	int rc = *c->backend ? backends_parse(c->backend, s->setup->device, &list, e) : TENON_OK;

	return rc ? rc : backends_open(s->plugins, &list, out, e);
}

/* Devices of its own, since one device is called from one thread at a time. False: they cannot be had. */
static bool loader_start(struct stepper *s, struct command *c)
{
	struct loader *l = &s->loader;

	if (own_open(s, c, &l->backends, NULL))
		return false;
	c->options.progress = &s->beside;
	c->options.places = l->backends.place;
	c->options.n_places = l->backends.n;
	l->c = c;
	l->model = NULL;
	l->orders = &s->w->orders;
	atomic_store(&l->done, false);
	if (pthread_create(&l->thread, NULL, loader_main, l)) {
		backends_close(&l->backends);
		return false;
	}
	l->running = true;
	box_beside(s->box, c->model);
	return true;
}

static void loader_queue(struct loader *l, struct command *c)
{
	c->next = NULL;
	if (!l->first)
		l->last = &l->first;
	*l->last = c;
	l->last = &c->next;
}

static bool may_load(const struct stepper *s, struct command *c)
{
	if (!s->backends.n)
		(void)error_set(&c->error, TENON_E_BACKEND, "model: the worker has no backend");
	else if (served_find(s, c->model))
		(void)error_set(&c->error, TENON_E_BUSY, "model: is loaded already");
	else if (s->n_served == WORKER_MODELS_MAX)
		(void)error_set(&c->error, TENON_E_NOMEM, "model: %d are loaded, which is the most",
			WORKER_MODELS_MAX);
	return !c->error.code;
}

/* Nobody else is served: nobody is held up by a load in between. */
bool worker_load(struct stepper *s, struct command *c)
{
	struct model *model = NULL;
	struct backends own = { 0 };

	if (s->loader.running) {
		loader_queue(&s->loader, c);
		return false;
	}
	if (!may_load(s, c))
		return true;
	c->options.path = c->path;
	c->options.memory_limit = memory_left(s, &c->settings);
	if (s->n_served && loader_start(s, c))
		return false;
	box_begin(s->box, BOX_LOAD, c->model);
	if (*c->backend && own_open(s, c, &own, &c->error))
		return true;
	c->options.progress = &s->progress;
	c->options.places = *c->backend ? own.place : s->backends.place;
	c->options.n_places = *c->backend ? own.n : s->backends.n;
	if (!model_open(&c->options, &model, &c->error))
		(void)serve(s, c, model, &own);
	else
		backends_close(&own);
	return true;
}

/* Takes the thread's outcome. */
static void loader_finish(struct stepper *s)
{
	struct loader *l = &s->loader;
	struct command *c = l->c;

	(void)pthread_join(l->thread, NULL);
	l->running = false;
	box_beside(s->box, NULL);
	if (l->model)
		(void)serve(s, c, l->model, &l->backends);
	else
		backends_close(&l->backends);
	worker_answer(s, c);
}

void worker_load_poll(struct stepper *s)
{
	struct loader *l = &s->loader;
	struct command *c;

	if (!l->running || !atomic_load(&l->done))
		return;
	loader_finish(s);
	while (!l->running && (c = l->first) != NULL) {
		l->first = c->next;
		if (worker_load(s, c))
			worker_answer(s, c);
	}
}

void worker_load_stop(struct stepper *s)
{
	struct loader *l = &s->loader;
	struct command *c;

	if (l->running) {
		backends_stop_slow_calls(&l->backends);
		loader_finish(s);
	}
	while ((c = l->first) != NULL) {
		l->first = c->next;
		command_free(c);
	}
}

/* ---- unload -------------------------------------------------------------------------------------------------------------- */

void served_close(struct stepper *s, uint32_t i)
{
	struct served *m = s->served[i];

	s->served[i] = s->served[--s->n_served];
	served_free(m);
}

void worker_unload(struct stepper *s, struct command *c)
{
	struct sched_status st;

	for (uint32_t i = 0; i < s->n_served; i++) {
		if (strcmp(s->served[i]->name, c->model))
			continue;
		sched_get_status(s->served[i]->sched, &st);
		if (st.waiting + st.running + st.paused) {
			(void)error_set(&c->error, TENON_E_BUSY, "model: has open requests");
			return;
		}
		served_close(s, i);
		c->reply = json_object();
		return;
	}
	(void)error_set(&c->error, TENON_E_NOT_FOUND, "model: is not loaded");
}

/* New limits and targets for every loaded model, tiers included; a file only comes with a load. */
void worker_configure(struct stepper *s, struct command *c)
{
	for (uint32_t i = 0; i < s->n_served; i++) {
		struct served *m = s->served[i];
		struct prefix *p = sched_prefix(m->sched);

		sched_configure(m->sched, &c->settings.sched);
		m->host_limit_bytes = c->settings.host_bytes;
		m->restless = true;
		if (p)
			prefix_set_limits(p, c->settings.host_bytes, c->settings.disk_bytes);
		if (p && c->settings.disk_bytes && !m->disk && !*m->tier_why)
			no_tier(m,
				"it was loaded with disk_mib = 0; unload it, and its next load makes the file");
	}
	c->reply = json_object();
}
