/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any text as a configuration. Either it is refused with a code and a text, or what was read is in range.
 */
#include "daemon/config.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libconfig 1.5 loses the text of a string that never ends; nothing of ours is let off. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libconfig.so\n"; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = { 0 };
	char *text = malloc(size + 1);
	struct conf c;
	int rc;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (!strstr(text, "@include") && !conf_init(&c, &e)) {
		rc = conf_read_text(&c, text, "fuzz", &e);
		if (!rc)
			rc = conf_complete(&c, &e);
		if (rc && (rc > 0 || !e.text[0] || e.code != rc))
			abort();
		if (!rc && (c.limits.ring_bytes > c.limits.ring_max_bytes || c.isolation > ISOLATION_THREAD))
			abort();
		conf_finish(&c);
	}
	free(text);
	return 0;
}
