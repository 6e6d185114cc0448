/* SPDX-License-Identifier: Apache-2.0
 * request.h: from BEGIN to the worker, and back from the worker's frames to the client. Loop thread. What a worker
 * sends is checked like what a client sends.
 */
#include "daemon/daemon.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { IDS_DEFAULT = 8192, IDS_RESERVED_MAX = 32768, IDS_MIN = 16, IDS_MAX = 1 << 20 };

void requests_init(struct requests *t)
{
	*t = (struct requests){ 0 };
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		t->free[t->n_free++] = (uint16_t)(REQUESTS_MAX - 1 - i);
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

static void request_free(struct request *r)
{
	struct daemon *d = r->d;
	struct requests *t = &d->requests;

	node_remove(&r->node);
	node_remove(&r->control);
	timer_clear(&d->loop.timers, &r->deadline);
	t->slot[r->slot] = NULL;
	t->free[t->n_free++] = (uint16_t)r->slot;
	t->n_open--;
	t->n_orphans -= !r->session && !r->detached;
	t->n_at_worker -= r->begun;
	r->account->n_in_flight--;
	if (r->model)
		model_request_gone(r->model);
	mem_free(r->body);
	mem_free(r->payload);
	mem_free(r->ids);
	mem_free(r);
	daemon_request_gone(d);
}

/* Out of its session's sight, which has been told. */
static void leave_session(struct request *r)
{
	struct session *s = r->session;

	if (!s) {
		r->d->requests.n_orphans += r->detached;
		r->detached = false;
		return;
	}
	s->n_filling -= r->state == REQUEST_FILLING;
	session_forget(s, r);
	r->session = NULL;
	r->d->requests.n_orphans++;
}

static void end_job(struct request *r, int code, const char *text)
{
	if (r->job)
		job_failed(r->job, code, text);
	r->job = NULL;
}

/* Nobody waits for it any more: gone at once, or when the worker has confirmed. */
static void let_go(struct request *r)
{
	if (!r->begun) {
		request_free(r);
		return;
	}
	node_remove(&r->node); /* nothing more of its payload */
	r->cancel_wanted = true;
	worker_link_control(&r->d->worker, r);
}

void request_drop(struct request *r)
{
	r->d->requests.n_cancelled += r->session != NULL;
	end_job(r, TENON_E_CANCELLED, "request: cancelled by its client");
	leave_session(r);
	let_go(r);
}

/* A prompt that never came is nothing to go on with. */
void request_leave(struct request *r)
{
	if (!r->job || r->state == REQUEST_FILLING) {
		request_drop(r);
		return;
	}
	session_forget(r->session, r);
	r->session = NULL;
	r->detached = true;
	request_set_paused(r, false);
}

bool request_adopt(struct request *r, struct session *s, uint64_t id)
{
	uint64_t old = r->id;

	r->id = id;
	if (session_adopt(s, r)) {
		r->id = old;
		return false;
	}
	r->session = s;
	r->detached = false;
	request_set_paused(r, s->paused);
	return true;
}

void request_fail(struct request *r, int code, const char *text)
{
	struct session *s = r->session;

	if (s && code == TENON_E_CANCELLED)
		r->d->requests.n_cancelled++;
	else if (s || r->job)
		r->d->requests.n_failed++;
	end_job(r, code, text);
	leave_session(r);
	if (s)
		session_send_error(s, r->id, code, text);
	let_go(r);
}

void requests_cancel_of(struct daemon *d, const struct model_entry *m, const char *text)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *r = d->requests.slot[i];

		if (r && (r->session || r->job) && r->model == m)
			request_fail(r, TENON_E_CANCELLED, text);
	}
}

void requests_finish(struct daemon *d)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *r = d->requests.slot[i];

		if (!r)
			continue;
		r->job = NULL;
		leave_session(r);
		request_free(r);
	}
}

/* ---- from the client ------------------------------------------------------------------------------------------------- */

