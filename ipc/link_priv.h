/* SPDX-License-Identifier: Apache-2.0
 * Building a link in steps: link_init, then segments and bell, then link_rings.
 */
#ifndef IPC_LINK_PRIV_H
#define IPC_LINK_PRIV_H
#include "ipc/ipc.h"

void link_init(struct link *l);
void link_rings(struct link *l); /* both segments stand */
#endif
