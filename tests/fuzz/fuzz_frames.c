/* SPDX-License-Identifier: Apache-2.0
 * What a hostile peer may put into its ring: the input is the ring's contents, taken and checked as the daemon (odd
 * first byte) or a client does. A request that passes is written again and must read back the same.
 */
#include "ipc/ipc.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void request(const struct wire_head *h, const void *body)
{
	_Alignas(8) uint8_t out[WIRE_RING_MIN], again[WIRE_RING_MIN];
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h, n, m;
	struct frame_request f, g;
	struct error e = { 0 };
	int rc = frame_request_parse(body, bytes, h->flags, false, 1 << 20, &f, &e);

	if (rc) {
		must(rc < 0 && e.code == rc && e.text[0]);
		return;
	}
	n = frame_request_write(&f, out, sizeof out);
	must(n && n + f.payload_here <= sizeof out);
	if (f.payload_here)
		memcpy(out + n, f.payload, f.payload_here);
	must(!frame_request_parse(out, n + f.payload_here, h->flags, false, 1 << 20, &g, NULL));
	m = frame_request_write(&g, again, sizeof again);
	must(m == n && !memcmp(out, again, n) && g.payload_here == f.payload_here);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct link a, b;
	_Alignas(8) static uint8_t body[WIRE_RING_MIN / 4];
	struct ring_in in;
	struct wire_head h;
	int rc;

	if (!a.tx.ring && link_pair(WIRE_RING_MIN, &a, &b, NULL))
		return 0;
	if (!size || size - 1 > WIRE_RING_MIN)
		return 0;
	memset(a.tx.ring, 0, WIRE_RING_MIN);
	memcpy(a.tx.ring, data + 1, size - 1);
	ring_out_init(&a.out, &a.tx, &a.rx);
	a.out.tail = (size - 1 + WIRE_ALIGN - 1) & ~(uint64_t)(WIRE_ALIGN - 1);
	ring_publish(&a.out);
	ring_in_init(&in, &b.rx, &b.tx);
	while (!(rc = ring_take(&in, &h, body, sizeof body))) {
		if (data[0] & 1)
			request(&h, body);
		else
			(void)frame_event_check(&h, body, NULL);
		ring_consumed(&in);
	}
	must(rc == TENON_E_AGAIN || rc == TENON_E_PROTOCOL);
	return 0;
}
