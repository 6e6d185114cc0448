/* SPDX-License-Identifier: Apache-2.0
 * process_memory.h.
 */
#include "daemon/process_memory.h"
#include "base/base.h"
#include <stdio.h>
#include <unistd.h>

struct process_memory process_memory_read(void)
{
	unsigned long long size = 0, resident = 0, shared = 0;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%llu %llu %llu", &size, &resident, &shared) != 3)
		resident = shared = 0;
	if (f)
		(void)fclose(f);
	return (struct process_memory){ resident * page, MIN_OF(shared, resident) * page };
}

json_t *process_memory_json(void)
{
	struct process_memory m = process_memory_read();
	json_t *areas = json_object();

	for (int a = 0; a < MEM_N_AREAS; a++)
		(void)json_object_set_new(areas, mem_area_name((enum mem_area)a),
			json_integer((json_int_t)mem_area_bytes((enum mem_area)a)));
	return json_pack("{s:o, s:I, s:I}", "areas", areas, "resident", (json_int_t)m.resident_bytes,
		"allocations", (json_int_t)mem_n_allocs());
}