static const void *moved(const void *p, const uint8_t *from, const uint8_t *to)
{
	return p ? to + ((const uint8_t *)p - from) : NULL;
}

/* f points into `from`; a copy of its first part, and f pointing into that. */
static bool keep_body(struct request *r, const struct frame_request *f, const uint8_t *from)
{
	size_t bytes = (size_t)(f->payload - from);

	r->body = mem_alloc(MEM_DAEMON, bytes);
	if (!r->body)
		return false;
	memcpy(r->body, from, bytes);
	r->f = *f;
	r->f.model = moved(f->model, from, r->body);
	r->f.bias = moved(f->bias, from, r->body);
	r->f.tenant = moved(f->tenant, from, r->body);
	r->f.job = moved(f->job, from, r->body);
	for (uint32_t i = 0; i < f->r.n_stop; i++)
		r->f.stop[i].s = moved(f->stop[i].s, from, r->body);
	r->f.history = NULL;
	r->f.payload = NULL;
	return true;
}

static bool reserve_ids(struct request *r)
{
	uint32_t want = r->f.r.max_tokens ? r->f.r.max_tokens : IDS_DEFAULT;

	r->cap_ids = MAX_OF(MIN_OF(want, (uint32_t)IDS_RESERVED_MAX), (uint32_t)IDS_MIN);
	r->ids = mem_alloc(MEM_DAEMON, r->cap_ids * sizeof *r->ids);
	return r->ids != NULL;
}

static void on_deadline(struct timer *t, uint64_t now_ns)
{
	struct request *r = CONTAINER_OF(t, struct request, deadline);

	(void)now_ns;
	r->d->requests.n_deadline++;
	request_fail(r, TENON_E_TIMEOUT, "request: its deadline has passed");
}

/* A slot, its memory and its place in session and account; NULL: no memory. */
static struct request *create(
	struct session *s, uint64_t id, const struct frame_request *f, const uint8_t *body)
{
	struct requests *t = &s->d->requests;
	struct request *r = mem_zalloc(MEM_DAEMON, 1, sizeof *r);

	if (!r)
		return NULL;
	r->d = s->d;
	r->id = id;
	r->session = s;
	r->account = s->account;
	r->deadline.fire = on_deadline;
	r->payload_bytes = f->r.payload_bytes;
	r->payload = mem_alloc(MEM_DAEMON, r->payload_bytes);
	if (!r->payload || !keep_body(r, f, body) || !reserve_ids(r) || session_adopt(s, r)) {
		mem_free(r->payload);
		mem_free(r->body);
		mem_free(r->ids);
		mem_free(r);
		return NULL;
	}
	r->slot = t->free[--t->n_free];
	t->slot[r->slot] = r;
	t->n_open++;
	t->n_begun++;
	s->account->n_in_flight++;
	s->n_filling++;
	return r;
}

static int admission(const struct session *s, bool last, struct error *e)
{
	const struct daemon *d = s->d;

	if (d->draining)
		return error_set(e, TENON_E_DRAINING, "request: the daemon is shutting down");
	if (s->account->n_in_flight >= d->conf.limits.in_flight_per_uid)
		return error_set(e, TENON_E_FULL,
			"request: this user has %u requests open (limits.in_flight_per_uid); wait for one",
			s->account->n_in_flight);
	if (d->requests.n_open >= d->conf.limits.in_flight)
		return error_set(e, TENON_E_FULL,
			"request: %u requests are open (limits.in_flight); try again later",
			d->requests.n_open);
	if (!last && s->n_filling >= SESSION_FILLING_MAX)
		return error_set(
			e, TENON_E_FULL, "request: %u prompts are unfinished; end one first", s->n_filling);
	return TENON_OK;
}

struct whom {
	char tenant[WIRE_MAX_TENANT_BYTES + 1];
	uint32_t weight; /* thousandths */
};

