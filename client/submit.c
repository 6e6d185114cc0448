/* SPDX-License-Identifier: Apache-2.0
 * What a client sends: requests in one frame or several, cancel, ping. A request is checked before anything is
 * written, by the same rules that the daemon applies. Neither allocates nor enters the kernel unless the daemon sleeps
 * or the ring is full. Thread: any, under out_lock.
 */
#include "client/client_priv.h"
#include <string.h>
#include <time.h>

/* Always left for the CANCEL of a request whose payload got stuck half-way. */
#define SUBMIT_RESERVE 32u

static const struct tenon_request request_init = TENON_REQUEST_INIT;

/* ---- from the caller's struct to a frame -------------------------------------------------------------------- */

/* Exactly one input; its bytes and kind. */
static int request_input(const struct tenon_request *r, struct frame_request *f, struct error *e)
{
	size_t bytes = 0;

	if (r->collect && (r->prompt || r->messages || r->ids))
		return error_set(e, TENON_E_INVALID, "request: collect: takes no prompt, messages or ids");
	if (r->collect) {
		f->r.input = WIRE_TEXT;
		f->payload = (const uint8_t *)"";
		return TENON_OK;
	}
	if (!!r->prompt + !!r->messages + !!r->ids != 1)
		return error_set(e, TENON_E_INVALID, "request: give exactly one of prompt, messages and ids");
	if (r->prompt) {
		f->r.input = WIRE_TEXT;
		f->payload = (const uint8_t *)r->prompt;
		bytes = r->prompt_len ? r->prompt_len : strlen(r->prompt);
	} else if (r->messages) {
		f->r.input = WIRE_MESSAGES;
		f->payload = (const uint8_t *)r->messages;
		bytes = r->messages_len ? r->messages_len : strlen(r->messages);
	} else {
		f->r.input = WIRE_IDS;
		f->payload = (const uint8_t *)r->ids;
		if (!checked_mul_size(r->n_ids, sizeof *r->ids, &bytes))
			return error_set(e, TENON_E_TOO_LONG, "request: ids: too many");
	}
	f->r.payload_bytes = bytes;
	return TENON_OK;
}

static int request_stops(const struct tenon_request *r, struct frame_request *f, struct error *e)
{
	if (r->n_stop > WIRE_MAX_STOP)
		return error_set(e, TENON_E_INVALID, "request: stop: over %u strings", WIRE_MAX_STOP);
	for (size_t i = 0; i < r->n_stop; i++) {
		size_t len = r->stop[i] ? strlen(r->stop[i]) : 0;

		f->stop[i].s = r->stop[i];
		f->stop[i].len = (uint32_t)MIN_OF(len, (size_t)WIRE_MAX_STOP_BYTES + 1);
	}
	f->r.n_stop = (uint32_t)r->n_stop;
	return TENON_OK;
}

static void request_numbers(const struct tenon_request *r, struct wire_request *w)
{
	w->max_tokens = r->max_tokens;
	w->temperature = r->temperature;
	w->top_p = r->top_p;
	w->min_p = r->min_p;
	w->top_k = r->top_k;
	w->repeat_penalty = r->repeat_penalty;
	w->presence_penalty = r->presence_penalty;
	w->frequency_penalty = r->frequency_penalty;
	w->penalty_window = r->penalty_window;
	w->seed = r->seed;
	w->n_logprobs = r->n_logprobs;
	w->traffic_class = (uint32_t)r->traffic_class;
	w->priority = r->priority;
	w->deadline_ns = r->deadline_ns;
	w->flags = (r->ignore_eos ? WIRE_R_IGNORE_EOS : 0) | (r->show_special ? WIRE_R_ECHO_SPECIAL : 0) |
		(r->embed ? WIRE_R_EMBED : 0) | (r->no_reuse ? WIRE_R_NO_REUSE : 0) |
		(r->pin ? WIRE_R_PIN : 0) | (r->durable ? WIRE_R_DURABLE : 0) |
		(r->collect ? WIRE_R_COLLECT : 0);
	w->ttft_ms = r->ttft_ms;
	w->tpot_ms = r->tpot_ms;
}

