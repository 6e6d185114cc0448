/* SPDX-License-Identifier: Apache-2.0
 * models.h. Loop thread. A name from a client is matched against a strict pattern and looked up in the config, then as
 * NAME.gguf beneath the model folder, from which nothing leads out (RESOLVE_BENEATH).
 */
#include "daemon/daemon.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOAD_MOST = 999 }; /* permille; the last one is said when the model serves */
#define LOOK_NS (50 * NS_PER_MS)

void models_init(struct models *m)
{
	*m = (struct models){ 0 };
	list_init(&m->all);
}

const char *model_state_name(enum model_state s)
{
	static const char *const names[] = { "unloaded", "loading", "loaded", "unloading", "quarantined" };

	return names[s];
}

/* ---- entries --------------------------------------------------------------------------------------------------------- */

struct model_entry *models_lookup(struct daemon *d, const char *name)
{
	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);

		if (!strcmp(m->name, name))
			return m;
	}
	return NULL;
}

static void entry_free(struct model_entry *m)
{
	timer_clear(&m->d->loop.timers, &m->idle);
	timer_clear(&m->d->loop.timers, &m->look);
	timer_clear(&m->d->loop.timers, &m->leave);
	node_remove(&m->node);
	m->d->models.n_all--;
	json_decref(m->info);
	mem_free(m->name);
	mem_free(m->path);
	mem_free(m->given);
	mem_free(m->passes);
	mem_free(m->backend);
	mem_free(m);
}

static void on_idle(struct timer *t, uint64_t now_ns);
static void on_look(struct timer *t, uint64_t now_ns);
static void on_leave_timeout(struct timer *t, uint64_t now_ns);

static bool entry_configure(struct model_entry *m, const struct conf_model *c)
{
	char *passes = mem_strdup(MEM_DAEMON, c->passes ? c->passes : "");
	char *backend = mem_strdup(MEM_DAEMON, c->backend ? c->backend : "");

	if (!passes || !backend) {
		mem_free(passes);
		mem_free(backend);
		return false;
	}
	mem_free(m->passes);
	mem_free(m->backend);
	m->passes = passes;
	m->backend = backend;
	m->conf = *c;
	m->conf.name = m->conf.path = m->conf.passes = m->conf.backend = NULL;
	return true;
}

static struct model_entry *entry_create(
	struct daemon *d, const char *name, const char *given, const struct conf_model *c)
{
	struct model_entry *m = mem_zalloc(MEM_DAEMON, 1, sizeof *m);

	if (!m)
		return NULL;
	m->d = d;
	m->name = mem_strdup(MEM_DAEMON, name);
	m->given = given ? mem_strdup(MEM_DAEMON, given) : NULL;
	m->idle.fire = on_idle;
	m->look.fire = on_look;
	m->leave.fire = on_leave_timeout;
	list_init(&m->waiting);
	list_append(&d->models.all, &m->node);
	d->models.n_all++;
	if (m->name && (m->given || !given) && entry_configure(m, c))
		return m;
	entry_free(m);
	return NULL;
}

static bool in_use(const struct model_entry *m)
{
	return m->n_requests || m->state == MODEL_LOADING || m->state == MODEL_LOADED ||
		m->state == MODEL_UNLOADING;
}

/* Entries that clients brought about make room for others once unused. */
static void entries_prune(struct daemon *d)
{
	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);

		if (!m->configured && !in_use(m) && m->state != MODEL_QUARANTINED)
			entry_free(m);
	}
}

void models_finish(struct daemon *d)
{
	if (!d->models.all.head.next)
		return;
	LIST_EACH(&d->models.all, n)
	entry_free(CONTAINER_OF(n, struct model_entry, node));
}

