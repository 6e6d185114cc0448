/* SPDX-License-Identifier: Apache-2.0
 * The step thread of a worker: owner of the backends, of the models and of their schedulers; the only producer of the
 * `tok` link. Orders are looked at between steps. A lost device ends the worker: the daemon replays elsewhere.
 */
#include "daemon/worker_step.h"
#include <string.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 5 };
#define TEND_IDLE_NS  (10 * NS_PER_MS)
#define TEND_BUSY_NS  (2 * NS_PER_MS)
#define TEND_EVERY_NS (250 * NS_PER_MS)

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

static void on_embedding(void *ctx, uint64_t id, const float *row, uint32_t n, uint32_t n_prompt)
{
	struct wire_embedding *w = put(ctx, WIRE_EMBEDDING, id, (uint32_t)(sizeof *w + n * sizeof *row));

	if (!w)
		return;
	*w = (struct wire_embedding){ .n = n, .n_prompt = n_prompt };
	memcpy(w + 1, row, n * sizeof *row);
}

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

static void submit(struct stepper *s, struct prepared *p)
{
	struct served *m = served_find(s, p->model);
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

void worker_answer(struct stepper *s, struct command *c)
{
	if (!c->reply && !c->error.code)
		(void)error_set(&c->error, TENON_E_NOMEM, "worker: out of memory");
	outcomes_push(&s->w->outcomes, c);
}

static void obey(struct stepper *s, struct command *c)
{
	bool later = false;
	static const enum box_phase phases[] = {
		[COMMAND_SETUP] = BOX_START, [COMMAND_LOAD] = BOX_LOAD, [COMMAND_UNLOAD] = BOX_UNLOAD
	};

	if (c->kind <= COMMAND_UNLOAD)
		box_begin(s->box, phases[c->kind], c->model);
	switch (c->kind) {
	case COMMAND_SETUP:
		worker_setup(s, c);
		break;
	case COMMAND_LOAD:
		later = !worker_load(s, c);
		break;
	case COMMAND_UNLOAD:
		worker_unload(s, c);
		break;
	case COMMAND_CONFIGURE:
		worker_configure(s, c);
		break;
	case COMMAND_LIST:
		c->reply = worker_list_json(s);
		break;
	case COMMAND_PREFIX:
		worker_prefix(s, c);
		break;
	default:
		c->reply = worker_status_json(s);
	}
	box_begin(s->box, BOX_IDLE, NULL);
	s->idle = true;
	if (!later)
		worker_answer(s, c);
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

static void look(struct served *m)
{
	struct sched_status st;

	sched_get_status(m->sched, &st);
	m->running = st.running;
	m->waiting = st.waiting;
}

/* For the daemon's health frame. Returns how many requests could go on by themselves. */
static uint32_t tell_counts(struct stepper *s)
{
	uint32_t running = 0, waiting = 0;

	for (uint32_t i = 0; i < s->n_served; i++) {
		running += s->served[i]->running;
		waiting += s->served[i]->waiting;
	}
	atomic_store_explicit(&s->w->running, running, memory_order_relaxed);
	atomic_store_explicit(&s->w->waiting, waiting, memory_order_relaxed);
	return running + waiting;
}

/* Up to about budget_ns of work that nobody waits for. */
static void tend(struct stepper *s, struct served *m, uint64_t budget_ns)
{
	box_begin(s->box, BOX_STEP, m->name);
	s->idle = false;
	m->restless = sched_tend(m->sched, budget_ns);
	m->tended_ns = clock_now_ns();
	if (!m->cost_saved && m->keep_cost && cost_calibrated(m->cost))
		served_keep_cost(m);
}

static bool step_one(struct stepper *s, struct served *m)
{
	struct error e = { 0 };
	int rc;

	box_begin(s->box, BOX_STEP, m->name);
	s->idle = false;
	rc = sched_step(m->sched, &e);
	if (rc && rc != TENON_E_AGAIN)
		fail(s, &e);
	look(m);
	flush(s);
	m->restless |= !rc;
	return !rc;
}

/* One step of one model: those with online work take turns, and while there are any, the others hold offline work back.
 * False: no model had anything to do. */
static bool advance(struct stepper *s)
{
	bool online[WORKER_MODELS_MAX], any = false;
	uint32_t n_online = 0;

	for (uint32_t i = 0; i < s->n_served; i++) {
		online[i] = sched_wants(s->served[i]->sched) == SCHED_WANT_ONLINE;
		n_online += online[i];
	}
	for (uint32_t n = 0; n < s->n_served && !any && !s->failed; n++) {
		uint32_t i = (s->turn + n) % s->n_served;
		struct served *m = s->served[i];

		sched_set_company(m->sched, n_online > online[i]);
		any = step_one(s, m);
		if (any)
			s->turn = i + 1;
		if (any && !n_online && m->restless && clock_now_ns() - m->tended_ns > TEND_EVERY_NS)
			tend(s, m, TEND_BUSY_NS);
	}
	if (any)
		atomic_fetch_add_explicit(&s->w->steps, 1, memory_order_relaxed);
	return any;
}

/* A slice of what nobody waits for, short enough that an order is noticed. False: nothing left. */
static bool tend_one(struct stepper *s)
{
	for (uint32_t n = 0; n < s->n_served; n++) {
		struct served *m = s->served[(s->turn + n) % s->n_served];

		if (!m->restless)
			continue;
		s->turn++;
		tend(s, m, TEND_IDLE_NS);
		flush(s);
		return true;
	}
	return false;
}

/* Until an order comes. Requests that wait for time to pass (a deadline, a higher priority) are looked at soon. */
static void rest(struct stepper *s)
{
	uint32_t open = tell_counts(s);

	if (!s->idle)
		box_begin(s->box, BOX_IDLE, NULL);
	s->idle = true;
	orders_wait(&s->w->orders, open && !s->failed ? LOOK_AGAIN_MS : -1);
}

static void finish(struct stepper *s)
{
	struct order o;

	worker_load_stop(s);
	while (s->n_served)
		served_close(s, s->n_served - 1);
	backends_close(&s->backends);
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

	slice_ask(SLICE_COMPUTE_NS); /* and what this thread starts: the backends' threads, loaders */
	s.progress = (struct backend_progress){ worker_load_tell, s.box };
	s.beside = (struct backend_progress){ worker_load_tell_beside, s.box };
	s.sink = (struct sched_sink){ .ctx = &s,
		.state = on_state,
		.tokens = on_tokens,
		.done = on_done,
		.error = on_error,
		.embedding = on_embedding };
	while (!s.stop) {
		take_orders(&s);
		worker_load_poll(&s);
		flush(&s);
		if (s.stop)
			break;
		if (s.failed || (!advance(&s) && !tend_one(&s)))
			rest(&s);
		else
			(void)tell_counts(&s);
	}
	box_begin(s.box, BOX_IDLE, NULL);
	finish(&s);
	return NULL;
}