/* A struct of an older header is shorter: what it lacks has its default. */
static int request_frame(
	const struct tenon *t, const struct tenon_request *from, struct frame_request *f, struct error *e)
{
	struct tenon_request r = request_init;
	size_t model_len, tenant_len, job_len;
	int rc;

	if (from->size < offsetof(struct tenon_request, max_tokens) || from->size > sizeof r)
		return error_set(e, TENON_E_INVALID,
			"tenon_request: size is %zu; begin with TENON_REQUEST_INIT", from->size);
	memcpy(&r, from, from->size);
	memset(&f->r, 0, sizeof f->r);
	rc = request_input(&r, f, e);
	if (!rc)
		rc = request_stops(&r, f, e);
	if (rc)
		return rc;
	request_numbers(&r, &f->r);
	model_len = r.model ? strlen(r.model) : 0;
	f->model = r.model ? r.model : "";
	f->r.model_bytes = (uint32_t)MIN_OF(model_len, (size_t)WIRE_MAX_MODEL_BYTES + 1);
	tenant_len = r.tenant ? strlen(r.tenant) : 0;
	f->tenant = r.tenant ? r.tenant : "";
	f->r.tenant_bytes = (uint32_t)MIN_OF(tenant_len, (size_t)WIRE_MAX_TENANT_BYTES + 1);
	job_len = r.job ? strlen(r.job) : 0;
	f->job = r.job ? r.job : "";
	f->r.job_bytes = (uint32_t)MIN_OF(job_len, (size_t)WIRE_MAX_JOB_BYTES + 1);
	f->bias = (const struct wire_bias *)r.bias;
	f->r.n_bias = (uint32_t)MIN_OF(r.n_bias, (size_t)WIRE_MAX_BIAS + 1);
	f->history = NULL;
	return frame_request_check(f, true, t->max_payload, e);
}

_Static_assert(sizeof(struct tenon_bias) == sizeof(struct wire_bias), "both are the same");

/* ---- room --------------------------------------------------------------------------------------------------- */

static void submit_nap(unsigned turn)
{
	const struct timespec nap = { .tv_nsec = turn < 20 ? 50000 : 1000000 };

	(void)nanosleep(&nap, NULL);
}

/* Waits until `bytes` fit. The daemon was rung when the ring filled and reads on; room has no bell of its own. */
static int submit_room(struct tenon *t, uint64_t bytes, uint64_t until_ns)
{
	bool bad;
	int rc;

	for (unsigned turn = 0; ring_room(&t->link.out, &bad) < bytes; turn++) {
		if (bad) {
			client_set_dead(t, TENON_E_PROTOCOL);
			return TENON_E_PROTOCOL;
		}
		rc = client_dead(t, false);
		if (rc)
			return rc;
		if (clock_now_ns() >= until_ns)
			return TENON_E_FULL;
		submit_nap(turn);
	}
	return TENON_OK;
}

static uint64_t submit_until(int timeout_ms)
{
	if (timeout_ms < 0)
		return UINT64_MAX;
	return timeout_ms ? clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS : 0;
}

static uint64_t submit_frame_bytes(uint64_t body)
{
	return (sizeof(struct wire_head) + body + WIRE_ALIGN - 1) & ~(uint64_t)(WIRE_ALIGN - 1);
}

/* One frame, when there is or comes to be room for it and `reserve` more. */
static int submit_put(struct tenon *t, uint16_t type, uint64_t id, const void *body, uint32_t bytes,
	uint32_t reserve, uint64_t until_ns)
{
	int rc = submit_room(t, submit_frame_bytes(bytes) + reserve, until_ns);
	void *at;
	bool bad;

	if (rc)
		return rc;
	at = ring_put(&t->link.out, type, 0, id, bytes, &bad);
	if (!at)
		return TENON_E_FULL;
	if (bytes)
		memcpy(at, body, bytes);
	link_flush(&t->link);
	return TENON_OK;
}

/* ---- submit ------------------------------------------------------------------------------------------------- */

static int submit_whole(struct tenon *t, const struct frame_request *f, uint64_t id)
{
	uint32_t parts = frame_request_bytes(f), payload = (uint32_t)f->r.payload_bytes;
	bool bad;
	uint8_t *at = ring_put(&t->link.out, WIRE_BEGIN, WIRE_LAST, id, parts + payload, &bad);

	if (bad)
		client_set_dead(t, TENON_E_PROTOCOL);
	if (!at)
		return bad ? TENON_E_PROTOCOL : TENON_E_FULL;
	(void)frame_request_write(f, at, parts);
	memcpy(at + parts, f->payload, payload);
	link_flush(&t->link);
	return TENON_OK;
}

/* The payload in pieces of an eighth of the ring, so that both sides work at once. */
static int submit_pieces(struct tenon *t, const struct frame_request *f, uint64_t id, uint64_t until_ns)
{
	uint32_t piece = ring_max_frame(t->link.out.capacity) / 2;
	uint64_t sent = 0;
	int rc = TENON_OK;

	while (!rc && sent < f->r.payload_bytes) {
		uint32_t n = (uint32_t)MIN_OF((uint64_t)piece, f->r.payload_bytes - sent);

		rc = submit_put(t, WIRE_DATA, id, f->payload + sent, n, SUBMIT_RESERVE, until_ns);
		sent += n;
	}
	return rc ? rc : submit_put(t, WIRE_END, id, NULL, 0, SUBMIT_RESERVE, until_ns);
}