/* For whom: an entry of the config that the session's user may speak for, or the user alone. */
static int find_tenant(
	const struct session *s, const struct frame_request *f, struct whom *out, struct error *e)
{
	const struct conf *c = &s->d->conf;
	uint32_t uid = s->account->uid, len = f->r.tenant_bytes;
	bool any = !uid || uid == geteuid();
	const struct conf_tenant *t =
		len ? conf_tenant_named(c, f->tenant, len, uid, any) : conf_tenant_of(c, uid);
	char own[24], names[128];

	(void)snprintf(own, sizeof own, "uid:%u", uid);
	if (len && !t && (conf_tenant_of(c, uid) || len != strlen(own) || memcmp(own, f->tenant, len))) {
		conf_tenants_allowed(c, uid, any, names, sizeof names);
		return error_set(e, TENON_E_DENIED,
			"request: tenant '%.*s' is not for this user; allowed: %s", (int)len, f->tenant,
			names);
	}
	(void)snprintf(out->tenant, sizeof out->tenant, "%s", t ? t->name : own);
	out->weight = t ? (uint32_t)(t->weight * 1000 + 0.5) : 1000;
	return TENON_OK;
}

/* Tenant, model, job: what BEGIN names. */
static int identify(struct request *r, struct error *e)
{
	struct whom w = { "", 0 };
	int rc = find_tenant(r->session, &r->f, &w, e);

	memcpy(r->tenant, w.tenant, sizeof r->tenant);
	r->tenant_weight = w.weight;
	if (!rc)
		rc = models_find(r->d, r->f.model, r->f.r.model_bytes, &r->model, e);
	if (!rc && (r->f.r.flags & WIRE_R_DURABLE))
		rc = job_create(r, r->f.job, r->f.r.job_bytes, &r->job, e);
	if (rc)
		r->model = NULL; /* does not count it yet */
	return rc;
}

/* Nothing is computed: a kept answer is told, or a running request gets a reader. */
static void collect(struct session *s, uint64_t id, const struct frame_request *f)
{
	struct error e = { 0 };
	struct whom w;

	if (find_tenant(s, f, &w, &e) || job_collect(s, id, w.tenant, f->job, f->r.job_bytes, &e))
		session_send_error(s, id, e.code, e.text);
}

bool request_begin(struct session *s, uint64_t id, const struct frame_request *f, const uint8_t *body,
	uint32_t bytes, bool last)
{
	struct error e = { 0 };
	struct request *r = NULL;

	(void)bytes;
	if (f->r.flags & WIRE_R_COLLECT) {
		collect(s, id, f);
		return last;
	}
	if (!admission(s, last, &e))
		r = create(s, id, f, body);
	if (!r) {
		s->d->requests.n_failed++;
		session_send_error(
			s, id, e.code ? e.code : TENON_E_NOMEM, e.code ? e.text : "request: out of memory");
		return true;
	}
	if (identify(r, &e)) {
		request_fail(r, e.code, e.text);
		return true;
	}
	model_request_begun(r->model);
	if (request_data(r, f->payload, f->payload_here))
		return false;
	return !last || !request_end(r);
}

int request_data(struct request *r, const uint8_t *data, uint32_t bytes)
{
	if (bytes > r->payload_bytes - r->payload_have)
		return TENON_E_PROTOCOL;
	memcpy(r->payload + r->payload_have, data, bytes);
	r->payload_have += bytes;
	return TENON_OK;
}

/* Only where the config asks for it, and the first part only: a log line has an end. */
static void log_prompt(const struct request *r)
{
	if (!r->d->conf.log.prompts || r->f.r.input == WIRE_IDS)
		return;
	TOPIC_LOG(r->d, LOG_TRACE, "prompt", "session=%llu request=%llu text=%.*s",
		(unsigned long long)r->session->link.session, (unsigned long long)r->id,
		(int)MIN_OF(r->payload_bytes, 900u), (const char *)r->payload);
}

