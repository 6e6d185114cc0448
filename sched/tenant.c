/* SPDX-License-Identifier: Apache-2.0
 * Tenants and their virtual counters: who got less, for its weight, is next. A counter only matters while its tenant
 * has something open; who comes back starts no lower than those who stayed, so nobody saves up. Step thread only.
 */
#include "sched/sched_priv.h"
#include <string.h>

enum { IDLE_TENANTS = 256, DEFAULT_WEIGHT = 1000 };

struct tenant *tenant_find(const struct sched *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_tenants; i++)
		if (!strcmp(s->tenants[i]->name, name))
			return s->tenants[i];
	return NULL;
}

static void tenant_destroy(struct tenant *t)
{
	if (!t)
		return;
	for (uint32_t k = 0; k < SCHED_CLASSES; k++)
		heap_finish(&t->queue[k]);
	mem_free(t->name);
	mem_free(t);
}

static bool room_for_one(struct sched *s)
{
	struct tenant **v;
	uint32_t cap = s->cap_tenants * 2 + 8;

	if (s->n_tenants < s->cap_tenants)
		return true;
	v = mem_resize(MEM_SCHED, s->tenants, cap * sizeof(struct tenant *));
	if (!v)
		return false;
	s->tenants = v;
	s->cap_tenants = cap;
	return true;
}

static struct tenant *tenant_create(const struct sched *s, const char *name)
{
	struct tenant *t = mem_zalloc(MEM_SCHED, 1, sizeof *t);

	if (!t)
		return NULL;
	t->name = mem_strdup(MEM_SCHED, name);
	t->weight = DEFAULT_WEIGHT;
	t->prefix_id = s->prefix ? prefix_tenant(s->prefix, name) : 0;
	for (uint32_t k = 0; k < SCHED_CLASSES; k++)
		t->queue[k] =
			(struct heap){ .before = queue_key_before, .index = offsetof(struct seq, queue_at) };
	if (!t->name) {
		tenant_destroy(t);
		return NULL;
	}
	return t;
}

/* Forgets who has been idle longest when there are many. */
static void forget_one(struct sched *s)
{
	uint32_t n_idle = 0, oldest = 0;

	for (uint32_t i = 0; i < s->n_tenants; i++) {
		const struct tenant *t = s->tenants[i];

		if (t->open)
			continue;
		if (!n_idle++ || t->idle_ns < s->tenants[oldest]->idle_ns)
			oldest = i;
	}
	if (n_idle < IDLE_TENANTS)
		return;
	tenant_destroy(s->tenants[oldest]);
	s->tenants[oldest] = s->tenants[--s->n_tenants];
}

struct tenant *tenant_get(struct sched *s, const char *name, uint64_t now, struct error *e)
{
	struct tenant *t = tenant_find(s, name);

	if (t)
		return t;
	forget_one(s);
	t = room_for_one(s) ? tenant_create(s, name) : NULL;
	if (!t) {
		(void)error_set(e, TENON_E_NOMEM, "request: out of memory for its tenant");
		return NULL;
	}
	t->idle_ns = now;
	s->tenants[s->n_tenants++] = t;
	return t;
}

/* Lowest counter of those who have something open; without any, the one of who was last. */
static double level_of_others(const struct sched *s)
{
	double least = 0;
	bool any = false;

	for (uint32_t i = 0; i < s->n_tenants; i++) {
		if (!s->tenants[i]->open)
			continue;
		if (!any || s->tenants[i]->level < least)
			least = s->tenants[i]->level;
		any = true;
	}
	return any ? least : s->idle_level;
}

int tenant_open(struct sched *s, struct tenant *t, uint32_t weight, struct error *e)
{
	for (uint32_t k = 0; k < SCHED_CLASSES; k++)
		if (!heap_reserve(&t->queue[k], t->open + 1))
			return error_set(e, TENON_E_NOMEM, "request: out of memory for the queue");
	t->weight = weight ? weight : DEFAULT_WEIGHT;
	if (!t->open)
		t->level = MAX_OF(t->level, level_of_others(s));
	t->open++;
	return TENON_OK;
}

void tenant_close(struct sched *s, struct tenant *t, uint64_t now)
{
	if (--t->open)
		return;
	t->idle_ns = now;
	s->idle_level = MAX_OF(s->idle_level, t->level);
}

void tenant_charge(struct tenant *t, double tokens)
{
	t->service += tokens;
	t->level += tokens * DEFAULT_WEIGHT / t->weight;
}

void tenants_finish(struct sched *s)
{
	for (uint32_t i = 0; i < s->n_tenants; i++)
		tenant_destroy(s->tenants[i]);
	mem_free(s->tenants);
}

size_t sched_tenants(const struct sched *s, struct sched_tenant_status *out, size_t room)
{
	for (uint32_t i = 0; i < s->n_tenants && i < room; i++) {
		const struct tenant *t = s->tenants[i];

		out[i] = (struct sched_tenant_status){ .name = t->name,
			.weight = t->weight,
			.running = t->running,
			.service = (uint64_t)t->service };
		for (uint32_t k = 0; k < SCHED_CLASSES; k++)
			out[i].waiting += t->waiting[k];
	}
	return s->n_tenants;
}
