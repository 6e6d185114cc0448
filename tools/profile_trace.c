/* SPDX-License-Identifier: Apache-2.0
 * profile.h: all steps as a list of events that Perfetto and chrome://tracing read: a track for the host, one for each
 * lane of each backend. Times in microseconds from the first event.
 */
#include "tools/profile.h"
#include "base/base.h"
#include "tools/cli.h"
#include <string.h>

static void put_event(struct buf *out, const char *name, uint32_t pid, uint32_t tid, uint64_t t0,
	uint64_t begin_ns, uint64_t end_ns)
{
	(void)buf_puts(out, out->len && out->data[out->len - 1] == '}' ? ",\n{\"name\":" : "{\"name\":");
	cli_json_string(out, name, strlen(name));
	(void)buf_printf(out, ",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f}", pid, tid,
		(double)(begin_ns - t0) / 1e3, (double)(end_ns - begin_ns) / 1e3);
}

static void put_name(struct buf *out, const char *what, uint32_t pid, uint32_t tid, const char *name)
{
	(void)buf_puts(out, out->len && out->data[out->len - 1] == '}' ? ",\n" : "");
	(void)buf_printf(out, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", what,
		pid, tid);
	cli_json_string(out, name, strlen(name));
	(void)buf_puts(out, "}}");
}

/* Process 1 is the host, process 2 + i the i-th part of the model. */
static void put_tracks(const struct profile *p, struct buf *out)
{
	char name[320];

	put_name(out, "process_name", 1, 1, "host");
	put_name(out, "thread_name", 1, 1, "steps");
	for (uint32_t i = 0; i < model_n_parts(p->model); i++) {
		struct model_part part = model_part_at(p->model, i);

		(void)snprintf(
			name, sizeof name, "%.200s, layers from %u", backend_name(part.backend), part.layer0);
		put_name(out, "process_name", 2 + i, 1, name);
		for (uint32_t lane = 0; lane < p->n_lanes; lane++) {
			(void)snprintf(name, sizeof name, "lane %u", lane);
			put_name(out, "thread_name", 2 + i, 1 + lane, name);
		}
	}
}

static void put_host(const struct profile *p, uint64_t t0, struct buf *out)
{
	for (size_t at = 0; at + sizeof(struct profile_event) <= p->events.len;
		at += sizeof(struct profile_event)) {
		struct profile_event ev;
		char name[64];

		memcpy(&ev, p->events.data + at, sizeof ev);
		(void)snprintf(name, sizeof name, "%s %u", p->phase[ev.phase].name, ev.step);
		put_event(
			out, ev.what == PROFILE_SAMPLE ? "sampling" : name, 1, 1, t0, ev.begin_ns, ev.end_ns);
	}
}

static void put_spans(const struct profile *p, uint64_t t0, struct buf *out)
{
	for (size_t at = 0; at + sizeof(struct profile_span) <= p->spans.len;
		at += sizeof(struct profile_span)) {
		struct profile_span s;
		const struct profile_op *o;
		char name[PROFILE_NAME + 16];

		memcpy(&s, p->spans.data + at, sizeof s);
		o = &p->phase[s.phase].op[s.op];
		(void)snprintf(name, sizeof name, "%s", o->name);
		if (o->layer >= 0)
			(void)snprintf(name, sizeof name, "%d %s", o->layer, o->name);
		put_event(out, name, 2 + s.part, 1 + s.lane, t0, s.begin_ns, s.end_ns);
	}
}

/* The earliest time of all events; backends whose clock is another one then stand apart, as their times say. */
static uint64_t origin(const struct profile *p)
{
	uint64_t t0 = UINT64_MAX;

	for (size_t at = 0; at + sizeof(struct profile_event) <= p->events.len;
		at += sizeof(struct profile_event)) {
		struct profile_event ev;

		memcpy(&ev, p->events.data + at, sizeof ev);
		t0 = MIN_OF(t0, ev.begin_ns);
	}
	for (size_t at = 0; at + sizeof(struct profile_span) <= p->spans.len;
		at += sizeof(struct profile_span)) {
		struct profile_span s;

		memcpy(&s, p->spans.data + at, sizeof s);
		t0 = MIN_OF(t0, s.begin_ns);
	}
	return t0;
}

int profile_trace(const struct profile *p, struct buf *out, struct error *e)
{
	uint64_t t0 = origin(p);

	(void)buf_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
	put_tracks(p, out);
	put_host(p, t0, out);
	put_spans(p, t0, out);
	(void)buf_puts(out, "\n]}\n");
	return p->spans.failed || p->events.failed || out->failed
		? error_set(e, TENON_E_NOMEM, "trace: too long; take fewer tokens (--decode)")
		: TENON_OK;
}