static int configure_one(struct daemon *d, const struct conf_model *c, struct error *e)
{
	struct model_entry *m = models_lookup(d, c->name);
	char *given = NULL;

	if (!m)
		m = entry_create(d, c->name, c->path, c);
	else if (c->path && !(given = mem_strdup(MEM_DAEMON, c->path)))
		m = NULL;
	if (!m)
		return error_set(e, TENON_E_NOMEM, "models: out of memory");
	if (given || (m->given && !c->path)) {
		mem_free(m->given);
		m->given = given;
	}
	if (!entry_configure(m, c))
		return error_set(e, TENON_E_NOMEM, "models: out of memory");
	m->configured = true;
	return TENON_OK;
}

int models_configure(struct daemon *d, struct error *e)
{
	LIST_EACH(&d->models.all, n)
	CONTAINER_OF(n, struct model_entry, node)->configured = false;
	for (uint32_t i = 0; i < d->conf.n_models; i++) {
		int rc = configure_one(d, &d->conf.models[i], e);

		if (rc)
			return rc;
	}
	entries_prune(d);
	return TENON_OK;
}

/* ---- from a name to a file ----------------------------------------------------------------------------------------------- */

static int open_beneath(const char *dir, const char *name)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, err;

	if (dir_fd < 0)
		return -1;
	fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof how);
	err = errno;
	(void)close(dir_fd);
	errno = err;
	return fd;
}

/* The file's own path: what the worker will open. Symbolic links are gone from it. */
static int path_of(int fd, const char *name, char *path, size_t room, struct error *e)
{
	char link[64];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return error_set(e, TENON_E_NOT_FOUND, "model '%.64s': not a regular file", name);
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, room - 1);
	if (n <= 0 || (size_t)n >= room - 1)
		return error_set(e, TENON_E_TOO_LONG, "model '%.64s': its path is too long", name);
	path[n] = 0;
	return TENON_OK;
}

static int resolve(
	struct daemon *d, const char *name, const char *given, char *path, size_t room, struct error *e)
{
	char file[160];
	int fd, rc;

