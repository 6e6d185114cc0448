/* SPDX-License-Identifier: Apache-2.0
 * load.h: tenond as a server, one session a client. Doorbells by eventfd, no spinning: on a machine with few cores a
 * spinning client would measure itself.
 */
#include "tools/ctl.h"
#include "tools/load.h"
#include <poll.h>
#include <string.h>
#include <tenon/wire.h>
#include <time.h>

enum { OPEN_MAX_CLIENT = 1024, ASK_MS = 5000 };

struct conn {
	struct tenon *t;
	struct load_item *open[OPEN_MAX_CLIENT];
	uint32_t n_open;
};
struct load_tenon {
	const char *model; /* borrowed */
	char admin[128];   /* "": no way there */
	uint32_t n;
	struct pollfd *fds;
	struct conn conn[];
};

static int submit(void *ctx, struct load_item *it, struct error *e)
{
	struct load_tenon *l = ctx;
	struct conn *c = &l->conn[it->client % l->n];
	struct tenon_request q = TENON_REQUEST_INIT;
	struct tenon_error te = { 0 };
	int rc;

	q.model = l->model;
	q.ids = it->ids;
	q.n_ids = it->n_ids;
	q.max_tokens = it->n_new;
	q.ignore_eos = 1;
	q.traffic_class = it->traffic_class;
	q.ttft_ms = it->ttft_ms;
	q.tpot_ms = it->tpot_ms;
	q.tenant = it->tenant;
	rc = c->n_open < OPEN_MAX_CLIENT ? tenon_submit(c->t, &q, &it->id, &te) : TENON_E_FULL;
	if (rc == TENON_E_GONE)
		return error_set(e, rc, "%s", te.text);
	if (rc)
		load_item_saw_end(it, rc, te.text, strlen(te.text), clock_now_ns());
	else
		c->open[c->n_open++] = it;
	MEM_CLEAR(it->ids);
	return TENON_OK;
}

static void cancel(void *ctx, struct load_item *it)
{
	struct load_tenon *l = ctx;

	(void)tenon_cancel(l->conn[it->client % l->n].t, it->id);
}

static void take_event(struct conn *c, const struct tenon_event *ev, uint64_t now_ns)
{
	struct load_item *it;
	uint32_t i = 0;

	while (i < c->n_open && c->open[i]->id != ev->request)
		i++;
	if (i == c->n_open)
		return;
	it = c->open[i];
	if (ev->kind == TENON_EVENT_STATE && ev->phase == WIRE_PREFILL)
		load_item_saw_prompt(it, (uint32_t)((uint64_t)it->n_ids * (uint32_t)ev->permille / 1000));
	else if (ev->kind == TENON_EVENT_TOKENS)
		load_item_saw_tokens(it, (uint32_t)ev->n_ids, now_ns);
	if (!ev->last)
		return;
	it->n_cached = ev->n_cached;
	it->n_preempted = ev->n_preempted;
	load_item_saw_end(
		it, ev->kind == TENON_EVENT_ERROR ? ev->code : TENON_OK, ev->text, ev->text_len, now_ns);
	c->open[i] = c->open[--c->n_open];
}

/* All events there are. 1: there were some; 0: none, and it is right to sleep; else an error. */
static int drain_conn(struct conn *c, struct error *e)
{
	struct tenon_event ev;
	bool any = false;
	int rc;

	do {
		while (!(rc = tenon_next(c->t, &ev, 0))) {
			any = true;
			take_event(c, &ev, clock_now_ns());
		}
		if (rc != TENON_E_AGAIN)
			return error_set(e, rc, "tenond: %s", tenon_error_name(rc));
		rc = any ? TENON_OK : tenon_poll_arm(c->t);
	} while (rc == TENON_E_AGAIN);
	return rc ? error_set(e, rc, "tenond: %s", tenon_error_name(rc)) : any;
}

