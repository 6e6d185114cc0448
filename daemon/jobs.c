/* SPDX-License-Identifier: Apache-2.0
 * See jobs.h. Loop thread.
 */
#include "daemon/daemon.h"
#include <stdio.h>
#include <string.h>

enum { CHUNK_IDS = 1024, CHUNK_TEXT_BYTES = 8192, JOBS_TOLD = 200 };

struct job {
	struct node node;
	struct daemon *d;
	char name[WIRE_MAX_JOB_BYTES + 1], tenant[WIRE_MAX_TENANT_BYTES + 1];
	struct request *r; /* NULL: it has ended */
	struct buf ids, text;
	struct wire_done done; /* as it ended, where code is 0 */
	int code;
	char error[WIRE_MAX_ERROR_BYTES / 8];
	uint64_t began_ns, ended_ns;
};

void jobs_init(struct jobs *t)
{
	*t = (struct jobs){ 0 };
	list_init(&t->all);
}

static uint64_t bytes_of(const struct job *j) { return j->ids.len + j->text.len; }

static void drop(struct job *j)
{
	j->d->jobs.n--;
	j->d->jobs.bytes -= bytes_of(j);
	node_remove(&j->node);
	buf_finish(&j->ids);
	buf_finish(&j->text);
	mem_free(j);
}

void jobs_finish(struct daemon *d)
{
	struct node *n;

	while (d->jobs.all.head.next && (n = list_first(&d->jobs.all)) != NULL)
		drop(CONTAINER_OF(n, struct job, node));
}

/* What was kept long enough goes, and then the oldest until there is room for one more of so many bytes. */
static void make_room(struct daemon *d, uint32_t more, uint64_t bytes)
{
	const struct conf *c = &d->conf;
	uint64_t keep_ns = c->durable.keep_s * NS_PER_S;

	LIST_EACH(&d->jobs.all, n)
	{
		struct job *j = CONTAINER_OF(n, struct job, node);
		bool old = !j->r && d->loop.now_ns - j->ended_ns > keep_ns;

		if (!j->r &&
			(old || d->jobs.n + more > c->durable.max ||
				d->jobs.bytes + bytes > c->durable.bytes))
			drop(j);
	}
}

static struct job *find(struct daemon *d, const char *tenant, const char *name, uint32_t len)
{
	LIST_EACH(&d->jobs.all, n)
	{
		struct job *j = CONTAINER_OF(n, struct job, node);

		if (!strcmp(j->tenant, tenant) && strlen(j->name) == len && !memcmp(j->name, name, len))
			return j;
	}
	return NULL;
}

int job_create(struct request *r, const char *name, uint32_t len, struct job **out, struct error *e)
{
	struct daemon *d = r->d;
	struct job *j;

	make_room(d, 0, 0);
	if (find(d, r->tenant, name, len))
		return error_set(e, TENON_E_BUSY,
			"request: job '%.*s': there is one of that name, or its answer is still kept; choose another name",
			(int)len, name);
	make_room(d, 1, 0);
	if (d->jobs.n >= d->conf.durable.max)
		return error_set(e, TENON_E_FULL,
			"request: %u durable requests are running (durable.max); wait for one", d->jobs.n);
	j = mem_zalloc(MEM_DAEMON, 1, sizeof *j);
	if (!j)
		return error_set(e, TENON_E_NOMEM, "request: out of memory");
	j->d = d;
	j->r = r;
	j->began_ns = d->loop.now_ns;
	memcpy(j->name, name, len);
	memcpy(j->tenant, r->tenant, sizeof j->tenant);
	buf_init(&j->ids, MEM_DAEMON, 0);
	buf_init(&j->text, MEM_DAEMON, 0);
	list_append(&d->jobs.all, &j->node);
	d->jobs.n++;
	*out = j;
	return TENON_OK;
}

bool job_add(struct job *j, const int32_t *ids, uint32_t n_ids, const char *text, uint32_t text_bytes)
{
	uint64_t before = bytes_of(j), more = 4ull * n_ids + text_bytes;
	bool ok;

	make_room(j->d, 0, more);
	ok = j->d->jobs.bytes + more <= j->d->conf.durable.bytes &&
		buf_append(&j->ids, ids, 4 * (size_t)n_ids) && buf_append(&j->text, text, text_bytes);
	j->d->jobs.bytes += bytes_of(j) - before;
	return ok;
}

static void end(struct job *j)
{
	j->r = NULL;
	j->ended_ns = j->d->loop.now_ns;
}

void job_done(struct job *j, const struct wire_done *d)
{
	j->done = *d;
	end(j);
}

