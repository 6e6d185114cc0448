/* SPDX-License-Identifier: Apache-2.0
 * The layout that the header of ABI 1.0 gives, for test_abi.c: offset and bytes of each line of layout.def. Built with
 * the frozen header before the current one in the include path.
 */
#include <tenon/plugin.h>

extern const size_t abi_frozen[], abi_frozen_lines;
const size_t abi_frozen[] = {
#define S(s, bytes)	    0, sizeof(struct s),
#define M(s, m, off, bytes) offsetof(struct s, m), sizeof(((struct s *)0)->m),
#include "tests/abi/1.0/layout.def"
#undef S
#undef M
};
const size_t abi_frozen_lines = sizeof abi_frozen / sizeof abi_frozen[0] / 2;
