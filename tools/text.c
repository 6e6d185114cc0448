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
