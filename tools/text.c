/* SPDX-License-Identifier: Apache-2.0
 * text.h.
 */
#include "tools/text.h"
#include "tools/session.h"
#include <errno.h>
#include <string.h>

int text_read(const char *path, struct buf *b, struct error *e)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int rc = TENON_OK;
	size_t n = 1;

	if (!f)
		return error_errno(e, TENON_E_NOT_FOUND, errno, "text '%.128s'", path);
	while (n && !rc) {
		if (!buf_reserve(b, 1 << 16)) {
			rc = error_set(
				e, TENON_E_TOO_LONG, "text '%.128s': larger than 1 GiB, or no memory", path);
			break;
		}
		n = fread(b->data + b->len, 1, 1 << 16, f);
		b->len += n;
		if (ferror(f))
			rc = session_interrupted() ? error_set(e, TENON_E_CANCELLED, "interrupted")
						   : error_errno(e, TENON_E_IO, errno, "text '%.128s'", path);
	}
	if (f != stdin)
		(void)fclose(f);
	return rc;
}

int text_tokens(const struct model *m, const char *path, struct tokens *out, struct error *e)
{
	struct buf b;
	int rc;

	buf_init(&b, MEM_TOOL, TEXT_LIMIT_BYTES);
	rc = text_read(path, &b, e);
	if (!rc)
		rc = model_tokens_from_text(m, b.data, b.len, out, e);
	buf_finish(&b);
	return rc;
}

void text_cut(const struct model *m, struct tokens *ids)
{
	uint32_t most = model_info(m)->n_ctx;

	if (ids->n <= most)
		return;
	if (tokenizer_adds_eos(model_tokenizer(m)))
		ids->id[most - 1] = ids->id[ids->n - 1];
	ids->n = most;
}

static struct tokens *texts_room(struct texts *t)
{
	size_t room = t->room ? t->room * 2 : 64;
	struct tokens *more = t->n < t->room ? t->t : mem_resize(MEM_TOOL, t->t, room * sizeof *t->t);

	if (!more)
		return NULL;
	t->room = t->n < t->room ? t->room : room;
	t->t = more;
	t->t[t->n] = (struct tokens){ 0 };
	return &t->t[t->n];
}

static bool blank(const char *s, size_t len)
{
	while (len && (s[len - 1] == ' ' || s[len - 1] == '\t' || s[len - 1] == '\r'))
		len--;
	return !len;
}

/* Takes no more where the line would pass `most_tokens`; *full says so. */
static int texts_add(const struct model *m, const char *s, size_t len, uint64_t most_tokens, struct texts *t,
	bool *full, struct error *e)
{
	struct tokens *ids = texts_room(t);
	int rc = ids ? model_tokens_from_text(m, s, len, ids, e)
		     : error_set(e, TENON_E_NOMEM, "no memory for texts");

	if (!ids)
		return rc;
	if (!rc)
		text_cut(m, ids);
	*full = !rc && t->n && t->n_tokens + ids->n > most_tokens;
	if (rc || *full || !ids->n) {
		tokens_finish(ids);
		return rc;
	}
	t->n_tokens += ids->n;
	t->n++;
	return rc;
}

int texts_from(const struct model *m, const char *s, size_t len, uint64_t most_tokens, struct texts *out,
	struct error *e)
{
	bool full = false;
	int rc = TENON_OK;

	for (size_t at = 0, n; at < len && !full && !rc; at += n + 1) {
		const char *end = memchr(s + at, '\n', len - at);

		n = end ? (size_t)(end - s) - at : len - at;
		if (!blank(s + at, n))
			rc = texts_add(m, s + at, n, most_tokens, out, &full, e);
	}
	return rc || out->n ? rc : error_set(e, TENON_E_INVALID, "text: has no tokens");
}

int texts_read(
	const struct model *m, const char *path, uint64_t most_tokens, struct texts *out, struct error *e)
{
	struct buf b;
	int rc;

	buf_init(&b, MEM_TOOL, TEXT_LIMIT_BYTES);
	rc = text_read(path, &b, e);
	if (!rc)
		rc = texts_from(m, b.data, b.len, most_tokens, out, e);
	buf_finish(&b);
	return rc;
}

void texts_finish(struct texts *t)
{
	for (size_t i = 0; i < t->n; i++)
		tokens_finish(&t->t[i]);
	mem_free(t->t);
	*t = (struct texts){ 0 };
}