int request_end(struct request *r)
{
	uint64_t now_ns = r->d->loop.now_ns;

	if (r->payload_have != r->payload_bytes)
		return TENON_E_PROTOCOL;
	r->session->n_filling--;
	r->state = REQUEST_WAITING;
	r->time.arrived_ns = now_ns;
	r->f.r.arrived_s = (uint32_t)time(NULL);
	log_prompt(r);
	if (r->f.r.deadline_ns &&
		!timer_set(&r->d->loop.timers, &r->deadline,
			now_ns + MIN_OF(r->f.r.deadline_ns, UINT64_MAX / 4))) {
		request_fail(r, TENON_E_NOMEM, "request: out of memory");
		return TENON_OK;
	}
	model_enqueue(r->model, r);
	return TENON_OK;
}

/* ---- to the worker ----------------------------------------------------------------------------------------------------- */

void request_dispatch(struct request *r)
{
	node_remove(&r->node);
	if (r->waiting_ns)
		r->time.load_ns += r->d->loop.now_ns - r->waiting_ns;
	r->waiting_ns = 0;
	r->state = REQUEST_SENDING;
	worker_link_submit(&r->d->worker, r);
}

void request_set_paused(struct request *r, bool paused)
{
	r->pause_wanted = paused;
	if (r->begun && r->paused != paused)
		worker_link_control(&r->d->worker, r);
}

/* What of the deadline is left; the daemon's own timer is the authority. */
static uint64_t deadline_left(const struct request *r)
{
	uint64_t gone = r->d->loop.now_ns - r->time.arrived_ns;

	if (!r->f.r.deadline_ns)
		return 0;
	return r->f.r.deadline_ns > gone ? r->f.r.deadline_ns - gone : 1;
}

static bool put_begin(struct request *r, struct ring_out *out, uint32_t most, bool *bad)
{
	struct frame_request f = r->f;
	uint64_t wid = (r->d->requests.counter + 1) << REQUEST_SLOT_BITS | r->slot;
	uint32_t part;
	bool whole;
	uint8_t *at;

	f.model = r->model->name; /* the client may have named none */
	f.r.model_bytes = (uint32_t)strlen(f.model);
	f.r.n_history = r->n_ids;
	f.r.flags |= r->n_replayed ? WIRE_R_AGAIN : 0;
	f.r.history_text_bytes = r->text_bytes;
	f.r.deadline_ns = deadline_left(r);
	f.tenant = r->tenant;
	f.r.tenant_bytes = (uint32_t)strlen(r->tenant);
	f.r.tenant_weight = r->tenant_weight;
	f.r.flags &= ~WIRE_R_DURABLE; /* the daemon's affair */
	f.r.job_bytes = 0;
	f.history = r->ids;
	part = frame_request_bytes(&f);
	whole = part + r->payload_bytes <= most;
	at = ring_put(out, WIRE_BEGIN, whole ? WIRE_LAST : 0, wid,
		part + (whole ? (uint32_t)r->payload_bytes : 0), bad);
	if (!at)
		return false;
	(void)frame_request_write(&f, at, part);
	if (whole)
		memcpy(at + part, r->payload, r->payload_bytes);
	r->payload_sent = whole ? r->payload_bytes : 0;
	r->d->requests.counter++;
	r->wid = wid;
	r->begun = true;
	r->d->requests.n_at_worker++;
	r->state = whole ? REQUEST_RUNNING : REQUEST_SENDING;
	return true;
}

static bool put_payload(struct request *r, struct ring_out *out, uint32_t most, bool *bad)
{
	while (r->payload_sent < r->payload_bytes) {
		uint32_t n = (uint32_t)MIN_OF(r->payload_bytes - r->payload_sent, (uint64_t)most / 2);
		uint8_t *at = ring_put(out, WIRE_DATA, 0, r->wid, n, bad);

		if (!at)
			return false;
		memcpy(at, r->payload + r->payload_sent, n);
		r->payload_sent += n;
	}
	if (!ring_put(out, WIRE_END, 0, r->wid, 0, bad))
		return false;
	r->state = REQUEST_RUNNING;
	return true;
}

