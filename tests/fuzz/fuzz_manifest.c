/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a plugin's manifest. Either refused with a code and a text, or everything read is in range
 * and terminated, and choosing a variant gives one or a reason.
 */
#include "plugins/plugins_priv.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libconfig 1.5 loses the text of a string that never ends; nothing of ours is let off. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libconfig.so\n"; }

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_variant(const struct manifest_variant *v)
{
	must(v->n_isa <= MANIFEST_MAX_ISA && v->rank >= 0 && v->rank <= 1000);
	must(v->file[0] && memchr(v->file, 0, sizeof v->file) && !strchr(v->file, '/'));
	must(v->name[0] && memchr(v->name, 0, sizeof v->name));
	for (uint32_t i = 0; i < v->n_isa; i++)
		must(v->isa[i][0] && memchr(v->isa[i], 0, sizeof v->isa[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = { 0 };
	struct manifest m;
	char why[160] = "";
	int rc = manifest_parse("fuzz", (const char *)data, size, &m, &e);

	if (rc) {
		must(rc < 0 && e.code == rc && e.text[0]);
		return 0;
	}
	must(m.n_variants >= 1 && m.n_variants <= MANIFEST_MAX_VARIANTS && m.n_majors >= 1);
	must(m.name[0] && memchr(m.name, 0, sizeof m.name) && memchr(m.vendor, 0, sizeof m.vendor));
	for (uint32_t i = 0; i < m.n_variants; i++)
		check_variant(&m.variant[i]);
	must(manifest_choose(&m, why, sizeof why) || why[0]);
	return 0;
}