static int submit_parts(struct tenon *t, const struct frame_request *f, uint64_t id, uint64_t until_ns)
{
	uint32_t parts = frame_request_bytes(f);
	bool bad;
	void *at = ring_put(&t->link.out, WIRE_BEGIN, 0, id, parts, &bad);
	int rc;

	if (!at)
		return bad ? TENON_E_PROTOCOL : TENON_E_FULL;
	(void)frame_request_write(f, at, parts);
	link_flush(&t->link);
	rc = submit_pieces(t, f, id, until_ns);
	if (rc)
		(void)submit_put(t, WIRE_CANCEL, id, NULL, 0, 0, 0);
	return rc == TENON_E_FULL ? TENON_E_TIMEOUT : rc;
}

static bool submit_fits_one_frame(const struct tenon *t, const struct frame_request *f)
{
	return sizeof(struct wire_head) + frame_request_bytes(f) + f->r.payload_bytes <=
		ring_max_frame(t->link.out.capacity);
}

/* One try. The id is open before the frame is visible: the answer may be faster than we are. An id is used once, even
 * when its payload got stuck. */
static int submit_try(struct tenon *t, const struct frame_request *f, int timeout_ms, uint64_t *id)
{
	bool whole = submit_fits_one_frame(t, f);
	uint64_t first = submit_frame_bytes(frame_request_bytes(f) + (whole ? f->r.payload_bytes : 0));
	uint64_t mine = t->next_id;
	int rc = client_dead(t, false);

	if (!rc)
		rc = submit_room(t, first + (whole ? 0 : SUBMIT_RESERVE), 0);
	if (rc)
		return rc;
	if (!open_ids_add(&t->ids, mine))
		return TENON_E_FULL;
	rc = whole ? submit_whole(t, f, mine) : submit_parts(t, f, mine, submit_until(timeout_ms));
	if (rc)
		(void)open_ids_remove(&t->ids, mine);
	if (rc != TENON_E_FULL)
		t->next_id++;
	if (!rc && id)
		*id = mine;
	return rc;
}

/* Between tries the lock is free, so that others may cancel. */
static int submit_send(struct tenon *t, const struct frame_request *f, int timeout_ms, uint64_t *id)
{
	const int pieces_ms = timeout_ms < 0 ? -1 : MAX_OF(timeout_ms, t->timeout_ms);
	uint64_t until_ns = submit_until(timeout_ms);
	int rc;

	for (unsigned turn = 0;; turn++) {
		(void)pthread_mutex_lock(&t->out_lock);
		rc = submit_try(t, f, pieces_ms, id);
		(void)pthread_mutex_unlock(&t->out_lock);
		if (rc != TENON_E_FULL || !timeout_ms || clock_now_ns() >= until_ns)
			return rc;
		submit_nap(turn);
	}
}

int tenon_submit_wait(
	struct tenon *t, const struct tenon_request *r, int timeout_ms, uint64_t *id, struct tenon_error *err)
{
	struct error e = { 0 };
	struct frame_request f;
	int rc;

	if (client_forked(t))
		return client_fail(err, TENON_E_FORKED);
	rc = request_frame(t, r, &f, &e);
	if (rc)
		return client_error(err, rc, &e);
	rc = submit_send(t, &f, timeout_ms, id);
	return rc ? client_fail(err, rc) : TENON_OK;
}

int tenon_submit(struct tenon *t, const struct tenon_request *r, uint64_t *id, struct tenon_error *err)
{
	return tenon_submit_wait(t, r, 0, id, err);
}

static int submit_small(
	struct tenon *t, uint16_t type, uint64_t id, const void *body, uint32_t bytes, int timeout_ms)
{
	int rc;

	(void)pthread_mutex_lock(&t->out_lock);
	rc = client_dead(t, false);
	if (!rc)
		rc = submit_put(t, type, id, body, bytes, 0, submit_until(timeout_ms));
	(void)pthread_mutex_unlock(&t->out_lock);
	return rc;
}

int tenon_cancel(struct tenon *t, uint64_t id)
{
	if (client_forked(t))
		return TENON_E_FORKED;
	if (!id || !open_ids_has(&t->ids, id))
		return TENON_E_NOT_FOUND;
	return submit_small(t, WIRE_CANCEL, id, NULL, 0, t->timeout_ms);
}

int tenon_ping(struct tenon *t, const void *data, size_t len)
{
	if (client_forked(t))
		return TENON_E_FORKED;
	if (len > 64)
		return TENON_E_TOO_LONG;
	return submit_small(t, WIRE_PING, 0, data, (uint32_t)len, 0);
}