void job_failed(struct job *j, int code, const char *text)
{
	j->code = code;
	(void)snprintf(j->error, sizeof j->error, "%s", text);
	end(j);
}

/* ---- collecting ---------------------------------------------------------------------------------------------------------- */

/* Bytes of text for one frame: whole characters. */
static uint32_t text_chunk(const char *text, size_t left)
{
	size_t n = MIN_OF(left, (size_t)CHUNK_TEXT_BYTES);

	while (n < left && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	return (uint32_t)n;
}

/* Everything so far in TOKENS frames. False: the session takes no more. */
static bool tell_all(const struct job *j, struct session *s, uint64_t id)
{
	size_t at = 0, text_at = 0;

	while (at < j->ids.len || text_at < j->text.len) {
		uint32_t n = (uint32_t)MIN_OF((j->ids.len - at) / 4, (size_t)CHUNK_IDS),
			 len = text_chunk(j->text.data + text_at, j->text.len - text_at);
		struct wire_tokens *w =
			session_put(s, WIRE_TOKENS, id, (uint32_t)sizeof *w + 4 * n + len, NULL);

		if (!w)
			return false;
		*w = (struct wire_tokens){ .n_tokens = n, .text_bytes = len };
		memcpy(w + 1, j->ids.data + at, 4 * (size_t)n);
		memcpy((char *)(w + 1) + 4 * (size_t)n, j->text.data + text_at, len);
		at += 4 * (size_t)n;
		text_at += len;
	}
	return true;
}

int job_collect(
	struct session *s, uint64_t id, const char *tenant, const char *name, uint32_t len, struct error *e)
{
	struct job *j;
	struct wire_done *w;

	make_room(s->d, 0, 0);
	j = find(s->d, tenant, name, len);
	if (!j)
		return error_set(e, TENON_E_NOT_FOUND,
			"job '%.*s': this tenant has none of that name, or its time is over", (int)len, name);
	if (j->r && j->r->session)
		return error_set(
			e, TENON_E_BUSY, "job '%.*s': a session reads its answer now", (int)len, name);
	if (j->r && !request_adopt(j->r, s, id))
		return error_set(e, TENON_E_NOMEM, "request: out of memory");
	if (!tell_all(j, s, id) || j->r)
		return TENON_OK;
	if (j->code) {
		session_send_error(s, id, j->code, j->error);
		return TENON_OK;
	}
	w = session_put(s, WIRE_DONE, id, sizeof *w, NULL);
	if (w)
		*w = j->done;
	return TENON_OK;
}

int job_drop(struct daemon *d, const char *tenant, const char *name, struct error *e)
{
	struct job *found = NULL;

	LIST_EACH(&d->jobs.all, n)
	{
		struct job *j = CONTAINER_OF(n, struct job, node);

		if (strcmp(j->name, name) || (tenant && strcmp(j->tenant, tenant)))
			continue;
		if (found)
			return error_set(e, TENON_E_INVALID,
				"job '%.60s': several tenants have one; name the tenant", name);
		found = j;
	}
	if (!found)
		return error_set(e, TENON_E_NOT_FOUND, "job '%.60s': there is none of that name", name);
	if (found->r)
		request_fail(found->r, TENON_E_CANCELLED, "request: cancelled by an administrator");
	drop(found);
	return TENON_OK;
}

/* ---- for people ---------------------------------------------------------------------------------------------------------- */

static const char *state_of(const struct job *j)
{
	if (j->r)
		return j->r->session ? "read" : "running";
	return j->code ? "failed" : "done";
}

json_t *jobs_json(struct daemon *d)
{
	json_t *all = json_array();
	uint64_t now_ns = d->loop.now_ns;

	make_room(d, 0, 0);
	LIST_EACH(&d->jobs.all, n)
	{
		struct job *j = CONTAINER_OF(n, struct job, node);
		json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "job", j->name, "tenant", j->tenant,
			"state", state_of(j), "tokens", (json_int_t)(j->ids.len / 4), "bytes",
			(json_int_t)bytes_of(j), "age_ms", (json_int_t)((now_ns - j->began_ns) / NS_PER_MS));

		if (o && !j->r)
			(void)json_object_set_new(
				o, "kept_ms", json_integer((json_int_t)((now_ns - j->ended_ns) / NS_PER_MS)));
		if (o && j->code)
			(void)json_object_set_new(o, "error", json_string(j->error));
		if (json_array_size(all) < JOBS_TOLD)
			(void)json_array_append_new(all, o);
		else
			json_decref(o);
	}
	return json_pack("{s:o, s:I, s:I}", "jobs", all, "n", (json_int_t)d->jobs.n, "bytes",
		(json_int_t)d->jobs.bytes);
}
