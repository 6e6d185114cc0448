/* SPDX-License-Identifier: Apache-2.0
 * The step thread of a worker: owner of the backend, of the models and of their schedulers; the only producer of the
 * `tok` link. Orders are looked at between steps. A lost device ends the worker: the daemon replays elsewhere.
 */
#include "daemon/worker_priv.h"
#include <string.h>
#include <unistd.h>

struct served {
	char name[WORKER_NAME_BYTES];
	struct model *model;
	struct sched *sched;
	struct stepper *owner;
};

struct stepper {
	struct worker *w;
	struct link *tok;
	struct box *box;
	struct setup *setup; /* plugins borrow its strings */
	struct plugins *plugins;
	struct backend *backend;
	struct served *served[WORKER_MODELS_MAX];
	uint32_t n_served;
	bool stop, failed, idle;
};

/* ---- events ---------------------------------------------------------------------------------------------------------------- */

/* The daemon takes frames out as long as it lives; if it does not, neither do we. */
static void await_room(struct stepper *s, uint32_t bytes)
{
	bool bad = false;

	while (ring_room(&s->tok->out, &bad) < bytes && !bad && !atomic_load(&s->w->stopping)) {
		link_flush(s->tok);
		(void)usleep(200);
	}
}

static void *put(struct stepper *s, uint16_t type, uint64_t id, uint32_t bytes)
{
	bool bad;

	await_room(s, bytes + (uint32_t)sizeof(struct wire_head) + WIRE_ALIGN);
	return ring_put(&s->tok->out, type, 0, id, bytes, &bad);
}

static void flush(struct stepper *s)
{
	if (s->tok->out.published == s->tok->out.tail)
		return;
	box_published(s->box, clock_now_ns());
	link_flush(s->tok);
}

static void on_state(void *ctx, uint64_t id, uint32_t phase, uint32_t permille)
{
	struct wire_state *w = put(ctx, WIRE_STATE, id, sizeof *w);

	if (w)
		*w = (struct wire_state){ .phase = phase, .permille = permille };
}

static void put_logprobs(struct stepper *s, uint64_t id, const struct sampler_logprob *lp, uint32_t n)
{
	struct wire_logprobs *w = put(s, WIRE_LOGPROBS, id, (uint32_t)(sizeof *w + n * sizeof *lp));

	if (!w)
		return;
	*w = (struct wire_logprobs){ .n = n };
	memcpy(w + 1, lp, n * sizeof *lp);
}

/* Log-probabilities and their tokens become visible together, so that a replay never tells one of them twice. */
static void on_tokens(void *ctx, uint64_t id, const int32_t *ids, uint32_t n_ids, const char *text,
	size_t text_len, const struct sampler_logprob *lp, uint32_t n_lp)
{
	struct stepper *s = ctx;
	uint32_t bytes = (uint32_t)(sizeof(struct wire_tokens) + 4 * n_ids + text_len);
	struct wire_tokens *w;

	await_room(s, bytes + (uint32_t)(sizeof(struct wire_logprobs) + n_lp * sizeof *lp) + 64);
	if (n_lp)
		put_logprobs(s, id, lp, n_lp);
	w = put(s, WIRE_TOKENS, id, bytes);
	if (!w)
		return;
	*w = (struct wire_tokens){ .n_tokens = n_ids, .text_bytes = (uint32_t)text_len };
	memcpy(w + 1, ids, 4 * n_ids);
	if (text_len)
		memcpy((char *)(w + 1) + 4 * n_ids, text, text_len);
}
_Static_assert(sizeof(struct sampler_logprob) == sizeof(struct wire_logprob) &&
		offsetof(struct sampler_logprob, logprob) == offsetof(struct wire_logprob, logprob),
	"one layout");

static void on_done(void *ctx, uint64_t id, const struct wire_done *d)
{
	struct wire_done *w = put(ctx, WIRE_DONE, id, sizeof *w);

	if (w)
		*w = *d;
}

static void on_error(void *ctx, uint64_t id, int code, const char *text)
{
	size_t len = strnlen(text, 512);
	struct wire_error *w = put(ctx, WIRE_ERROR, id, (uint32_t)(sizeof *w + len));

	if (!w)
		return;
	*w = (struct wire_error){ .code = code, .text_bytes = (uint32_t)len };
	memcpy(w + 1, text, len);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------------- */

static struct served *find(struct stepper *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_served; i++)
		if (!strcmp(s->served[i]->name, name))
			return s->served[i];
	return NULL;
}