	(void)snprintf(file, sizeof file, "%s.gguf", name);
	fd = given ? open(given, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : open_beneath(d->conf.model_dir, file);
	if (fd < 0 && given)
		return error_errno(e, TENON_E_NOT_FOUND, errno, "model '%.64s': %.120s", name, given);
	if (fd < 0)
		return error_set(e, TENON_E_NOT_FOUND,
			"model '%.64s': neither configured nor in the model folder; scripts/fetch-model fetches models",
			name);
	rc = path_of(fd, name, path, room, e);
	(void)close(fd);
	return rc;
}

static int find_default(struct daemon *d, struct model_entry **out, struct error *e)
{
	if (*d->conf.default_model)
		return models_find(d, d->conf.default_model, strlen(d->conf.default_model), out, e);
	if (d->conf.n_models == 1)
		return models_find(d, d->conf.models[0].name, strlen(d->conf.models[0].name), out, e);
	return error_set(
		e, TENON_E_NOT_FOUND, "request: names no model, and the daemon has no default_model");
}

/* One that is not in the list yet: a file of the folder, or a path where those are allowed. */
static int discover(struct daemon *d, const char *name, struct model_entry **out, struct error *e)
{
	bool is_path = name[0] == '/';
	char path[4096];
	int rc = resolve(d, name, is_path ? name : NULL, path, sizeof path, e);

	if (rc)
		return rc;
	if (d->models.n_all >= MODELS_DYNAMIC_MAX)
		entries_prune(d);
	*out = d->models.n_all < 2 * MODELS_DYNAMIC_MAX
		? entry_create(d, name, is_path ? name : NULL, &d->conf.model_defaults)
		: NULL;
	return *out ? TENON_OK
		    : error_set(e, TENON_E_NOMEM, "model '%.64s': too many models are known", name);
}

static int usable(struct model_entry *m, struct error *e)
{
	if (m->leaving)
		return error_set(e, TENON_E_BUSY, "model '%.64s': is being unloaded; try again", m->name);
	if (m->state != MODEL_QUARANTINED)
		return TENON_OK;
	return error_set(e, TENON_E_BACKEND,
		"model '%.64s': out of service after %u deaths of its worker; the last: %.120s", m->name,
		m->n_deaths, m->last.text);
}

int models_find(struct daemon *d, const char *name, size_t len, struct model_entry **out, struct error *e)
{
	char text[WIRE_MAX_MODEL_BYTES + 1];
	struct model_entry *m;
	int rc;

	if (!len)
		return find_default(d, out, e);
	if (len >= sizeof text)
		return error_set(
			e, TENON_E_TOO_LONG, "model: its name is over %u bytes", WIRE_MAX_MODEL_BYTES);
	memcpy(text, name, len);
	text[len] = 0;
	if (text[0] == '/' && !d->conf.allow_paths)
		return error_set(
			e, TENON_E_DENIED, "model: this daemon takes names, not paths (allow_paths)");
	if (text[0] != '/' && !conf_name_ok(text, len))
		return error_set(
			e, TENON_E_INVALID, "model: not a name; letters, digits and . _ - are allowed");
	m = models_lookup(d, text);
	rc = m ? TENON_OK : discover(d, text, &m, e);
	if (!rc)
		rc = usable(m, e);
	if (!rc)
		*out = m;
	return rc;
}

/* ---- load -------------------------------------------------------------------------------------------------------------- */

static void fail_waiting(struct model_entry *m, int code, const char *text)
{
	struct node *n;

	while ((n = list_first(&m->waiting)) != NULL)
		request_fail(CONTAINER_OF(n, struct request, node), code, text);
}

static void tell_waiting(struct model_entry *m, uint32_t permille)
{
	LIST_EACH(&m->waiting, n)
	{
		struct request *r = CONTAINER_OF(n, struct request, node);

		if (r->session)
			session_send_state(r->session, r->id, WIRE_LOADING, permille);
	}
}

/* Tells who waits how far the load is, as the worker's box has it. */
static void on_look(struct timer *t, uint64_t now_ns)
{
	struct model_entry *m = CONTAINER_OF(t, struct model_entry, look);
	struct box_reading box;
	uint32_t permille = m->load_permille;

	if (m->state != MODEL_LOADING || m->d->worker.state != WORKER_UP)
		return;
	box_read(&m->d->worker.box, &box);
	if (!strcmp(box.beside, m->name))
		permille = box.beside_permille;
	else if (box.phase == BOX_LOAD && !strcmp(box.model, m->name))
		permille = box.permille;
	if (permille > m->load_permille) {
		m->load_permille = MIN_OF(permille, LOAD_MOST);
		tell_waiting(m, m->load_permille);
	}
	(void)timer_set(&m->d->loop.timers, &m->look, now_ns + LOOK_NS);
}

static void set_loaded(struct model_entry *m, const json_t *reply)
{
	struct daemon *d = m->d;
	struct node *n;

	m->state = MODEL_LOADED;
	m->loaded_ns = m->used_ns = d->loop.now_ns;
	m->load_ns = d->loop.now_ns - m->load_began_ns;
	m->n_loads++;
	json_decref(m->info);
	m->info = json_deep_copy(json_object_get(reply, "info"));
	TOPIC_LOG(d, LOG_INFO, "model", "model=%s loaded in_ms=%llu", m->name,
		(unsigned long long)(m->load_ns / NS_PER_MS));
	tell_waiting(m, 1000);
	while ((n = list_first(&m->waiting)) != NULL)
		request_dispatch(CONTAINER_OF(n, struct request, node));
	admin_model_settled(d, m, NULL);
	if (!m->n_requests)
		model_request_gone(m);
}

/* Not enough memory: the model that rests longest makes room, then the load is tried again. */
static bool make_room(struct model_entry *m)
{
	struct model_entry *oldest = NULL;

	LIST_EACH(&m->d->models.all, n)
	{
		struct model_entry *o = CONTAINER_OF(n, struct model_entry, node);

		if (o != m && o->state == MODEL_LOADED && !o->n_requests &&
			(!oldest || o->used_ns < oldest->used_ns))
			oldest = o;
	}
	if (!oldest || model_unload(oldest, NULL))
		return false;
	TOPIC_LOG(m->d, LOG_INFO, "model", "model=%s makes room for model=%s", oldest->name, m->name);
	return true;
}

static void on_load_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct model_entry *m = ctx;

