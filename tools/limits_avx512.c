/* SPDX-License-Identifier: Apache-2.0
 * limits.h: register-only loops of 512-bit instructions, reached only where limit_here() says so.
 */
#include "tools/limits.h"
#include <immintrin.h>

enum { CHAINS = 16 }; /* enough for the latency of every CPU that has these */

/* An accumulator of its own for each chain; `op` is one instruction. */
#define LOOP(name, vec, zero, one, op)                                                                       \
	static void name(uint32_t th, uint32_t nt, void *arg)                                                \
	{                                                                                                    \
		vec w = one, acc[CHAINS];                                                                    \
		(void)th, (void)nt;                                                                          \
		LIMIT_UNROLL                                                                                 \
		for (int i = 0; i < CHAINS; i++)                                                             \
			acc[i] = zero;                                                                       \
		for (long r = *(long *)arg; r > 0; r--) {                                                    \
			LIMIT_UNROLL                                                                         \
			for (int i = 0; i < CHAINS; i++) {                                                   \
				acc[i] = op;                                                                 \
				__asm__ volatile("" : "+v"(acc[i]));                                         \
			}                                                                                    \
		}                                                                                            \
	}

/* clang-format off */
LOOP(loop_vnni, __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(3), _mm512_dpbusd_epi32(acc[i], w, w))
LOOP(loop_vnni16, __m512i, _mm512_setzero_si512(), _mm512_set1_epi16(3), _mm512_dpwssd_epi32(acc[i], w, w))
LOOP(loop_f32, __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f), _mm512_fmadd_ps(w, w, acc[i]))
/* clang-format on */

const struct limit_loop limit_loops_512[3] = { { loop_vnni, CHAINS * 128 }, { loop_vnni16, CHAINS * 64 },
	{ loop_f32, CHAINS * 32 } };