/* Interrupted, it still takes what there is: those who then cancel wait for the ends. */
static int wait_events(void *ctx, uint64_t until_ns, struct error *e)
{
	struct load_tenon *l = ctx;

	do {
		uint64_t now = clock_now_ns(), left = until_ns > now ? MIN_OF(until_ns - now, NS_PER_S) : 0;
		struct timespec ts = { .tv_sec = (time_t)(left / NS_PER_S),
			.tv_nsec = (long)(left % NS_PER_S) };
		bool any = false;

		for (uint32_t i = 0; i < l->n; i++) {
			int rc = drain_conn(&l->conn[i], e);

			if (rc < 0)
				return rc;
			any |= rc;
		}
		if (any || !left)
			return TENON_OK;
		(void)ppoll(l->fds, l->n, &ts, NULL);
	} while (!session_interrupted());
	return TENON_OK;
}

/* What the worker says about its models; NULL: it cannot be asked. */
static json_t *ask_models(const struct load_tenon *l)
{
	json_t *question = json_pack("{s:s}", "cmd", "queue"), *answer = NULL, *models = NULL;

	if (l->admin[0] && !ctl_ask(l->admin, question, ASK_MS, &answer, NULL))
		models = json_incref(json_object_get(json_object_get(answer, "worker"), "models"));
	json_decref(answer);
	json_decref(question);
	return models;
}

static bool counters(void *ctx, struct load_counters *out)
{
	json_t *models = ask_models(ctx);

	*out = (struct load_counters){ .calibrated = true };
	for (size_t i = 0; i < json_array_size(models); i++) {
		const json_t *m = json_array_get(models, i);

		out->step_ns += (uint64_t)(json_number_value(json_object_get(m, "step_ms")) * 1e6);
		out->steps += (uint64_t)json_integer_value(json_object_get(m, "steps"));
		out->calibrated &= json_is_true(json_object_get(json_object_get(m, "cost"), "calibrated"));
	}
	json_decref(models);
	return out->steps && out->step_ns;
}

static json_t *about(void *ctx) { return ask_models(ctx); }

static void close_all(void *ctx)
{
	struct load_tenon *l = ctx;

	for (uint32_t i = 0; i < l->n; i++)
		tenon_close(l->conn[i].t);
	mem_free(l->fds);
	mem_free(l);
}

static int connect_all(struct load_tenon *l, const struct session *s, struct error *e)
{
	struct tenon_options o = {
		.size = sizeof o, .socket = *s->socket ? s->socket : NULL, .eventfd_bell = 1, .spin_us = 1
	};
	struct tenon_error te = { 0 };
	int rc = TENON_OK;

	for (uint32_t i = 0; i < l->n && !rc; i++) {
		rc = tenon_connect(&o, &l->conn[i].t, &te);
		if (!rc)
			l->fds[i] = (struct pollfd){ .fd = tenon_fd(l->conn[i].t), .events = POLLIN };
	}
	return rc ? error_set(e, rc, "%s", te.text) : TENON_OK;
}

int load_tenon_open(struct load_server *out, const struct session *s, const char *model, uint32_t n_clients,
	struct error *e)
{
	struct load_tenon *l = mem_zalloc(MEM_TOOL, 1, sizeof *l + n_clients * sizeof l->conn[0]);
	int rc;

	if (!l)
		return error_set(e, TENON_E_NOMEM, "load: out of memory");
	*l = (struct load_tenon){
		.model = model, .n = n_clients, .fds = mem_zalloc(MEM_TOOL, n_clients, sizeof *l->fds)
	};
	if (ctl_path(*s->socket ? s->socket : NULL, l->admin, sizeof l->admin, NULL))
		l->admin[0] = 0;
	rc = l->fds ? connect_all(l, s, e) : error_set(e, TENON_E_NOMEM, "load: out of memory");
	if (rc) {
		close_all(l);
		return rc;
	}
	*out = (struct load_server){ .ctx = l,
		.submit = submit,
		.cancel = cancel,
		.wait = wait_events,
		.counters = counters,
		.about = about,
		.close = close_all };
	return TENON_OK;
}