	if (m->state != MODEL_LOADING)
		return;
	if (reply) {
		set_loaded(m, reply);
		return;
	}
	if (e->code == TENON_E_GONE) /* the worker died: models_worker_down decides */
		return;
	m->state = MODEL_UNLOADED;
	if (e->code == TENON_E_NOMEM && make_room(m)) {
		model_load(m);
		return;
	}
	m->last = *e;
	TOPIC_LOG(d, LOG_WARN, "model", "model=%s cannot be loaded: %s", m->name, e->text);
	fail_waiting(m, e->code, e->text);
	admin_model_settled(d, m, e);
}

static json_t *load_command(const struct model_entry *m)
{
	const struct conf_model *c = &m->conf;

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "cmd",
		"load", "model", m->name, "path", m->path, "backend", m->backend, "precision",
		conf_precision_name(c->precision), "kv", conf_kv_name(c->kv), "passes", m->passes, "context",
		(json_int_t)c->context, "kv_bytes", (json_int_t)c->kv_bytes, "kv_sessions",
		(json_int_t)c->kv_sessions, "step_tokens", (json_int_t)c->step_tokens, "step_seqs",
		(json_int_t)c->step_seqs, "page_tokens", (json_int_t)c->page_tokens, "settings",
		settings_json(&m->d->conf));
}

static int refresh_path(struct model_entry *m, struct error *e)
{
	char path[4096];
	char *copy;
	int rc = resolve(m->d, m->name, m->given, path, sizeof path, e);

	if (rc)
		return rc;
	copy = mem_strdup(MEM_DAEMON, path);
	if (!copy)
		return error_set(e, TENON_E_NOMEM, "model '%.64s': out of memory", m->name);
	mem_free(m->path);
	m->path = copy;
	return TENON_OK;
}

void model_load(struct model_entry *m)
{
	struct daemon *d = m->d;
	struct error e = { 0 };
	json_t *cmd;

	if (m->state != MODEL_UNLOADED || d->worker.state != WORKER_UP)
		return;
	m->state = MODEL_LOADING;
	m->load_began_ns = d->loop.now_ns;
	timer_clear(&d->loop.timers, &m->idle);
	cmd = refresh_path(m, &e) ? NULL : load_command(m);
	if (!cmd && !e.code)
		(void)error_set(&e, TENON_E_NOMEM, "model '%.64s': out of memory", m->name);
	if (!cmd) {
		on_load_reply(d, m, NULL, &e);
		return;
	}
	m->load_permille = 0;
	tell_waiting(m, 0);
	(void)timer_set(&d->loop.timers, &m->look, d->loop.now_ns + LOOK_NS);
	worker_link_call(&d->worker, cmd, 0, on_load_reply, m);
}

void model_enqueue(struct model_entry *m, struct request *r)
{
	struct error e = { 0 };

	m->used_ns = m->d->loop.now_ns;
	if (usable(m, &e)) {
		request_fail(r, e.code, e.text);
		return;
	}
	if (m->state == MODEL_LOADED) {
		request_dispatch(r);
		return;
	}
	if (worker_link_hopeless(&m->d->worker)) {
		request_fail(r, TENON_E_BACKEND, m->d->worker.last_death.text);
		return;
	}
	r->waiting_ns = m->d->loop.now_ns;
	list_append(&m->waiting, &r->node);
	if (m->state != MODEL_LOADING)
		model_load(m);
	else if (r->session)
		session_send_state(r->session, r->id, WIRE_LOADING, m->load_permille);
}

