/* SPDX-License-Identifier: Apache-2.0
 * The two messages of the handshake. First byte: how many descriptors came along (WELCOME), the rest is the message,
 * read once as HELLO and once as WELCOME.
 */
#include "ipc/attach_priv.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static bool power_of_two(uint64_t v) { return v && !(v & (v - 1)); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = { 0 };
	struct wire_welcome w;
	struct wire_hello h;
	int rc;

	if (!size)
		return 0;
	rc = attach_check_hello(data + 1, size - 1, &h, &e);
	must(rc ? rc < 0 && e.code == rc && e.text[0]
		: size - 1 == sizeof h && !h.features && h.version_min <= WIRE_VERSION);
	must(rc || ((!h.c2d_bytes || power_of_two(h.c2d_bytes)) && h.c2d_bytes <= WIRE_RING_MAX));
	rc = attach_check_welcome(data + 1, size - 1, data[0] & 7, &w, &e);
	must(rc ? rc < 0 && e.code == rc && e.text[0] && strlen(e.text) < sizeof e.text
		: power_of_two(w.d2c_bytes) && w.d2c_bytes <= WIRE_RING_MAX && w.max_in_flight);
	return 0;
}
