/* SPDX-License-Identifier: Apache-2.0
 * importance.h.
 */
#include "engine/importance.h"
#include "base/base.h"
#include "engine/gguf_write.h"
#include <math.h>
#include <string.h>
#include <tenon/plugin.h>

#define LEAST 0.02f /* of the mean, added to each column */

struct importance {
	struct gguf *file;
};

static bool str_is(struct gguf_str s, const char *want)
{
	return s.len == strlen(want) && !memcmp(s.s, want, s.len);
}

static int check_head(const struct gguf *g, struct error *e)
{
	struct gguf_str type = { NULL, 0 };
	uint64_t version = 0;
	int rc;

	if (gguf_get_str(g, "general.type", &type, NULL) || !str_is(type, "importance"))
		return error_set(e, TENON_E_FORMAT, "is no importance file; make one with tenon calibrate");
	rc = gguf_get_u64(g, "tenon.importance.version", &version, e);
	if (!rc && version != IMPORTANCE_VERSION)
		rc = error_set(e, TENON_E_UNSUPPORTED,
			"has version %llu, %d is known; make it anew with tenon calibrate",
			(unsigned long long)version, IMPORTANCE_VERSION);
	return rc;
}

static float value_at(const struct gguf *g, const struct gguf_tensor *t, uint64_t i)
{
	uint64_t bytes;
	const uint8_t *map = gguf_map(g, &bytes);
	float v;

	memcpy(&v, map + t->offset + i * sizeof v, sizeof v);
	return v;
}

static int check_tensor(const struct gguf *g, const struct gguf_tensor *t, struct error *e)
{
	struct gguf_shown name = gguf_show(t->name);

	if (t->type != TNP_F32 || t->rank != 1)
		return error_set(e, TENON_E_FORMAT, "'%s': is no vector of F32", name.s);
	for (uint64_t i = 0; i < t->dim[0]; i++) {
		float v = value_at(g, t, i);

		if (!(v >= 0) || !isfinite(v))
			return error_set(e, TENON_E_FORMAT, "'%s': column %llu is negative or not finite",
				name.s, (unsigned long long)i);
	}
	return TENON_OK;
}

int importance_open(const char *path, struct importance **out, struct error *e)
{
	struct importance *i = mem_zalloc(MEM_ENGINE, 1, sizeof *i);
	int rc = i ? gguf_open(path, &i->file, e) : error_set(e, TENON_E_NOMEM, "no memory");

	if (!rc)
		rc = check_head(i->file, e);
	for (size_t t = 0; !rc && t < gguf_n_tensors(i->file); t++)
		rc = check_tensor(i->file, gguf_tensor_at(i->file, t), e);
	if (rc) {
		error_prefix(e, "importance file '%.96s': ", path);
		importance_close(i);
		return rc;
	}
	*out = i;
	return TENON_OK;
}

void importance_close(struct importance *i)
{
	if (!i)
		return;
	gguf_close(i->file);
	mem_free(i);
}

size_t importance_n(const struct importance *i) { return gguf_n_tensors(i->file); }

static const struct gguf_tensor *find(const struct gguf *g, struct gguf_str name)
{
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);

		if (t->name.len == name.len && !memcmp(t->name.s, name.s, name.len))
			return t;
	}
	return NULL;
}

int importance_weights(const struct importance *im, const struct gguf_tensor *t, float *out, struct error *e)
{
	const struct gguf_tensor *v = find(im->file, t->name);
	uint64_t n = t->dim[t->rank - 1];
	double mean = 0;

	if (!v)
		return error_set(e, TENON_E_NOT_FOUND, "no importance of '%s'", gguf_show(t->name).s);
	if (v->dim[0] != n)
		return error_set(e, TENON_E_FORMAT,
			"importance of '%s': %llu columns, the matrix has %llu; it was made for another model",
			gguf_show(t->name).s, (unsigned long long)v->dim[0], (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++)
		mean += (double)value_at(im->file, v, i) / (double)n;
	for (uint64_t i = 0; i < n; i++)
		out[i] = mean > 0 ? (float)(value_at(im->file, v, i) / mean + LEAST) / (1 + LEAST) : 1;
	return TENON_OK;
}

int importance_write(const char *path, const char *model, uint64_t n_tokens,
	const struct importance_row *rows, size_t n, struct error *e)
{
	struct gguf_write *w = NULL;
	int rc = gguf_write_create(path, &w, e);

	if (rc)
		return rc;
	gguf_write_str(w, "general.type", "importance");
	gguf_write_str(w, "general.name", model);
	gguf_write_u32(w, "tenon.importance.version", IMPORTANCE_VERSION);
	gguf_write_u32(w, "tenon.importance.tokens", (uint32_t)MIN_OF(n_tokens, (uint64_t)UINT32_MAX));
	for (size_t i = 0; i < n; i++)
		gguf_write_tensor(w, rows[i].name, TNP_F32, 1, &rows[i].n_columns);
	rc = gguf_write_begin(w, e);
	for (size_t i = 0; i < n && !rc; i++)
		rc = gguf_write_data(
			w, rows[i].mean_square, rows[i].n_columns * sizeof *rows[i].mean_square, e);
	if (!rc)
		rc = gguf_write_commit(w, e);
	gguf_write_destroy(w);
	return rc;
}

int importance_can_write(const char *path, struct error *e)
{
	struct gguf_write *w = NULL;
	int rc = gguf_write_create(path, &w, e);

	gguf_write_destroy(w);
	return rc;
}
