/* SPDX-License-Identifier: Apache-2.0
 * The only place that touches memory a peer writes or reads (V11): each access is one atomic load or store, so the
 * compiler can neither fetch a checked value again nor tear it. scripts/check-shared forbids anything else.
 *
 * Four operations are sequentially consistent and make parking safe without a fence (the order of Dekker):
 *     producer: store tail, load asleep          consumer: store asleep, load tail
 * Whichever store comes first is seen by the other side's load: the bell is rung, or the frame is found.
 */
#ifndef IPC_SHARED_H
#define IPC_SHARED_H
#include "ipc/ipc.h"
#include <string.h>

static inline uint64_t shared_tail(const struct segment *peer)
{
	return __atomic_load_n(&peer->head->tail, __ATOMIC_SEQ_CST);
}
static inline void shared_tail_set(struct segment *own, uint64_t v)
{
	__atomic_store_n(&own->head->tail, v, __ATOMIC_SEQ_CST);
}
/* Pairs with the release below: what the peer consumed may be written over. */
static inline uint64_t shared_head(const struct segment *peer)
{
	return __atomic_load_n(&peer->head->head, __ATOMIC_ACQUIRE);
}
static inline void shared_head_set(struct segment *own, uint64_t v)
{
	__atomic_store_n(&own->head->head, v, __ATOMIC_RELEASE);
}
static inline uint32_t shared_asleep(const struct segment *peer)
{
	return __atomic_load_n(&peer->head->asleep, __ATOMIC_SEQ_CST);
}
static inline void shared_asleep_set(struct segment *own, uint32_t v)
{
	__atomic_store_n(&own->head->asleep, v, __ATOMIC_SEQ_CST);
}

/* What segment_create wrote and segment_open checks. */
static inline void shared_init(struct wire_segment *w, uint64_t ring_bytes)
{
	__atomic_store_n(&w->magic, WIRE_MAGIC, __ATOMIC_RELAXED);
	__atomic_store_n(&w->version, WIRE_VERSION, __ATOMIC_RELAXED);
	__atomic_store_n(&w->ring_bytes, ring_bytes, __ATOMIC_RELEASE);
}
static inline bool shared_valid(const struct wire_segment *w, uint64_t ring_bytes)
{
	return __atomic_load_n(&w->ring_bytes, __ATOMIC_ACQUIRE) == ring_bytes &&
		__atomic_load_n(&w->magic, __ATOMIC_RELAXED) == WIRE_MAGIC &&
		__atomic_load_n(&w->version, __ATOMIC_RELAXED) == WIRE_VERSION;
}

/* One fetch of a frame's head; `at` is a multiple of 8. */
static inline void shared_frame_head(const uint8_t *at, struct wire_head *h)
{
	const uint64_t *p = (const void *)at;
	uint64_t w[2];

	w[0] = __atomic_load_n(&p[0], __ATOMIC_RELAXED);
	w[1] = __atomic_load_n(&p[1], __ATOMIC_RELAXED);
	memcpy(h, w, sizeof *h);
}

/* One pass over a body. The barrier keeps the compiler from going back to `from` for what it finds in `to`. */
static inline void shared_copy(void *to, const uint8_t *from, size_t bytes)
{
	memcpy(to, from, bytes);
	__asm__ volatile("" : : "r"(to), "r"(from) : "memory");
}
#endif
