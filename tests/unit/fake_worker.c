/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_worker.h"
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_worker fake;

static void *nothing(void *p) { return p; }

int worker_start_fake(struct worker_link *w, struct worker_ends *ends, struct error *e)
{
	fake.ends = ends;
	fake.n_requests = 0;
	fake.asked_to_stop = false;
	fake.n_starts++;
	fake.end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->threaded = true; /* worker_wait joins it and closes the eventfd */
	(void)pthread_create(&w->thread, NULL, nothing, NULL);
	return loop_watch(&w->d->loop, &w->end, fake.end_fd, EPOLLIN, e);
}

void fake_put(uint16_t type, uint64_t id, const void *body, uint32_t bytes)
{
	bool bad = false;
	struct link *l = type == WIRE_ADMIN_REPLY ? &fake.ends->io : &fake.ends->tok;
	void *at = ring_put(&l->out, type, 0, id, bytes, &bad);

	if (!at)
		abort();
	if (bytes)
		memcpy(at, body, bytes);
}

static void reply(uint64_t id, const char *text)
{
	fake_put(WIRE_ADMIN_REPLY, id, text, (uint32_t)strlen(text));
}

static void on_command(uint64_t id, const char *text, uint32_t bytes)
{
	json_t *q = json_loadb(text, bytes, 0, NULL);
	const char *cmd = json_string_value(json_object_get(q, "cmd"));

	if (!strcmp(cmd, "setup")) {
		reply(id,
			fake.refuse_setup ? "{\"error\":{\"code\":-4,\"text\":\"backend x: none\"}}"
					  : "{\"backend\":\"fake\",\"device\":\"none\"}");
	} else if (!strcmp(cmd, "load")) {
		fake.n_loads++;
		reply(id,
			fake.refuse_load ? "{\"error\":{\"code\":-5,\"text\":\"model file: broken\"}}"
					 : "{\"info\":{}}");
	} else if (!strcmp(cmd, "unload")) {
		fake.n_unloads++;
		reply(id, "{}");
	} else if (!strcmp(cmd, "stop")) {
		fake.asked_to_stop = true;
		fake_die();
	} else {
		reply(id, "{}");
	}
	json_decref(q);
}

static void on_begin(const struct wire_head *h, const uint8_t *body)
{
	struct fake_request *r = &fake.request[fake.n_requests++ % FAKE_REQUESTS];
	struct frame_request f;
	struct error e;

	if (frame_request_parse(body, h->bytes - 16, h->flags, false, 1 << 20, &f, &e))
		abort();
	*r = (struct fake_request){ .id = h->id,
		.n_history = f.r.n_history,
		.history_text = (uint32_t)f.r.history_text_bytes,
		.payload_bytes = (uint32_t)f.r.payload_bytes,
		.tenant_weight = f.r.tenant_weight,
		.flags = f.r.flags,
		.job_bytes = f.r.job_bytes,
		.whole = h->flags & WIRE_LAST };
	memcpy(r->tenant, f.tenant, f.r.tenant_bytes);
	memcpy(r->payload, f.payload, MIN_OF(f.payload_here, sizeof r->payload - 1));
	memcpy(r->history, f.history, 4 * MIN_OF(f.r.n_history, (uint32_t)COUNT_OF(r->history)));
}

static struct fake_request *by_id(uint64_t id)
{
	for (uint32_t i = 0; i < MIN_OF(fake.n_requests, (uint32_t)FAKE_REQUESTS); i++)
		if (fake.request[i].id == id)
			return &fake.request[i];
	return NULL;
}

static void on_frame(const struct wire_head *h, const uint8_t *body)
{
	struct fake_request *r = by_id(h->id);

	if (h->type == WIRE_ADMIN)
		on_command(h->id, (const char *)body, h->bytes - 16);
	else if (h->type == WIRE_BEGIN)
		on_begin(h, body);
	else if (h->type == WIRE_END && r)
		r->whole = true;
	else if (h->type == WIRE_PAUSE || h->type == WIRE_RESUME) {
		r->paused = h->type == WIRE_PAUSE;
		fake.n_pauses += r->paused;
		fake.n_resumes += !r->paused;
	} else if (h->type == WIRE_CANCEL && r) {
		r->cancelled = true;
		if (fake.answer_cancel)
			fake_error(h->id, TENON_E_CANCELLED, "request: cancelled");
	}
}

void fake_take(void)
{
	static _Alignas(8) uint8_t body[1 << 20];
	struct wire_head h;

	while (fake.ends && !fake.mute && !ring_take(&fake.ends->io.in, &h, body, sizeof body))
		on_frame(&h, body);
	if (!fake.ends || fake.mute)
		return;
	ring_consumed(&fake.ends->io.in);
	fake_flush();
}

void fake_flush(void)
{
	if (!fake.ends)
		return;
	link_flush(&fake.ends->io);
	box_published(&fake.ends->box, clock_now_ns());
	link_flush(&fake.ends->tok);
}

void fake_tokens(uint64_t id, int32_t first, uint32_t n, const char *text)
{
	uint8_t body[4096];
	struct wire_tokens t = { .n_tokens = n, .text_bytes = (uint32_t)strlen(text) };

	memcpy(body, &t, sizeof t);
	for (uint32_t i = 0; i < n; i++) {
		int32_t v = first + (int32_t)i;

		memcpy(body + sizeof t + 4 * i, &v, 4);
	}
	memcpy(body + sizeof t + 4 * n, text, t.text_bytes);
	fake_put(WIRE_TOKENS, id, body, (uint32_t)sizeof t + 4 * n + t.text_bytes);
}

void fake_done(uint64_t id)
{
	const struct wire_done d = { .finish = WIRE_FINISH_STOP, .n_prompt = 3 };

	fake_put(WIRE_DONE, id, &d, sizeof d);
}

void fake_error(uint64_t id, int code, const char *text)
{
	uint8_t body[256];
	struct wire_error w = { .code = code, .text_bytes = (uint32_t)strlen(text) };

	memcpy(body, &w, sizeof w);
	memcpy(body + sizeof w, text, w.text_bytes);
	fake_put(WIRE_ERROR, id, body, (uint32_t)sizeof w + w.text_bytes);
}

void fake_die(void)
{
	const uint64_t one = 1;

	fake_flush();
	worker_ends_free(fake.ends);
	fake.ends = NULL;
	(void)!write(fake.end_fd, &one, sizeof one);
}

struct fake_request *fake_find(const char *payload)
{
	for (uint32_t i = MIN_OF(fake.n_requests, (uint32_t)FAKE_REQUESTS); i-- > 0;)
		if (!strcmp(fake.request[i].payload, payload))
			return &fake.request[i];
	return NULL;
}
