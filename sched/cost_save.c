/* SPDX-License-Identifier: Apache-2.0
 * A cost model as bytes: little-endian, version and checksum inside. What comes back is hostile until every number
 * was looked at. Any thread.
 */
#include "sched/cost_priv.h"
#include "base/base.h"
#include <math.h>
#include <string.h>

enum { SAVE_MAGIC = 0x54534354, SAVE_VERSION = 2, SAVE_KNOTS = COST_KNOTS };

struct saved {
	uint32_t magic, version, n_knots, calibrated;
	uint64_t n_observed;
	double theta[COST_N], sd[COST_N], error_mean, error_p90;
	uint64_t sum; /* FNV-1a over everything before */
};
_Static_assert(sizeof(struct saved) <= COST_SAVE_BYTES, "cost_save promises this");

static uint64_t sum_of(const struct saved *s)
{
	const unsigned char *p = (const unsigned char *)s;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < offsetof(struct saved, sum); i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

size_t cost_save(const struct cost_model *c, void *out, size_t room)
{
	struct saved s = { .magic = SAVE_MAGIC,
		.version = SAVE_VERSION,
		.n_knots = SAVE_KNOTS,
		.calibrated = c->calibrated,
		.n_observed = c->n_observed,
		.error_mean = c->error_mean,
		.error_p90 = c->error_p90 };

	if (room < sizeof s)
		return 0;
	memcpy(s.theta, c->theta, sizeof s.theta);
	for (uint32_t i = 0; i < COST_N; i++)
		s.sd[i] = sqrt(MAX_OF(c->cov[i][i], 0));
	s.sum = sum_of(&s);
	memcpy(out, &s, sizeof s);
	return sizeof s;
}

static bool in_range(double v, double lo, double hi) { return isfinite(v) && v >= lo && v <= hi; }

static bool sane(const struct saved *s)
{
	bool ok = in_range(s->error_mean, 0, 100) && in_range(s->error_p90, 0, 100) && s->calibrated <= 1;

	for (uint32_t i = 0; i < COST_N; i++)
		ok = ok && in_range(s->theta[i], i < COST_KNOTS ? 1 : 0, 1e15) && in_range(s->sd[i], 0, 1e15);
	return ok;
}

int cost_load(struct cost_model *c, const void *in, size_t len, struct error *e)
{
	struct saved s;

	if (len != sizeof s)
		return error_set(e, TENON_E_FORMAT, "cost model: %zu bytes instead of %zu; calibrate again",
			len, sizeof s);
	memcpy(&s, in, sizeof s);
	if (s.magic != SAVE_MAGIC || s.version != SAVE_VERSION || s.n_knots != SAVE_KNOTS)
		return error_set(e, TENON_E_FORMAT, "cost model: of another version; calibrate again");
	if (s.sum != sum_of(&s) || !sane(&s))
		return error_set(e, TENON_E_FORMAT, "cost model: damaged; calibrate again");
	memcpy(c->theta, s.theta, sizeof c->theta);
	cost_spread(c, s.sd);
	cost_smooth(c);
	c->error_mean = s.error_mean;
	c->error_p90 = s.error_p90;
	c->n_observed = s.n_observed;
	c->calibrated = s.calibrated;
	return TENON_OK;
}