static void submit(struct stepper *s, struct prepared *p)
{
	struct served *m = find(s, p->model);
	struct error e = { 0 };

	if (!m)
		on_error(s, p->request.id, TENON_E_NOT_FOUND, "request: its model is not loaded");
	else if (sched_submit(m->sched, &p->request, &e))
		on_error(s, p->request.id, e.code, e.text);
	prepared_free(p);
}

static void steer(struct stepper *s, const struct order *o)
{
	int rc = TENON_E_NOT_FOUND;

	for (uint32_t i = 0; i < s->n_served && rc == TENON_E_NOT_FOUND; i++) {
		struct sched *q = s->served[i]->sched;

		if (o->kind == ORDER_CANCEL)
			rc = sched_cancel(q, o->id, TENON_E_CANCELLED, "request: cancelled");
		else
			rc = o->kind == ORDER_PAUSE ? sched_pause(q, o->id) : sched_resume(q, o->id);
	}
}

/* ---- commands ---------------------------------------------------------------------------------------------------------------- */

static void setup(struct stepper *s, struct command *c)
{
	struct plugins_config pc = setup_plugins(c->setup, s->w->log);
	struct error *e = &c->error;
	const struct tnp_device *dev;

	s->setup = c->setup;
	c->setup = NULL;
	if (plugins_open(&pc, &s->plugins, e) ||
		backend_open(s->plugins, *s->setup->backend ? s->setup->backend : NULL, s->setup->device,
			&s->backend, e))
		return;
	dev = backend_device(s->backend);
	c->reply = json_pack("{s:s, s:s, s:s, s:b}", "backend", backend_name(s->backend), "device", dev->name,
		"isa", dev->isa, "invariant", backend_has(s->backend, TNP_F_INVARIANT));
}

static int serve(struct stepper *s, struct command *c)
{
	const struct sched_sink sink = {
		.ctx = s, .state = on_state, .tokens = on_tokens, .done = on_done, .error = on_error
	};
	struct served *m = mem_zalloc(MEM_DAEMON, 1, sizeof *m);
	struct sched_config sc = { 0 };
	int rc;

	if (!m)
		return error_set(&c->error, TENON_E_NOMEM, "model: out of memory");
	c->options.path = c->path;
	c->options.backend = s->backend;
	rc = model_open(&c->options, &m->model, &c->error);
	if (!rc)
		sc.engine = sched_engine_of(m->model);
	if (!rc)
		rc = sched_create(&sc, &sink, &m->sched, &c->error);
	if (rc) {
		model_close(m->model);
		mem_free(m);
		return rc;
	}
	m->owner = s;
	memcpy(m->name, c->model, sizeof m->name);
	s->served[s->n_served++] = m;
	c->loaded = m->model;
	c->reply = json_pack("{s:o}", "info", worker_model_json(m->model));
	return TENON_OK;
}

static void load(struct stepper *s, struct command *c)
{
	if (!s->backend)
		(void)error_set(&c->error, TENON_E_BACKEND, "model: the worker has no backend");
	else if (find(s, c->model))
		(void)error_set(&c->error, TENON_E_BUSY, "model: is loaded already");
	else if (s->n_served == WORKER_MODELS_MAX)
		(void)error_set(&c->error, TENON_E_NOMEM, "model: %d are loaded, which is the most",
			WORKER_MODELS_MAX);
	else
		(void)serve(s, c);
}

static void close_served(struct stepper *s, uint32_t i)
{
	struct served *m = s->served[i];

	s->served[i] = s->served[--s->n_served];
	sched_destroy(m->sched);
	model_close(m->model);
	mem_free(m);
}

static void unload(struct stepper *s, struct command *c)
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
		close_served(s, i);
		c->reply = json_object();
		return;
	}
	(void)error_set(&c->error, TENON_E_NOT_FOUND, "model: is not loaded");
}

static json_t *status_of(const struct served *m)
{
	const struct model_info *info = model_info(m->model);
	struct sched_status st;
	json_t *pages = json_array();

	sched_get_status(m->sched, &st);
	for (uint32_t g = 0; g < info->n_groups && g < KV_MAX_GROUPS; g++)
		(void)json_array_append_new(pages,
			json_pack("{s:I, s:I}", "free", (json_int_t)st.pages_free[g], "total",
				(json_int_t)st.pages_total[g]));
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name", m->name,
		"waiting", (json_int_t)st.waiting, "running", (json_int_t)st.running, "paused",
		(json_int_t)st.paused, "steps", (json_int_t)st.steps, "prefill_tokens",
		(json_int_t)st.prefill_tokens, "decode_tokens", (json_int_t)st.decode_tokens, "step_ns",
		(json_int_t)st.step_ns, "ended", (json_int_t)st.ended, "cancelled", (json_int_t)st.cancelled,
		"failed", (json_int_t)st.failed, "pages", pages);
}

