/* SPDX-License-Identifier: Apache-2.0
 * See emit.h. `raw` holds bytes that are not yet a whole character, `held` whole characters that may still turn
 * into a stop string. Both stay under the longest stop string plus one token's text.
 */
#include "engine/emit.h"
#include "base/base.h"
#include <string.h>

enum { MAX_STOPS = 16, MAX_STOP_BYTES = 256 };

struct emitter {
	const struct tokenizer *tok;
	char *stop[MAX_STOPS];
	size_t stop_len[MAX_STOPS], n_stops;
	bool special, ignore_eos;
	struct buf raw, held;
};

static int add_stop(struct emitter *m, const struct emit_stop *s, struct error *e)
{
	if (!s->len || s->len > MAX_STOP_BYTES || !utf8_valid(s->s, s->len, NULL))
		return error_set(e, TENON_E_INVALID, "stop: each string must be 1 to %d bytes of UTF-8", MAX_STOP_BYTES);
	m->stop[m->n_stops] = mem_strndup(MEM_SCHED, s->s, s->len);
	if (!m->stop[m->n_stops])
		return error_set(e, TENON_E_NOMEM, "stop: out of memory");
	m->stop_len[m->n_stops++] = s->len;
	return TENON_OK;
}

int emitter_create(const struct tokenizer *t, const struct emit_options *o, struct emitter **out, struct error *e)
{
	struct emitter *m;
	int rc = TENON_OK;

	if (o->n_stops > MAX_STOPS)
		return error_set(e, TENON_E_INVALID, "stop: at most %d strings", MAX_STOPS);
	m = mem_zalloc(MEM_SCHED, 1, sizeof *m);
	if (!m)
		return error_set(e, TENON_E_NOMEM, "stream: out of memory");
	m->tok = t;
	m->special = o->special;
	m->ignore_eos = o->ignore_eos;
	buf_init(&m->raw, MEM_SCHED, 0);
	buf_init(&m->held, MEM_SCHED, 0);
	for (size_t i = 0; i < o->n_stops && !rc; i++)
		rc = add_stop(m, &o->stops[i], e);
	if (!rc && (!buf_reserve(&m->raw, 1024) || !buf_reserve(&m->held, 4096)))
		rc = error_set(e, TENON_E_NOMEM, "stream: out of memory");
	if (rc)
		emitter_destroy(m);
	else
		*out = m;
	return rc;
}

void emitter_destroy(struct emitter *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_stops; i++)
		mem_free(m->stop[i]);
	buf_finish(&m->raw);
	buf_finish(&m->held);
	mem_free(m);
}

static void drop_front(struct buf *b, size_t n)
{
	b->len -= n;
	memmove(b->data, b->data + n, b->len);
	b->data[b->len] = 0;
}

/* Moves whole characters from raw to held; what can never become one turns into U+FFFD, byte by byte. */
static void settle(struct emitter *m, bool at_end)
{
	size_t done = 0, keep = at_end ? 0 : utf8_incomplete_tail(m->raw.data ? m->raw.data : "", m->raw.len);

	while (done < m->raw.len - keep) {
		size_t n = utf8_decode(m->raw.data + done, m->raw.len - done, NULL);

		(void)(n ? buf_append(&m->held, m->raw.data + done, n) : buf_puts(&m->held, "\xef\xbf\xbd"));
		done += n ? n : 1;
	}
	if (done)
		drop_front(&m->raw, done);
}

/* Where the first stop string begins in held; held.len if none does. */
static size_t find_stop(const struct emitter *m)
{
	size_t first = m->held.len;

	for (size_t i = 0; i < m->n_stops; i++) {
		const char *at = m->held.len ? memmem(m->held.data, m->held.len, m->stop[i], m->stop_len[i]) : NULL;

		if (at && (size_t)(at - m->held.data) < first)
			first = (size_t)(at - m->held.data);
	}
	return first;
}

/* Length of the longest end of held that begins a stop string. */
static size_t may_become_stop(const struct emitter *m)
{
	size_t most = 0;

	for (size_t i = 0; i < m->n_stops; i++)
		for (size_t n = MIN_OF(m->stop_len[i] - 1, m->held.len); n > most; n--)
			if (!memcmp(m->held.data + m->held.len - n, m->stop[i], n))
				most = n;
	return most;
}

static int release(struct emitter *m, size_t n, struct buf *out, struct error *e)
{
	if (!n)
		return TENON_OK;
	if (m->held.failed || m->raw.failed || !buf_append(out, m->held.data, n))
		return error_set(e, TENON_E_NOMEM, "stream: out of memory");
	drop_front(&m->held, n);
	return TENON_OK;
}

int emitter_push(struct emitter *m, int32_t token, struct buf *out, enum emit_end *end, struct error *e)
{
	size_t stop;
	int rc;

	*end = EMIT_GO_ON;
	if (!m->ignore_eos && tokenizer_is_eog(m->tok, token)) {
		*end = EMIT_END_TOKEN;
		return emitter_finish(m, out, e);
	}
	rc = tokenizer_piece(m->tok, token, false, m->special, &m->raw, e);
	if (rc)
		return rc;
	settle(m, false);
	stop = find_stop(m);
	if (stop < m->held.len) {
		*end = EMIT_END_STRING;
		rc = release(m, stop, out, e);
		buf_clear(&m->held);
		buf_clear(&m->raw);
		return rc;
	}
	return release(m, m->held.len - may_become_stop(m), out, e);
}

int emitter_finish(struct emitter *m, struct buf *out, struct error *e)
{
	settle(m, true);
	return release(m, m->held.len, out, e);
}
