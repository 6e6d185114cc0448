/* SPDX-License-Identifier: Apache-2.0
 * Which backends compute which layers, as people write it, and opening them:
 *
 *	LIST = NAME[:DEVICE][=LAYERS],...
 *
 * "cpu": all layers; "cpu=15,ref": the first 15 on cpu, those that are left on ref. Every part but the last says how many
 * layers it takes. Names and devices are those of `tenonctl backends`. Owner: one thread.
 */
#ifndef ENGINE_BACKENDS_H
#define ENGINE_BACKENDS_H
#include "plugins/plugins.h"

enum { MODEL_MAX_PARTS = 8, BACKENDS_TEXT_BYTES = 384 };

/* Layers that one backend computes. */
struct model_place {
	struct backend *backend; /* borrowed, outlives the model; one may stand in several places */
	uint32_t n_layers; /* the next of the model; 0, and only in the last place: those that are left */
	uint32_t device;   /* for messages */
};

struct backends_list { /* read, nothing opened */
	struct {
		char name[32]; /* "": the best there is */
		uint32_t device, n_layers;
	} part[MODEL_MAX_PARTS];
	uint32_t n;
};

/* `device`: where a part names none. NULL and "" are one part on the best backend. INVALID: the part that is wrong and how to write
 * it. */
int backends_parse(const char *text, uint32_t device, struct backends_list *out, struct error *e);

struct backends {
	struct model_place place[MODEL_MAX_PARTS]; /* [n]; equal names and devices are one handle */
	uint32_t n;
};
int backends_open(struct plugins *p, const struct backends_list *l, struct backends *out, struct error *e);
void backends_close(struct backends *b); /* zeroed, closed and half-opened ones too */
bool backends_use(const struct backends *b, const char *name);
void backends_stop_slow_calls(struct backends *b); /* [any thread] */

/* "cpu=15,ref", as opened; devices but the first with their number. */
void backends_text(const struct model_place *place, uint32_t n, char out[BACKENDS_TEXT_BYTES]);
#endif
