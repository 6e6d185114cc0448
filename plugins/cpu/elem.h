/* SPDX-License-Identifier: Apache-2.0
 * Row and element kernels: one table an ISA variant. Pure functions; y may be x. The value of element j depends on
 * the arguments at j only (norms: on the row only), never on where a slice begins or ends.
 */
#ifndef PLUGINS_CPU_ELEM_H
#define PLUGINS_CPU_ELEM_H
#include <stddef.h>
#include <stdint.h>

struct elem_ops {
	/* y = x / rms(x) * w; w NULL: ones */
	void (*rmsnorm)(const float *x, const float *w, float eps, size_t n, float *y);
	/* y = (x - mean) / sqrt(var + eps) * w + b; w, b NULL: ones, zeros */
	void (*layernorm)(const float *x, const float *w, const float *b, float eps, size_t n, float *y);
	void (*l2norm)(const float *x, float eps, size_t n, float *y);
	void (*add)(const float *a, const float *b, size_t n, float *y);
	void (*mul)(const float *a, const float *b, size_t n, float *y);
	void (*scale)(const float *a, float s, size_t n, float *y);
	void (*axpy)(const float *x, float s, size_t n, float *y); /* y += s x */
	void (*softcap)(const float *a, float cap, size_t n, float *y);
	void (*act)(uint32_t act, const float *x, size_t n, float *y);
	void (*glu)(
		uint32_t act, const float *gate, const float *up, size_t n, float *y); /* act(gate) * up */
	/* One head: the first `dims` values are turned by cs[dims/2] cosines and as many sines, the rest is copied. */
	void (*rope)(
		const float *x, const float *cs, uint32_t mode, uint32_t dims, uint32_t head_dim, float *y);
};

extern const struct elem_ops elem_base;
#if defined(__x86_64__)
extern const struct elem_ops elem_avx2;
#elif defined(__aarch64__)
extern const struct elem_ops elem_neon;
#endif
#endif
