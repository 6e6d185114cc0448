/* SPDX-License-Identifier: Apache-2.0
 * bench_model_items.h.
 */
#include "tools/bench_model_items.h"
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *prefix;
	enum item_kind kind;
	uint32_t most;
} kinds[] = { { "prefill.", ITEM_PREFILL, ITEM_MAX_TOKENS }, { "decode.batch", ITEM_BATCH, ITEM_MAX_SEQS },
	{ "decode.", ITEM_DECODE, ITEM_MAX_TOKENS } };

/* A number of 1 to `most` and nothing behind it; 0: not one. */
static uint32_t number(const char *text, size_t len, uint32_t most)
{
	uint32_t v = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || (!i && text[i] == '0'))
			return 0;
		v = v * 10 + (uint32_t)(text[i] - '0');
		if (v > most)
			return 0;
	}
	return v;
}

static bool item_parse(const char *text, size_t len, struct item *out)
{
	for (size_t k = 0; k < COUNT_OF(kinds) && len < sizeof out->name; k++) {
		size_t n = strlen(kinds[k].prefix);

		if (len <= n || strncmp(text, kinds[k].prefix, n))
			continue;
		*out = (struct item){ .kind = kinds[k].kind, .n = number(text + n, len - n, kinds[k].most) };
		memcpy(out->name, text, len);
		return out->n != 0;
	}
	return false;
}

bool items_parse(const char *cmd, const char *list, struct items *out)
{
	out->n = 0;
	out->asked = true;
	for (const char *at = list;; at++) {
		size_t len = strcspn(at, ",");

		if (out->n == ITEMS_MAX || !item_parse(at, len, &out->at[out->n])) {
			(void)cli_usage(cmd,
				"--only: '%.*s' is none of prefill.N, decode.N, decode.batchS (S up to %d), or one too many",
				(int)MIN_OF(len, 64), at, ITEM_MAX_SEQS);
			return false;
		}
		out->n++;
		at += len;
		if (!*at)
			return true;
	}
}

void items_default(struct items *out)
{
	(void)items_parse("",
		"prefill.512,decode.128,decode.batch4,decode.batch8,decode.batch16,decode.batch32,"
		"prefill.4000",
		out);
	out->asked = false;
}

uint32_t items_seqs(const struct items *s)
{
	uint32_t most = 1;

	for (size_t i = 0; i < s->n; i++)
		if (s->at[i].kind == ITEM_BATCH)
			most = MAX_OF(most, s->at[i].n);
	return most;
}

bool counts_parse(const char *cmd, const char *list, struct counts *out)
{
	out->n = 0;
	for (const char *at = list;; at++) {
		size_t len = strcspn(at, ",");
		uint32_t v = number(at, len, 1024);

		if (!v || out->n == ITEMS_MAX) {
			(void)cli_usage(cmd, "--threads: '%s' is not a list of numbers from 1 to 1024", list);
			return false;
		}
		out->at[out->n++] = v;
		at += len;
		if (!*at)
			return true;
	}
}

void counts_sweep(uint32_t most, struct counts *out)
{
	out->n = 0;
	for (uint32_t v = 1; v < most && out->n + 1 < ITEMS_MAX; v *= 2)
		out->at[out->n++] = v;
	out->at[out->n++] = most;
}
