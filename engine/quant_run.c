/* SPDX-License-Identifier: Apache-2.0
 * Writing the quantised file: tensors in the order of the source, each in slabs of rows that threads share out; what they
 * make goes to the file in order. Memory is one slab, whatever the tensor's size.
 */
#include "base/base.h"
#include "engine/gguf_write.h"
#include "engine/quant_file.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <tenon/plugin.h>

enum { SLAB = 1 << 21, MAX_THREADS = 256, QUANTIZATION_VERSION = 2 }; /* elements of a slab */

struct worker { /* rows [r0, r1) of a slab */
	const struct quant_row *row;
	const uint8_t *src;
	uint8_t *dst;
	const float *weights; /* [columns] or NULL */
	float *x, *y;	      /* [columns] */
	uint64_t r0, r1, columns, src_row, dst_row;
	struct quant_error error;
	float bad; /* a value that the type cannot hold */
	bool has_bad;
	bool started;
	pthread_t thread;
};

struct run {
	const struct quant_job *job;
	struct quant_row *rows;
	struct gguf_write *w;
	struct worker *workers;
	uint32_t n_workers;
	float *weights, *floats; /* [widest]; [n_workers][2][widest] */
	uint8_t *slab;
	uint64_t widest, slab_bytes, done, total; /* elements */
};

static uint64_t count_of(const struct gguf_tensor *t)
{
	return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}
static uint64_t columns_of(const struct gguf_tensor *t) { return t->dim[t->rank - 1]; }

static uint64_t row_bytes(uint32_t type, uint64_t columns)
{
	uint32_t block = 1, bytes = 1;

	(void)gguf_type_block(type, &block, &bytes);
	return columns / block * bytes;
}

/* Rows that fit a slab, at least one. */
static uint64_t slab_rows(uint64_t columns) { return MAX_OF((uint64_t)SLAB / columns, (uint64_t)1); }

/* ---- one slab --------------------------------------------------------------------------------------------------------- */

static bool holds(uint32_t type, float v) { return isfinite(v) && (type != TNP_F16 || fabsf(v) <= 65504); }

static void *worker_main(void *arg)
{
	struct worker *k = arg;

	for (uint64_t r = k->r0; r < k->r1 && !k->has_bad; r++) {
		quant_decode(k->row->t->type, k->src + r * k->src_row, k->columns, k->x);
		for (uint64_t i = 0; i < k->columns && !k->has_bad; i++)
			if (!holds(k->row->type, k->x[i])) {
				k->bad = k->x[i];
				k->has_bad = true;
			}
		if (!k->has_bad)
			quant_encode_measured(k->row->type, k->x, k->weights, k->columns,
				k->dst + r * k->dst_row, k->y, &k->error);
	}
	return NULL;
}

static void error_add(struct quant_error *to, const struct quant_error *from)
{
	to->signal += from->signal;
	to->noise += from->noise;
	to->weighted_signal += from->weighted_signal;
	to->weighted_noise += from->weighted_noise;
	to->most = MAX_OF(to->most, from->most);
}

