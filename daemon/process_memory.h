/* SPDX-License-Identifier: Apache-2.0
 * What this process holds, for the reports of daemon and worker (one process, or two). Any thread.
 */
#ifndef DAEMON_PROCESS_MEMORY_H
#define DAEMON_PROCESS_MEMORY_H
#include <jansson.h>
#include <stdint.h>

struct process_memory {
	uint64_t resident_bytes;
	uint64_t shared_bytes; /* of them: files and shared memory */
};

/* Zeros where the kernel does not say. */
struct process_memory process_memory_read(void);
/* {"areas":{NAME: bytes},"resident","allocations"}, a new reference. */
json_t *process_memory_json(void);
#endif