static void status(struct stepper *s, struct command *c)
{
	json_t *models = json_array();

	for (uint32_t i = 0; i < s->n_served; i++)
		(void)json_array_append_new(models, status_of(s->served[i]));
	c->reply = json_pack("{s:o}", "models", models);
}

static void obey(struct stepper *s, struct command *c)
{
	static const enum box_phase phases[] = {
		[COMMAND_SETUP] = BOX_START, [COMMAND_LOAD] = BOX_LOAD, [COMMAND_UNLOAD] = BOX_UNLOAD
	};

	if (c->kind <= COMMAND_UNLOAD)
		box_begin(s->box, phases[c->kind], c->model);
	if (c->kind == COMMAND_SETUP)
		setup(s, c);
	else if (c->kind == COMMAND_LOAD)
		load(s, c);
	else if (c->kind == COMMAND_UNLOAD)
		unload(s, c);
	else
		status(s, c);
	if (!c->reply && !c->error.code)
		(void)error_set(&c->error, TENON_E_NOMEM, "worker: out of memory");
	box_begin(s->box, BOX_IDLE, NULL);
	s->idle = true;
	outcomes_push(&s->w->outcomes, c);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------- */

static void take_orders(struct stepper *s)
{
	struct order o;

	while (!s->stop && orders_take(&s->w->orders, &o)) {
		switch (o.kind) {
		case ORDER_SUBMIT:
			submit(s, o.what);
			break;
		case ORDER_COMMAND:
			obey(s, o.what);
			break;
		case ORDER_STOP:
			s->stop = true;
			break;
		default:
			steer(s, &o);
		}
	}
}

/* Only a fresh process helps: told to the IO thread, which ends the worker. */
static void fail(struct stepper *s, const struct error *why)
{
	struct command *c = mem_zalloc(MEM_DAEMON, 1, sizeof *c);

	s->failed = true;
	if (!c)
		_exit(4);
	c->kind = COMMAND_FAILED;
	c->error = *why;
	outcomes_push(&s->w->outcomes, c);
}

/* One step of every model that has work. False: none had. */
static bool step_all(struct stepper *s)
{
	uint32_t running = 0, waiting = 0;
	bool any = false;

	for (uint32_t i = 0; i < s->n_served && !s->failed; i++) {
		struct served *m = s->served[i];
		struct error e = { 0 };
		struct sched_status st;
		int rc;

		box_begin(s->box, BOX_STEP, m->name);
		rc = sched_step(m->sched, &e);
		any |= !rc;
		if (rc && rc != TENON_E_AGAIN)
			fail(s, &e);
		sched_get_status(m->sched, &st);
		running += st.running;
		waiting += st.waiting;
		flush(s);
	}
	if (any)
		atomic_fetch_add_explicit(&s->w->steps, 1, memory_order_relaxed);
	atomic_store_explicit(&s->w->running, running, memory_order_relaxed);
	atomic_store_explicit(&s->w->waiting, waiting, memory_order_relaxed);
	s->idle = false;
	return any;
}

static void rest(struct stepper *s)
{
	if (!s->idle)
		box_begin(s->box, BOX_IDLE, NULL);
	s->idle = true;
	orders_wait(&s->w->orders);
}

static void finish(struct stepper *s)
{
	struct order o;

	while (s->n_served)
		close_served(s, s->n_served - 1);
	backend_close(s->backend);
	plugins_close(s->plugins);
	setup_free(s->setup);
	while (orders_take(&s->w->orders, &o)) {
		if (o.kind == ORDER_SUBMIT)
			prepared_free(o.what);
		else if (o.kind == ORDER_COMMAND)
			command_free(o.what);
	}
}

void *worker_step_main(void *worker)
{
	struct worker *w = worker;
	struct stepper s = { .w = w, .tok = &w->ends->tok, .box = &w->ends->box, .idle = true };

	while (!s.stop) {
		take_orders(&s);
		flush(&s);
		if (!s.stop && (s.failed || !step_all(&s)))
			rest(&s);
	}
	box_begin(s.box, BOX_IDLE, NULL);
	finish(&s);
	return NULL;
}