/* `n` rows from `src`. Threads that cannot be started do their part here. */
static int slab_run(struct run *r, struct quant_row *row, const uint8_t *src, uint64_t n, struct error *e)
{
	uint64_t columns = columns_of(row->t);
	int rc = TENON_OK;

	for (uint32_t i = 0; i < r->n_workers; i++) {
		struct worker *k = &r->workers[i];

		*k = (struct worker){ .row = row,
			.src = src,
			.dst = r->slab,
			.weights = row->weighted ? r->weights : NULL,
			.x = r->floats + 2 * i * r->widest,
			.y = r->floats + (2 * i + 1) * r->widest,
			.r0 = n * i / r->n_workers,
			.r1 = n * (i + 1) / r->n_workers,
			.columns = columns,
			.src_row = row_bytes(row->t->type, columns),
			.dst_row = row_bytes(row->type, columns) };
		k->started = i && k->r1 > k->r0 && !pthread_create(&k->thread, NULL, worker_main, k);
		if (i && !k->started)
			(void)worker_main(k);
	}
	(void)worker_main(&r->workers[0]);
	for (uint32_t i = 0; i < r->n_workers; i++) {
		struct worker *k = &r->workers[i];

		if (k->started)
			(void)pthread_join(k->thread, NULL);
		error_add(&row->error, &k->error);
		if (k->has_bad && !rc)
			rc = error_set(e, TENON_E_INVALID,
				"tensor '%s': holds %g, which %s cannot; give it another type with --tensor",
				gguf_show(row->t->name).s, (double)k->bad, gguf_type_name(row->type));
	}
	return rc;
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------- */

static int step(struct run *r, uint64_t n, struct error *e)
{
	r->done += n;
	return !r->job->progress ||
			r->job->progress(r->job->ctx, (double)r->done / (double)MAX_OF(r->total, (uint64_t)1))
		? TENON_OK
		: error_set(e, TENON_E_CANCELLED, "interrupted; nothing was written");
}

static int copy(struct run *r, const struct quant_row *row, const uint8_t *src, struct error *e)
{
	enum { PIECE = 1 << 24 };
	int rc = TENON_OK;

	for (uint64_t at = 0; at < row->t->bytes && !rc; at += PIECE) {
		rc = gguf_write_data(r->w, src + at, MIN_OF(row->t->bytes - at, (uint64_t)PIECE), e);
		if (!rc)
			rc = step(r, 0, e);
	}
	return rc ? rc : step(r, count_of(row->t), e);
}

static int weights_take(struct run *r, struct quant_row *row, struct error *e)
{
	int rc;

	if (!r->job->importance || row->reason == QUANT_SMALL || row->type <= TNP_F16 ||
		row->type == TNP_BF16)
		return TENON_OK;
	rc = importance_weights(r->job->importance, row->t, r->weights, e);
	row->weighted = !rc;
	return rc == TENON_E_NOT_FOUND ? TENON_OK : rc;
}

static int encode(struct run *r, struct quant_row *row, const uint8_t *src, struct error *e)
{
	uint64_t columns = columns_of(row->t), n = count_of(row->t) / columns, most = slab_rows(columns);
	int rc = weights_take(r, row, e);

	for (uint64_t at = 0, rows; at < n && !rc; at += rows) {
		rows = MIN_OF(n - at, most);
		rc = slab_run(r, row, src + at * row_bytes(row->t->type, columns), rows, e);
		if (!rc)
			rc = gguf_write_data(r->w, r->slab, rows * row_bytes(row->type, columns), e);
		if (!rc)
			rc = step(r, rows * columns, e);
	}
	return rc;
}

/* ---- the file --------------------------------------------------------------------------------------------------------- */

/* Numbers that others know for `general.file_type`: the type that most of the file has. */
static bool file_type(const char *type, uint32_t *out)
{
	static const struct {
		const char *name;
		uint32_t number;
	} known[] = { { "F32", 0 }, { "F16", 1 }, { "Q4_0", 2 }, { "Q4_1", 3 }, { "Q8_0", 7 }, { "Q5_0", 8 },
		{ "Q5_1", 9 }, { "Q2_K", 10 }, { "q2_k_m", 10 }, { "q3_k_s", 11 }, { "Q3_K", 11 },
		{ "q3_k_m", 12 }, { "q3_k_l", 13 }, { "q4_k_s", 14 }, { "Q4_K", 14 }, { "q4_k_m", 15 },
		{ "q5_k_s", 16 }, { "Q5_K", 16 }, { "q5_k_m", 17 }, { "Q6_K", 18 }, { "IQ4_NL", 25 },
		{ "BF16", 32 } };

	for (size_t i = 0; i < COUNT_OF(known); i++)
		if (!strcasecmp(known[i].name, type)) {
			*out = known[i].number;
			return true;
		}
	return false;
}

static int header(struct run *r, struct error *e)
{
	uint32_t number;

	if (file_type(r->job->type, &number))
		gguf_write_u32(r->w, "general.file_type", number);
	gguf_write_u32(r->w, "general.quantization_version", QUANTIZATION_VERSION);
	gguf_write_keys(r->w, r->job->in);
	for (size_t i = 0; i < gguf_n_tensors(r->job->in); i++) {
		const struct gguf_tensor *t = r->rows[i].t;

		gguf_write_tensor(r->w, t->name, r->rows[i].type, t->rank, t->dim);
	}
	return gguf_write_begin(r->w, e);
}

static int memory_take(struct run *r, struct error *e)
{
	for (size_t i = 0; i < gguf_n_tensors(r->job->in); i++) {
		const struct quant_row *row = &r->rows[i];
		uint64_t columns = columns_of(row->t), n = count_of(row->t);

		r->total += n;
		if (row->copied)
			continue;
		r->widest = MAX_OF(r->widest, columns);
		r->slab_bytes = MAX_OF(r->slab_bytes,
			MIN_OF(slab_rows(columns), n / columns) * row_bytes(row->type, columns));
	}
	r->n_workers = MIN_OF(MAX_OF(r->job->n_threads, 1u), (uint32_t)MAX_THREADS);
	r->workers = mem_zalloc(MEM_ENGINE, r->n_workers, sizeof *r->workers);
	r->weights = mem_zalloc(MEM_ENGINE, r->widest, sizeof *r->weights);
	r->floats = mem_zalloc(MEM_ENGINE, r->widest * 2 * r->n_workers, sizeof *r->floats);
	r->slab = mem_alloc(MEM_ENGINE, r->slab_bytes);
	return r->workers && r->weights && r->floats && r->slab
		? TENON_OK
		: error_set(e, TENON_E_NOMEM, "no memory for a slab of rows");
}

static int tensors(struct run *r, struct error *e)
{
	uint64_t bytes;
	const uint8_t *map = gguf_map(r->job->in, &bytes);
	size_t n_weighted = 0;
	int rc = TENON_OK;

	for (size_t i = 0; i < gguf_n_tensors(r->job->in) && !rc; i++) {
		struct quant_row *row = &r->rows[i];
		const uint8_t *src = map + row->t->offset;

		rc = row->copied ? copy(r, row, src, e) : encode(r, row, src, e);
		n_weighted += row->weighted;
	}
	if (!rc && r->job->importance && !n_weighted)
		rc = error_set(e, TENON_E_INVALID,
			"importance: names no matrix that was quantised; make it with tenon calibrate from a file of this model");
	return rc;
}

int quant_run(const struct quant_job *job, struct quant_row *rows, const char *path, struct error *e)
{
	struct run r = { .job = job, .rows = rows };
	int rc = memory_take(&r, e);

	if (!rc)
		rc = gguf_write_create(path, &r.w, e);
	if (!rc)
		rc = header(&r, e);
	if (!rc)
		rc = tensors(&r, e);
	if (!rc)
		rc = gguf_check_unchanged(job->in, e);
	if (!rc)
		rc = gguf_write_commit(r.w, e);
	gguf_write_destroy(r.w);
	mem_free(r.workers);
	mem_free(r.weights);
	mem_free(r.floats);
	mem_free(r.slab);
	return rc;
}
