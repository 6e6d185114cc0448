/* SPDX-License-Identifier: Apache-2.0
 * The entry of the plugin `null`; what it does stands in null_ops.c.
 */
#include <tenon/plugin.h>

extern const struct tnp_ops null_ops;

__attribute__((visibility("default"))) tnp_entry_fn tnp_entry;

const struct tnp_ops *tnp_entry(uint32_t want_major, uint32_t least_major)
{
	return want_major >= TNP_ABI_MAJOR && least_major <= TNP_ABI_MAJOR ? &null_ops : NULL;
}
