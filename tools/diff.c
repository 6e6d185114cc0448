/* SPDX-License-Identifier: Apache-2.0
 * diff.h.
 */
#include "tools/diff.h"
#include "base/base.h"
#include "tools/session.h"
#include <math.h>
#include <string.h>

double diff_relative(const struct diff_sum *s)
{
	return s->signal > 0 ? sqrt(s->noise / s->signal) : s->noise > 0 ? 1 : 0;
}

static bool parts_equal(const struct model *a, const struct model *b)
{
	if (model_n_taps(a) != model_n_taps(b))
		return false;
	for (size_t i = 0; i < model_n_taps(a); i++) {
		const struct model_tap *x = model_tap_at(a, i), *y = model_tap_at(b, i);

		if (x->layer != y->layer || strcmp(x->word, y->word) || x->width != y->width ||
			x->chosen != y->chosen)
			return false;
	}
	return true;
}

int diff_begin(struct diff *d, struct error *e)
{
	const struct model *a = d->side[0].m, *b = d->side[1].m;

	if (strcmp(model_info(a)->arch, model_info(b)->arch) ||
		model_info(a)->n_vocab != model_info(b)->n_vocab || !parts_equal(a, b))
		return error_set(e, TENON_E_INVALID,
			"the two models have other layers, widths or vocabularies; take two files of the same model");
	d->n_parts = model_n_taps(a);
	d->part = mem_zalloc(MEM_TOOL, d->n_parts, sizeof *d->part);
	if (!d->part)
		return error_set(e, TENON_E_NOMEM, "no memory");
	for (size_t i = 0; i < d->n_parts; i++) {
		d->part[i].layer = model_tap_at(a, i)->layer;
		d->part[i].word = model_tap_at(a, i)->word;
	}
	return TENON_OK;
}

void diff_finish(struct diff *d) { MEM_CLEAR(d->part); }

/* ---- sums --------------------------------------------------------------------------------------------------------------- */

static void sum_add(struct diff_sum *s, const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double x = a[i], e = x - b[i];

		s->signal += x * x;
		s->noise += e * e;
		s->most = fmax(s->most, fabs(e));
	}
}

static void parts_add(struct diff *d)
{
	for (size_t i = 0; i < d->n_parts; i++) {
		const struct model_tap *a = model_tap_at(d->side[0].m, i), *b = model_tap_at(d->side[1].m, i);

		sum_add(&d->part[i].sum, a->rows, b->rows, (size_t)MIN_OF(a->n_rows, b->n_rows) * a->width);
	}
}

static int32_t best(const float *row, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t i = 1; i < n; i++)
		at = row[i] > row[at] ? i : at;
	return (int32_t)at;
}

/* log of the sum of exp; the top is taken out first. */
static double log_sum(const float *row, uint32_t n)
{
	double top = row[best(row, n)], sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += exp(row[i] - top);
	return log(sum) + top;
}

static double kl(const float *a, const float *b, uint32_t n)
{
	double la = log_sum(a, n), lb = log_sum(b, n), sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		double p = a[i] - la;

		sum += exp(p) * (p - (b[i] - lb));
	}
	return sum > 0 ? sum : 0;
}

static struct diff_parting parting(const float *a, const float *b, uint32_t n, uint32_t at)
{
	struct diff_parting p = { .at = at, .a = best(a, n), .b = best(b, n) };

	p.margin = a[p.a] - a[p.b];
	return p;
}

static void row_add(struct diff *d, const float *a, const float *b, uint32_t n, uint32_t at)
{
	struct diff_parting p = parting(a, b, n, at);
	double k = kl(a, b, n);

	sum_add(&d->logits, a, b, n);
	d->kl += k;
	if (k > d->kl_most) {
		d->kl_most = k;
		d->kl_at = at;
	}
	if (p.a != p.b) {
		if (d->n_same == d->n)
			d->first = p;
		if (d->n_same == d->n || p.margin > d->widest.margin)
			d->widest = p;
	}
	d->n_same += p.a == p.b;
	d->n++;
}

