/* SPDX-License-Identifier: Apache-2.0
 * Table of open requests of a session: fixed size, so that submitting allocates nothing. Ids ascend, which makes the
 * id itself a good hash. Thread: any, under the table's lock.
 */
#include "client/client_priv.h"

enum { OPEN_IDS_MAX = 1 << 16 };

bool open_ids_init(struct open_ids *o, uint32_t limit)
{
	uint32_t n = 64;

	*o = (struct open_ids){ .limit = MIN_OF(limit, (uint32_t)OPEN_IDS_MAX) };
	while (n < 2 * o->limit)
		n *= 2;
	o->mask = n - 1;
	o->places = mem_zalloc(MEM_IPC, n, sizeof *o->places);
	(void)pthread_mutex_init(&o->lock, NULL);
	return o->places;
}

void open_ids_finish(struct open_ids *o)
{
	MEM_CLEAR(o->places);
	(void)pthread_mutex_destroy(&o->lock);
}

static uint32_t open_ids_place(const struct open_ids *o, uint64_t id)
{
	uint32_t i = (uint32_t)id & o->mask;

	while (o->places[i] && o->places[i] != id)
		i = (i + 1) & o->mask;
	return i;
}

bool open_ids_add(struct open_ids *o, uint64_t id)
{
	bool room;

	(void)pthread_mutex_lock(&o->lock);
	room = o->n < o->limit;
	if (room) {
		o->places[open_ids_place(o, id)] = id;
		o->n++;
	}
	(void)pthread_mutex_unlock(&o->lock);
	return room;
}

/* Closes the gap at `i`, so that those behind it are found still. */
static void open_ids_close_gap(struct open_ids *o, uint32_t i)
{
	for (i = (i + 1) & o->mask; o->places[i]; i = (i + 1) & o->mask) {
		uint64_t moved = o->places[i];

		o->places[i] = 0;
		o->places[open_ids_place(o, moved)] = moved;
	}
}

bool open_ids_remove(struct open_ids *o, uint64_t id)
{
	uint32_t i;
	bool had;

	(void)pthread_mutex_lock(&o->lock);
	i = open_ids_place(o, id);
	had = o->places[i] != 0;
	if (had) {
		o->places[i] = 0;
		o->n--;
		open_ids_close_gap(o, i);
	}
	(void)pthread_mutex_unlock(&o->lock);
	return had;
}

bool open_ids_has(struct open_ids *o, uint64_t id)
{
	bool has;

	(void)pthread_mutex_lock(&o->lock);
	has = o->places[open_ids_place(o, id)] != 0;
	(void)pthread_mutex_unlock(&o->lock);
	return has;
}

uint32_t open_ids_count(struct open_ids *o)
{
	uint32_t n;

	(void)pthread_mutex_lock(&o->lock);
	n = o->n;
	(void)pthread_mutex_unlock(&o->lock);
	return n;
}
