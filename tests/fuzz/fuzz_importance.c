/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as an importance file. Either it is refused with a code and a text, or every vector in it gives
 * weights that are finite, above zero and one on average, to matrices of as many columns and to no others.
 */
#include "engine/importance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void failed(int rc, const struct error *e) { must(rc < 0 && e->code == rc && e->text[0]); }

/* A matrix of the vector's name with the same number of columns, and one with another. */
static void ask(const struct importance *im, const struct gguf_tensor *v)
{
	struct gguf_tensor t = { .name = v->name, .rank = 2, .dim = { 3, v->dim[0], 1, 1 } };
	float *out = malloc((v->dim[0] + 1) * sizeof *out);
	struct error e = { 0 };
	double sum = 0;

	must(out && !importance_weights(im, &t, out, &e));
	for (uint64_t i = 0; i < v->dim[0]; i++) {
		must(isfinite(out[i]) && out[i] > 0);
		sum += (double)out[i];
	}
	must(fabs(sum / (double)v->dim[0] - 1) < 1e-3);
	t.dim[1]++;
	failed(importance_weights(im, &t, out, &e), &e);
	t.name = (struct gguf_str){ "\xff none", 6 };
	must(importance_weights(im, &t, out, &e) == TENON_E_NOT_FOUND);
	free(out);
}

static void ask_all(const struct importance *im, const uint8_t *data, size_t size)
{
	struct gguf *g = NULL;

	must(!gguf_open_memory(data, size, &g, NULL) && importance_n(im) == gguf_n_tensors(g));
	for (size_t i = 0; i < gguf_n_tensors(g); i++)
		ask(im, gguf_tensor_at(g, i));
	gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct importance *im = NULL;
	struct error e = { 0 };
	char path[64];
	int fd = memfd_create("importance", MFD_CLOEXEC), rc;

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	rc = importance_open(path, &im, &e);
	if (rc) {
		failed(rc, &e);
		must(!im);
	} else {
		ask_all(im, data, size);
	}
	importance_close(im);
	(void)close(fd);
	return 0;
}