/* ---- steps ---------------------------------------------------------------------------------------------------------------- */

static int step_both(
	struct diff *d, const int32_t *ids, uint32_t past, uint32_t n, uint32_t n_out, struct error *e)
{
	for (int i = 0; i < 2; i++) {
		int rc = score_step(&d->side[i], ids, past, n, n_out, e);

		if (rc) {
			error_prefix(e, "%s: ", i ? "b" : "a");
			return rc;
		}
	}
	return session_interrupted() ? error_set(e, TENON_E_CANCELLED, "interrupted") : TENON_OK;
}

/* The last rows are those behind the text. Both get a's tokens, which are b's too until they part. */
static int go_on(struct diff *d, uint32_t past, uint32_t last_row, uint32_t n_greedy, struct error *e)
{
	uint32_t n_vocab = model_info(d->side[0].m)->n_vocab;

	d->n_greedy = MIN_OF(n_greedy,
		MIN_OF(model_info(d->side[0].m)->n_ctx, model_info(d->side[1].m)->n_ctx) - past + 1);
	for (d->n_greedy_same = 0; d->n_greedy_same < d->n_greedy; d->n_greedy_same++) {
		size_t row = (size_t)last_row * n_vocab;
		int rc;

		d->greedy = parting(d->side[0].rows + row, d->side[1].rows + row, n_vocab, past - 1);
		if (d->greedy.a != d->greedy.b)
			return TENON_OK;
		if (d->n_greedy_same + 1 == d->n_greedy)
			continue;
		rc = step_both(d, &d->greedy.a, past++, 1, 1, e);
		if (rc)
			return rc;
		last_row = 0;
	}
	return TENON_OK;
}

int diff_run(struct diff *d, const int32_t *ids, uint32_t n, uint32_t n_greedy, struct error *e)
{
	uint32_t n_vocab = model_info(d->side[0].m)->n_vocab, len = 0;

	for (uint32_t past = 0; past < n; past += len) {
		int rc;

		len = MIN_OF(n - past, (uint32_t)SCORE_OUT);
		cli_progress("diff", (double)past / n);
		rc = step_both(d, ids + past, past, len, len, e);
		if (rc)
			return rc;
		parts_add(d);
		for (uint32_t i = 0; i < len; i++)
			row_add(d, d->side[0].rows + (size_t)i * n_vocab,
				d->side[1].rows + (size_t)i * n_vocab, n_vocab, past + i);
	}
	return go_on(d, n, len - 1, n_greedy, e);
}

static double cosine(const float *a, const float *b, uint32_t n)
{
	double dot = 0, aa = 0, bb = 0;

	for (uint32_t i = 0; i < n; i++) {
		dot += (double)a[i] * b[i];
		aa += (double)a[i] * a[i];
		bb += (double)b[i] * b[i];
	}
	return aa > 0 && bb > 0 ? fmin(dot / sqrt(aa * bb), 1) : 0;
}

int diff_run_texts(struct diff *d, const struct texts *t, struct error *e)
{
	uint32_t width = score_width(&d->side[0]);

	for (size_t i = 0; i < t->n; i++) {
		const float *a = d->side[0].rows, *b = d->side[1].rows;
		int rc = step_both(d, t->t[i].id, 0, (uint32_t)t->t[i].n, 1, e);
		double c = rc ? 0 : cosine(a, b, width);

		if (rc)
			return rc;
		cli_progress("diff", (double)i / (double)t->n);
		parts_add(d);
		sum_add(&d->logits, a, b, width);
		d->cosine += c;
		if (!i || c < d->cosine_least) {
			d->cosine_least = c;
			d->cosine_at = (uint32_t)i;
		}
		d->n_tokens += t->t[i].n;
		d->n++;
	}
	return TENON_OK;
}
