/* SPDX-License-Identifier: Apache-2.0
 * embed.h: embeddings through a daemon. Entries may carry what `tenon generate` takes about class, priority, tenant and
 * deadline.
 */
#include "tools/embed.h"
#include <poll.h>
#include <string.h>

struct run {
	struct session *s;
	const char *model;
	struct embed_text *t;
	size_t n, open, first; /* first: texts before it are done */
};

/* FULL: the ring has no room now. Everything else that fails stays with the text. */
static int submit(struct run *r, struct embed_text *t)
{
	json_t *in = json_copy(t->in);
	struct tenon_error te = { 0 };
	struct gen_request g;
	int rc = TENON_E_NOMEM;

	(void)json_object_set_new(
		in, "prompt", json_string("-")); /* the text, which may be empty, takes its place */
	(void)json_object_del(in, "messages");
	(void)json_object_del(in, "ids");
	if (!in)
		(void)error_set(&t->e, rc, "text: no memory");
	else if (!(rc = gen_request_parse(in, &g, &t->e))) {
		g.r.model = r->model;
		g.r.prompt = json_string_value(json_object_get(t->in, "text"));
		g.r.prompt_len = json_string_length(json_object_get(t->in, "text"));
		g.r.embed = 1;
		rc = tenon_submit(r->s->t, &g.r, &t->request, &te);
		gen_request_finish(&g);
		if (rc && rc != TENON_E_FULL)
			(void)error_set(&t->e, rc, "%s", te.text);
	}
	json_decref(in);
	return rc;
}

static struct embed_text *find(const struct run *r, uint64_t id)
{
	for (size_t i = r->first; i < r->n; i++)
		if (r->t[i].request == id)
			return &r->t[i];
	return NULL;
}

static void take_event(struct run *r, const struct tenon_event *ev)
{
	struct embed_text *t = find(r, ev->request);

	if (!t)
		return;
	if (ev->kind == TENON_EVENT_EMBEDDING) {
		t->row = mem_alloc(MEM_TOOL, ev->n_embedding * sizeof *t->row);
		if (t->row)
			memcpy(t->row, ev->embedding, ev->n_embedding * sizeof *t->row);
		t->n_row = t->row ? (uint32_t)ev->n_embedding : 0;
	} else if (ev->kind == TENON_EVENT_ERROR) {
		(void)error_set(&t->e, ev->code, "%.*s", (int)ev->text_len, ev->text ? ev->text : "");
	}
	if (!ev->last)
		return;
	r->open--;
	t->request = 0;
	if (!t->row && !t->e.code)
		(void)error_set(&t->e, TENON_E_INTERNAL, "text: the daemon sent no embedding");
}

static int drain(struct run *r)
{
	struct tenon_event ev;
	int rc;

	while (!(rc = tenon_next(r->s->t, &ev, 0)))
		take_event(r, &ev);
	return rc == TENON_E_AGAIN ? TENON_OK : rc;
}

static void cancel_all(struct run *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->t[i].request)
			(void)tenon_cancel(r->s->t, r->t[i].request);
}

int embed_session_run(struct session *s, const char *model, size_t parallel, struct embed_text *t, size_t n,
	struct error *e)
{
	struct run r = { .s = s, .model = model, .t = t, .n = n };
	size_t next = 0;
	bool cancelled = false;
	int rc = TENON_OK;

	while (!rc && (next < n || r.open)) {
		struct pollfd p = { .fd = tenon_fd(s->t), .events = POLLIN };

		if (session_interrupted() && !cancelled) {
			cancelled = true;
			cancel_all(&r);
		}
		for (; next < n && r.open < parallel && !cancelled; next++) {
			int why = t[next].e.code ? t[next].e.code : submit(&r, &t[next]);

			if (why == TENON_E_FULL && !t[next].e.code && r.open)
				break;
			if (why == TENON_E_FULL && !t[next].e.code)
				(void)error_set(
					&t[next].e, why, "text: does not fit into the ring to the daemon");
			r.open += !why;
		}
		next = cancelled ? n : next;
		rc = drain(&r);
		while (r.first < next && !t[r.first].request)
			r.first++;
		if (!rc && r.open && !tenon_poll_arm(s->t))
			(void)poll(&p, 1, 200);
	}
	if (!rc)
		return cancelled ? error_set(e, TENON_E_CANCELLED, "embed: interrupted") : TENON_OK;
	return error_set(e, rc, "the daemon has ended");
}
