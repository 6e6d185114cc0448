/* SPDX-License-Identifier: Apache-2.0
 * The two checks of attach messages, apart from the sockets so that they can be tested and fuzzed.
 */
#ifndef IPC_ATTACH_PRIV_H
#define IPC_ATTACH_PRIV_H
#include "ipc/ipc.h"

int attach_check_hello(const void *message, size_t bytes, struct wire_hello *h, struct error *e);
/* A refusal comes back as its code and text. n_fds: descriptors that came along. */
int attach_check_welcome(
	const void *message, size_t bytes, unsigned n_fds, struct wire_welcome *w, struct error *e);
#endif