/* ---- unload ------------------------------------------------------------------------------------------------------------ */

static void on_unload_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct model_entry *m = ctx;

	if (m->state != MODEL_UNLOADING)
		return;
	if (!reply && e->code == TENON_E_GONE)
		return;
	m->state = reply ? MODEL_UNLOADED : MODEL_LOADED;
	json_decref(m->info);
	m->info = NULL;
	TOPIC_LOG(d, LOG_INFO, "model", "model=%s %s%s", m->name,
		reply ? "unloaded" : "stays loaded: ", reply ? "" : e->text);
	admin_model_settled(d, m, reply ? NULL : e);
	if (!list_empty(&m->waiting))
		model_load(m);
}

int model_unload(struct model_entry *m, struct error *e)
{
	json_t *cmd;

	if (m->state != MODEL_LOADED)
		return error_set(e, TENON_E_NOT_FOUND, "model '%.64s': is not loaded", m->name);
	if (m->n_requests)
		return error_set(e, TENON_E_BUSY,
			"model '%.64s': %u requests are open; --wait SECONDS waits for them, --force cancels them",
			m->name, m->n_requests);
	cmd = json_pack("{s:s, s:s}", "cmd", "unload", "model", m->name);
	if (!cmd)
		return error_set(e, TENON_E_NOMEM, "model '%.64s': out of memory", m->name);
	m->state = MODEL_UNLOADING;
	timer_clear(&m->d->loop.timers, &m->idle);
	worker_link_call(&m->d->worker, cmd, 0, on_unload_reply, m);
	return TENON_OK;
}

static void stop_leaving(struct model_entry *m)
{
	m->leaving = false;
	timer_clear(&m->d->loop.timers, &m->leave);
}

static void on_leave_timeout(struct timer *t, uint64_t now_ns)
{
	struct model_entry *m = CONTAINER_OF(t, struct model_entry, leave);
	struct error e;

	(void)now_ns;
	stop_leaving(m);
	(void)error_set(&e, TENON_E_BUSY, "model '%.64s': %u requests are still open; it serves on", m->name,
		m->n_requests);
	admin_model_settled(m->d, m, &e);
}

int model_leave(struct model_entry *m, bool force, uint64_t wait_ms, struct error *e)
{
	uint64_t until_ns = m->d->loop.now_ns + wait_ms * NS_PER_MS;

	if (m->state == MODEL_LOADED && m->n_requests && (force || wait_ms)) {
		if (wait_ms && !timer_set(&m->d->loop.timers, &m->leave, until_ns))
			return error_set(e, TENON_E_NOMEM, "model '%.64s': out of memory", m->name);
		m->leaving = true;
		if (force)
			requests_cancel_of(m->d, m, "request: cancelled: an administrator unloads its model");
		return TENON_OK;
	}
	return model_unload(m, e);
}

void model_request_begun(struct model_entry *m)
{
	m->n_requests++;
	timer_clear(&m->d->loop.timers, &m->idle);
}

static void on_idle(struct timer *t, uint64_t now_ns)
{
	struct model_entry *m = CONTAINER_OF(t, struct model_entry, idle);

	(void)now_ns;
	(void)model_unload(m, NULL);
}

void model_request_gone(struct model_entry *m)
{
	struct daemon *d = m->d;

	if (m->n_requests)
		m->n_requests--;
	m->used_ns = d->loop.now_ns;
	if (!m->n_requests && m->leaving) {
		stop_leaving(m);
		if (m->state == MODEL_LOADED && !model_unload(m, NULL))
			return;
	}
	if (!m->n_requests && m->state == MODEL_LOADED && m->conf.idle_unload_s)
		(void)timer_set(&d->loop.timers, &m->idle, d->loop.now_ns + m->conf.idle_unload_s * NS_PER_S);
}

