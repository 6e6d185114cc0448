/* SPDX-License-Identifier: Apache-2.0
 * The two ends of a frame ring (V1..V5). Indices of our own are private and only published; the peer's are loaded
 * once and must lie between what we know and what is possible, else the session ends. Free-running counters.
 * Thread: one producer, one consumer. Neither allocates, waits or enters the kernel.
 */
#include "ipc/shared.h"

static uint64_t ring_padded(uint32_t frame_bytes)
{
	return ((uint64_t)frame_bytes + WIRE_ALIGN - 1) & ~(uint64_t)(WIRE_ALIGN - 1);
}

uint32_t ring_max_frame(uint64_t ring_bytes) { return (uint32_t)(ring_bytes / 4); }

void ring_out_init(struct ring_out *r, struct segment *own, const struct segment *peer)
{
	*r = (struct ring_out){ .own = own, .peer = peer, .capacity = own->ring_bytes };
}

void ring_in_init(struct ring_in *r, const struct segment *peer, struct segment *own)
{
	*r = (struct ring_in){ .peer = peer, .own = own, .capacity = peer->ring_bytes };
}

/* Looks at the peer's head: it may only move forward, and not past what we published (V2). */
static bool ring_refresh(struct ring_out *r)
{
	uint64_t head = shared_head(r->peer);

	if (head - r->head_seen > r->published - r->head_seen)
		return false;
	r->head_seen = head;
	return true;
}

uint64_t ring_room(struct ring_out *r, bool *bad)
{
	*bad = !ring_refresh(r);
	return *bad ? 0 : r->capacity - (r->tail - r->head_seen);
}

void *ring_put(struct ring_out *r, uint16_t type, uint16_t flags, uint64_t id, uint32_t body_bytes, bool *bad)
{
	const uint32_t limit = ring_max_frame(r->capacity);
	struct wire_head h = {
		.bytes = (uint32_t)sizeof h + body_bytes, .type = type, .flags = flags, .id = id
	};
	uint64_t all = ring_padded(h.bytes);
	uint8_t *at = r->own->ring + (r->tail & (r->capacity - 1));

	*bad = false;
	if (body_bytes > limit - sizeof h)
		return NULL;
	if (r->capacity - (r->tail - r->head_seen) < all && ring_room(r, bad) < all)
		return NULL;
	memset(at + all - WIRE_ALIGN, 0, WIRE_ALIGN);
	memcpy(at, &h, sizeof h);
	r->tail += all;
	return at + sizeof h;
}

void ring_publish(struct ring_out *r)
{
	if (r->published == r->tail)
		return;
	r->published = r->tail;
	shared_tail_set(r->own, r->tail);
}

/* True when at least one frame's head is there; *broken when the peer's tail is impossible. */
static bool ring_look(struct ring_in *r, bool *broken)
{
	*broken = false;
	if (r->head == r->tail_seen) {
		uint64_t tail = shared_tail(r->peer);

		*broken = tail - r->head > r->capacity || tail % WIRE_ALIGN;
		if (*broken || tail == r->head)
			return *broken;
		r->tail_seen = tail;
	}
	return true;
}

bool ring_ready(struct ring_in *r)
{
	bool broken;

	return ring_look(r, &broken);
}

int ring_take(struct ring_in *r, struct wire_head *h, void *body, uint32_t room)
{
	const uint8_t *at = r->peer->ring + (r->head & (r->capacity - 1));
	uint64_t avail;
	uint32_t body_bytes;
	bool broken;

	if (!ring_look(r, &broken))
		return TENON_E_AGAIN;
	avail = r->tail_seen - r->head;
	if (broken || avail < sizeof *h)
		return TENON_E_PROTOCOL;
	shared_frame_head(at, h);
	if (h->bytes < sizeof *h || h->bytes > ring_max_frame(r->capacity) || ring_padded(h->bytes) > avail)
		return TENON_E_PROTOCOL;
	body_bytes = h->bytes - (uint32_t)sizeof *h;
	if (body_bytes > room)
		return TENON_E_TOO_LONG;
	shared_copy(body, at + sizeof *h, body_bytes);
	if (body_bytes < room)
		((uint8_t *)body)[body_bytes] = 0;
	r->head += ring_padded(h->bytes);
	return TENON_OK;
}

void ring_consumed(struct ring_in *r) { shared_head_set(r->own, r->head); }