bool request_put(struct request *r, struct ring_out *out, bool *bad)
{
	uint32_t most = ring_max_frame(out->capacity) - (uint32_t)sizeof(struct wire_head);

	if (!r->begun && !put_begin(r, out, most, bad))
		return false;
	if (r->state == REQUEST_SENDING && !put_payload(r, out, most, bad))
		return false;
	if (r->lost && r->session)
		session_send_state(r->session, r->id, WIRE_RESUMED, 0);
	r->lost = false;
	return true;
}

static int by_arrival(const void *a, const void *b)
{
	const struct request *x = *(struct request *const *)a, *y = *(struct request *const *)b;

	return x->time.arrived_ns < y->time.arrived_ns ? -1 : x->time.arrived_ns > y->time.arrived_ns;
}

static void requeue(struct request *r)
{
	node_remove(&r->node);
	node_remove(&r->control);
	r->d->requests.n_at_worker -= r->begun;
	if (r->begun) {
		r->n_replayed++;
		r->d->requests.n_replays++;
		r->lost = true;
	}
	r->begun = r->paused = false;
	r->wid = r->payload_sent = 0;
	if (!r->session && !r->detached) {
		request_free(r);
		return;
	}
	r->state = REQUEST_WAITING;
	model_enqueue(r->model, r);
}

void requests_requeue(struct daemon *d)
{
	struct request *sorted[REQUESTS_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *r = d->requests.slot[i];

		if (r && r->state >= REQUEST_SENDING)
			sorted[n++] = r;
	}
	qsort(sorted, n, sizeof *sorted, by_arrival);
	for (uint32_t i = 0; i < n; i++)
		requeue(sorted[i]);
}

/* ---- from the worker ----------------------------------------------------------------------------------------------------- */

static int broken(struct error *e, const char *what)
{
	return error_set(e, TENON_E_PROTOCOL, "worker: %s", what);
}

/* The frame as it is, under the client's id. */
static void pass_on(struct request *r, const struct wire_head *h, const uint8_t *body)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;
	bool too_long = false;
	void *to;

	if (!r->session)
		return;
	to = session_put(r->session, h->type, r->id, bytes, &too_long);
	if (to)
		memcpy(to, body, bytes);
	else if (too_long)
		request_fail(r, TENON_E_TOO_LONG,
			"request: an event is larger than a quarter of the session's ring; attach with a larger one");
}

static bool grow_ids(struct request *r, uint32_t n)
{
	int32_t *grown;
	uint32_t cap = MAX_OF(2 * r->cap_ids, r->n_ids + n);

	if (n <= r->cap_ids - r->n_ids)
		return true;
	grown = mem_resize(MEM_DAEMON, r->ids, cap * sizeof *grown);
	if (!grown)
		return false;
	r->ids = grown;
	r->cap_ids = cap;
	return true;
}

static int on_tokens(struct request *r, const struct wire_head *h, const uint8_t *body, struct error *e)
{
	uint32_t limit = r->f.r.max_tokens ? r->f.r.max_tokens : IDS_MAX;
	struct requests *all = &r->d->requests;
	struct wire_tokens t;

	memcpy(&t, body, sizeof t);
	if (t.n_tokens > limit - MIN_OF(limit, r->n_ids))
		return broken(e, "more tokens than asked for");
	if (!utf8_valid((const char *)body + sizeof t + 4 * t.n_tokens, t.text_bytes, NULL))
		return broken(e, "text is not UTF-8");
	if (!r->session && !r->detached)
		return TENON_OK;
	if (r->job &&
		!job_add(r->job, (const int32_t *)(const void *)(body + sizeof t), t.n_tokens,
			(const char *)body + sizeof t + 4 * t.n_tokens, t.text_bytes)) {
		request_fail(r, TENON_E_NOMEM, "request: kept answers take all of durable.mib");
		return TENON_OK;
	}
	if (!grow_ids(r, t.n_tokens)) {
		request_fail(r, TENON_E_NOMEM, "request: out of memory");
		return TENON_OK;
	}
	memcpy(r->ids + r->n_ids, body + sizeof t, 4 * (size_t)t.n_tokens);
	r->n_ids += t.n_tokens;
	r->text_bytes += t.text_bytes;
	if (r->session)
		r->session->n_tokens += t.n_tokens;
	all->n_tokens += t.n_tokens;
	if (!r->time.first_token_ns) {
		r->time.first_token_ns = r->d->loop.now_ns - r->time.arrived_ns;
		all->ttft_ns_sum += r->time.first_token_ns;
		all->n_ttft++;
	}
	r->time.transport_ns += r->d->worker.transport_ns;
	pass_on(r, h, body);
	return TENON_OK;
}

