/* SPDX-License-Identifier: Apache-2.0
 * backends.h: a list read, and opened.
 */
#include "engine/backends.h"
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICE = 255, MAX_LAYERS = 1024 };
static const char how[] = "write NAME[:DEVICE]=LAYERS,...,NAME as in cpu=15,ref";

/* ---- reading -------------------------------------------------------------------------------------------------------- */

/* A number behind `mark` at *s, which moves on; *out stays where there is no such mark. False: no number in [lo, hi]. */
static bool number_behind(const char **s, char mark, uint32_t lo, uint32_t hi, uint32_t *out)
{
	uint32_t v = 0;
	const char *at = *s;

	if (*at != mark)
		return true;
	for (at++; *at >= '0' && *at <= '9' && v <= hi; at++)
		v = v * 10 + (uint32_t)(*at - '0');
	if (at == *s + 1 || v < lo || v > hi)
		return false;
	*s = at;
	*out = v;
	return true;
}

/* One part, up to the comma or the end. */
static bool part_parse(const char **s, struct backends_list *l)
{
	size_t len = strcspn(*s, ":=,");

	if (!len || len >= sizeof l->part[0].name || l->n == MODEL_MAX_PARTS)
		return false;
	memcpy(l->part[l->n].name, *s, len);
	*s += len;
	if (!number_behind(s, ':', 0, MAX_DEVICE, &l->part[l->n].device) ||
		!number_behind(s, '=', 1, MAX_LAYERS, &l->part[l->n].n_layers))
		return false;
	l->n++;
	return !**s || **s == ',';
}

int backends_parse(const char *text, uint32_t device, struct backends_list *out, struct error *e)
{
	struct backends_list l = { 0 };

	for (uint32_t i = 0; i < MODEL_MAX_PARTS; i++)
		l.part[i].device = device;
	l.n = text && *text ? 0 : 1;
	for (const char *s = text; s && *s;) {
		const char *part = s;

		if (!part_parse(&s, &l) || (*s == ',' && !s[1]))
			return error_set(e, TENON_E_INVALID, "backend: '%.*s' is no part of a list; %s",
				(int)MIN_OF(strcspn(part, ",") + 1, (size_t)40), part, how);
		if (!*s != !l.part[l.n - 1].n_layers)
			return error_set(e, TENON_E_INVALID, "backend: '%.100s': %s; %s", text,
				*s ? "every part but the last says how many layers it takes"
				   : "the last part takes the layers that are left, without a number",
				how);
		s += *s == ',';
	}
	*out = l;
	return TENON_OK;
}

/* ---- opening -------------------------------------------------------------------------------------------------------- */

int backends_open(struct plugins *p, const struct backends_list *l, struct backends *out, struct error *e)
{
	struct backends b = { 0 };
	int rc = TENON_OK;

	for (uint32_t i = 0; i < l->n && !rc; i++) {
		struct backend *same = NULL;

		for (uint32_t j = 0; j < i && !same; j++)
			if (l->part[j].device == l->part[i].device &&
				!strcmp(l->part[j].name, l->part[i].name))
				same = b.place[j].backend;
		if (!same)
			rc = backend_open(
				p, *l->part[i].name ? l->part[i].name : NULL, l->part[i].device, &same, e);
		if (!rc)
			b.place[b.n++] = (struct model_place){
				.backend = same, .n_layers = l->part[i].n_layers, .device = l->part[i].device
			};
	}
	if (rc)
		backends_close(&b);
	else
		*out = b;
	return rc;
}

void backends_close(struct backends *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		struct backend *one = b->place[i].backend;

		for (uint32_t j = i; j < b->n; j++)
			if (b->place[j].backend == one)
				b->place[j].backend = NULL;
		backend_close(one);
	}
	*b = (struct backends){ 0 };
}

bool backends_use(const struct backends *b, const char *name)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (!strcmp(backend_name(b->place[i].backend), name))
			return true;
	return false;
}

void backends_stop_slow_calls(struct backends *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		backend_stop_slow_calls(b->place[i].backend);
}

void backends_text(const struct model_place *place, uint32_t n, char out[BACKENDS_TEXT_BYTES])
{
	size_t at = 0;

	*out = 0;
	for (uint32_t i = 0; i < n && at < BACKENDS_TEXT_BYTES; i++) {
		char device[16] = "", layers[16] = "";

		if (place[i].device)
			(void)snprintf(device, sizeof device, ":%u", place[i].device);
		if (i + 1 < n)
			(void)snprintf(layers, sizeof layers, "=%u,", place[i].n_layers);
		at += (size_t)snprintf(out + at, BACKENDS_TEXT_BYTES - at, "%s%s%s",
			backend_name(place[i].backend), device, layers);
	}
}
