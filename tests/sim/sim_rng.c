/* SPDX-License-Identifier: Apache-2.0
 * Numbers for the simulation: SplitMix64 (Steele et al., OOPSLA 2014), a stream for each purpose, so that what one part
 * draws does not move another part's numbers. Integers only.
 */
#include "tests/sim/sim.h"

uint64_t sim_mix(uint64_t a, uint64_t b)
{
	uint64_t z = a + 0x9e3779b97f4a7c15ull * (b + 1);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

struct rng rng_of(uint64_t seed, uint64_t stream)
{
	return (struct rng){ sim_mix(sim_mix(0x74656e6f6eull, seed), stream) };
}

uint64_t rng_next(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15ull;
	return sim_mix(r->state, 0);
}

uint32_t rng_below(struct rng *r, uint32_t n) { return n ? (uint32_t)(((rng_next(r) >> 32) * n) >> 32) : 0; }

uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi)
{
	return hi > lo ? lo + rng_below(r, hi - lo + 1) : lo;
}

bool rng_chance(struct rng *r, uint32_t permille) { return rng_below(r, 1000) < permille; }

/* -log2 of a uniform number: leading zeros, and a straight line between powers of two; times ln 2. */
uint64_t rng_wait(struct rng *r, uint64_t mean)
{
	uint64_t u = rng_next(r) | 1;
	uint32_t zeros = (uint32_t)__builtin_clzll(u);
	uint64_t mantissa = zeros < 63 ? (u << (zeros + 1)) >> 44 : 0; /* 20 bits */
	uint64_t log2 = ((uint64_t)zeros << 20) + ((1u << 20) - mantissa);

	return (uint64_t)((unsigned __int128)mean * log2 * 693 / 1000 >> 20);
}