void model_revive(struct model_entry *m)
{
	if (m->state == MODEL_QUARANTINED)
		m->state = MODEL_UNLOADED;
	m->n_deaths = 0;
}

/* ---- the worker comes and goes ---------------------------------------------------------------------------------------------- */

void models_worker_up(struct daemon *d)
{
	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);

		if (!list_empty(&m->waiting) || (m->conf.preload && m->configured) || m->pending)
			model_load(m);
	}
}

/* True: too many within the window. */
static bool count_death(struct model_entry *m)
{
	const struct conf *c = &m->d->conf;
	uint64_t now_ns = m->d->loop.now_ns;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < m->n_deaths; i++)
		if (now_ns - m->death_ns[i] < c->worker.deaths_window_s * NS_PER_S)
			m->death_ns[kept++] = m->death_ns[i];
	if (kept < MODEL_DEATHS_MAX)
		m->death_ns[kept++] = now_ns;
	m->n_deaths = kept;
	return kept >= c->worker.deaths;
}

/* It is unloaded, if not as was asked. */
static void leave_with_worker(struct model_entry *m)
{
	if (!m->leaving)
		return;
	stop_leaving(m);
	m->state = MODEL_UNLOADED;
	admin_model_settled(m->d, m, NULL);
}

void models_worker_down(struct daemon *d, const char *blame, const char *words)
{
	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);
		bool guilty = blame && !strcmp(blame, m->name), out = guilty && count_death(m);
		struct error e = { 0 };

		timer_clear(&d->loop.timers, &m->idle);
		leave_with_worker(m);
		if (guilty)
			(void)error_set(&m->last, TENON_E_BACKEND, "%s", words);
		if (m->state != MODEL_QUARANTINED)
			m->state = out ? MODEL_QUARANTINED : MODEL_UNLOADED;
		if (!out)
			continue;
		TOPIC_LOG(d, LOG_ERROR, "model", "model=%s is out of service after %u deaths: %s", m->name,
			m->n_deaths, words);
		(void)usable(m, &e);
		fail_waiting(m, e.code, e.text);
		admin_model_settled(d, m, &e);
	}
}

void models_worker_failed(struct daemon *d, int code, const char *text)
{
	const struct error e = { .code = code };

	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);
		struct error why = e;

		(void)error_set(&why, code, "%s", text);
		fail_waiting(m, code, text);
		admin_model_settled(d, m, &why);
	}
}

/* ---- for people ------------------------------------------------------------------------------------------------------------ */

json_t *models_json(struct daemon *d)
{
	json_t *all = json_array();

	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);
		json_t *o = json_pack("{s:s, s:s, s:I, s:b, s:I, s:I, s:s, s:s, s:I, s:I, s:O?}", "name",
			m->name, "state", model_state_name(m->state), "requests", (json_int_t)m->n_requests,
			"configured", m->configured, "loads", (json_int_t)m->n_loads, "load_ms",
			(json_int_t)(m->load_ns / NS_PER_MS), "precision",
			conf_precision_name(m->conf.precision), "kv", conf_kv_name(m->conf.kv),
			"idle_unload_s", (json_int_t)m->conf.idle_unload_s, "deaths", (json_int_t)m->n_deaths,
			"info", m->info);

		if (o && m->path)
			(void)json_object_set_new(o, "path", json_string(m->path));
		if (o && m->state == MODEL_LOADING)
			(void)json_object_set_new(o, "load_permille", json_integer(m->load_permille));
		if (o && m->last.code)
			(void)json_object_set_new(o, "last_error", json_string(m->last.text));
		if (o && m->state == MODEL_LOADED && !m->n_requests)
			(void)json_object_set_new(o, "idle_ms",
				json_integer((json_int_t)((d->loop.now_ns - m->used_ns) / NS_PER_MS)));
		(void)json_array_append_new(all, o);
	}
	return all;
}