static int on_embedding(struct request *r, const struct wire_head *h, const uint8_t *body, struct error *e)
{
	if (!(r->f.r.flags & WIRE_R_EMBED))
		return broken(e, "embedding that nobody asked for");
	if (r->embedded)
		return TENON_OK;
	r->embedded = true;
	r->time.first_token_ns = r->d->loop.now_ns - r->time.arrived_ns;
	r->time.transport_ns += r->d->worker.transport_ns;
	pass_on(r, h, body);
	return TENON_OK;
}

static void on_done(struct request *r, const uint8_t *body)
{
	struct wire_done done, *to;
	uint64_t now_ns = r->d->loop.now_ns;

	memcpy(&done, body, sizeof done);
	done.n_generated = r->n_ids;
	done.n_replayed = r->n_replayed;
	done.time.arrived_ns = r->time.arrived_ns;
	done.time.load_ns = r->time.load_ns;
	done.time.transport_ns = r->time.transport_ns + r->d->worker.transport_ns;
	done.time.first_token_ns = r->time.first_token_ns;
	done.time.total_ns = now_ns - r->time.arrived_ns;
	r->d->requests.n_done += r->session || r->detached;
	if (r->job)
		job_done(r->job, &done);
	r->job = NULL;
	to = r->session ? session_put(r->session, WIRE_DONE, r->id, sizeof done, NULL) : NULL;
	if (to)
		*to = done;
	leave_session(r);
	request_free(r);
}

static void on_error(struct request *r, const uint8_t *body)
{
	char text[WIRE_MAX_ERROR_BYTES + 1];
	struct wire_error w;

	memcpy(&w, body, sizeof w);
	memcpy(text, body + sizeof w, w.text_bytes);
	text[w.text_bytes] = 0;
	r->d->requests.n_failed += r->session || r->detached;
	end_job(r, w.code, text);
	if (r->session)
		session_send_error(r->session, r->id, w.code, text);
	leave_session(r);
	request_free(r);
}

int request_event(struct daemon *d, const struct wire_head *h, const uint8_t *body, struct error *e)
{
	struct requests *t = &d->requests;
	uint32_t slot = (uint32_t)(h->id & REQUESTS_MAX);
	struct request *r = t->slot[slot];
	int rc = frame_event_check(h, body, e);

	if (rc)
		return rc;
	if (!h->id || h->id >> REQUEST_SLOT_BITS > t->counter || slot == REQUESTS_MAX)
		return broken(e, "names a request it was never given");
	if (!r || r->wid != h->id) {
		t->n_stale++;
		return TENON_OK;
	}
	switch (h->type) {
	case WIRE_STATE:
	case WIRE_LOGPROBS:
		pass_on(r, h, body);
		return TENON_OK;
	case WIRE_TOKENS:
		return on_tokens(r, h, body, e);
	case WIRE_EMBEDDING:
		return on_embedding(r, h, body, e);
	case WIRE_DONE:
		on_done(r, body);
		return TENON_OK;
	case WIRE_ERROR:
		on_error(r, body);
		return TENON_OK;
	default:
		return broken(e, "frame of an unknown type");
	}
}
