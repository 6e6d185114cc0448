/* SPDX-License-Identifier: Apache-2.0
 * The answer to `tenonctl queue`: every open request with who it is for, where it is and why it waits. The worker's list
 * knows the scheduler's side under ids of its own; here they get their clients' names. Loop thread.
 */
#include "daemon/daemon.h"
#include <stdio.h>
#include <string.h>

enum { ROWS_BYTES = 160 << 10, ROW_FIXED_BYTES = 420, NAME_BYTES = 48 };

struct rows {
	struct daemon *d;
	json_t *all;
	uint64_t bytes, omitted;
	bool seen[REQUESTS_MAX + 1];
};

static struct request *by_wid(const struct daemon *d, uint64_t wid)
{
	struct request *r = d->requests.slot[wid & REQUESTS_MAX];

	return wid && r && r->wid == wid ? r : NULL;
}

static void name_of(const struct request *r, char out[NAME_BYTES])
{
	(void)snprintf(out, NAME_BYTES, "%llu:%llu",
		(unsigned long long)(r->session ? r->session->link.session : 0), (unsigned long long)r->id);
}

/* What the daemon alone knows of it. */
static json_t *own_row(const struct request *r)
{
	uint64_t now_ns = r->d->loop.now_ns, deadline_ns = r->f.r.deadline_ns,
		 age_ns = r->time.arrived_ns ? now_ns - r->time.arrived_ns : 0;
	json_t *o = json_pack("{s:I, s:I, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:b, s:I}", "session",
		(json_int_t)(r->session ? r->session->link.session : 0), "id", (json_int_t)r->id, "model",
		r->model ? r->model->name : "", "tenant", r->tenant, "class",
		r->f.r.traffic_class == WIRE_OFFLINE ? "offline" : "online", "priority", (int)r->f.r.priority,
		"aged", (int)r->f.r.priority, "prompt_bytes", (json_int_t)r->payload_bytes, "tokens",
		(json_int_t)r->n_ids, "age_ms", (json_int_t)(age_ns / NS_PER_MS), "paused", r->paused,
		"replayed", (json_int_t)r->n_replayed);

	if (o && deadline_ns)
		(void)json_object_set_new(o, "deadline_ms",
			json_integer(
				(json_int_t)((deadline_ns > age_ns ? deadline_ns - age_ns : 0) / NS_PER_MS)));
	return o;
}

static void set_state(json_t *o, const struct request *r)
{
	static const char *const states[] = { "filling", "waiting", "sending", "running" };
	bool lives = r->session || r->detached;
	const char *state = lives ? states[r->state] : "cancelling", *why = "";

	if (!lives)
		why = "the worker has not confirmed its end yet";
	else if (r->state == REQUEST_FILLING)
		why = "its prompt is still coming in";
	else if (r->state == REQUEST_WAITING)
		why = r->d->worker.state == WORKER_UP ? "its model is being loaded"
						      : "the worker is starting";
	else if (r->state == REQUEST_SENDING)
		why = "the ring to the worker is full";
	else
		why = "the worker makes tokens of its prompt";
	(void)json_object_set_new(o, "state", json_string(state));
	(void)json_object_set_new(o, "why", json_string(why));
	(void)json_object_set_new(o, "waited_ms", json_copy(json_object_get(o, "age_ms")));
}

/* The worker's words and numbers; `behind` gets a name. */
static void add_entry(const struct daemon *d, json_t *o, const json_t *entry)
{
	static const char *const keys[] = { "state", "wait", "aged", "prompt_tokens", "cached", "generated",
		"total", "preempted", "waited_ms" };
	const struct request *behind =
		by_wid(d, (uint64_t)json_integer_value(json_object_get(entry, "behind")));
	const char *why = json_string_value(json_object_get(entry, "why"));
	char name[NAME_BYTES], text[200];

	for (size_t i = 0; i < COUNT_OF(keys); i++)
		if (json_object_get(entry, keys[i]))
			(void)json_object_set(o, keys[i], json_object_get(entry, keys[i]));
	(void)snprintf(text, sizeof text, "%s", why ? why : "");
	if (behind) {
		name_of(behind, name);
		(void)json_object_set_new(o, "behind", json_string(name));
		(void)snprintf(text, sizeof text, "%.140s (behind %s)", why ? why : "", name);
	}
	(void)json_object_set_new(o, "why", json_string(text));
}

static void add_row(struct rows *t, const struct request *r, const json_t *entry)
{
	json_t *o;

	t->seen[r->slot] = true;
	t->bytes += ROW_FIXED_BYTES + strlen(r->tenant) + (r->model ? strlen(r->model->name) : 0);
	if (t->bytes > ROWS_BYTES) {
		t->omitted++;
		return;
	}
	o = own_row(r);
	if (o && entry && (r->session || r->detached))
		add_entry(t->d, o, entry);
	else if (o)
		set_state(o, r);
	(void)json_array_append_new(t->all, o);
}

json_t *queue_json(struct daemon *d, const json_t *reply)
{
	struct rows t = { .d = d, .all = json_array() };
	const json_t *entries = json_object_get(reply, "entries");

	for (size_t i = 0; i < json_array_size(entries); i++) {
		const json_t *entry = json_array_get(entries, i);
		const struct request *r =
			by_wid(d, (uint64_t)json_integer_value(json_object_get(entry, "id")));

		if (r && !t.seen[r->slot])
			add_row(&t, r, entry);
	}
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		if (d->requests.slot[i] && !t.seen[i])
			add_row(&t, d->requests.slot[i], NULL);
	return json_pack("{s:o, s:I}", "requests", t.all, "omitted", (json_int_t)t.omitted);
}
