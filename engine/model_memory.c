/* SPDX-License-Identifier: Apache-2.0
 * How much memory is left: /proc/meminfo and the control groups (version 2, or 1 where mounted) above this process. What cannot be
 * read does not limit. Page cache counts as available, in the group too, since it gives way.
 */
#include "base/base.h"
#include "engine/ledger.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind `key` in a file of lines "key number"; UINT64_MAX when there is none. */
static uint64_t number_behind(const char *path, const char *key, uint64_t unit)
{
	char line[256];
	uint64_t v = UINT64_MAX;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%" SCNu64, &v) == 1) {
			v *= unit;
			break;
		}
	if (f)
		(void)fclose(f);
	return v;
}

/* UINT64_MAX for "max" or no such file. */
static uint64_t number_in(const char *dir, const char *file)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path)
		return UINT64_MAX;
	return number_behind(path, "", 1);
}

static uint64_t left_in(const char *dir, const char *limit, const char *used, const char *cache_key)
{
	char stat[4096];
	uint64_t max = number_in(dir, limit), now = number_in(dir, used), cache;

	if (max == UINT64_MAX || now == UINT64_MAX ||
		(size_t)snprintf(stat, sizeof stat, "%s/memory.stat", dir) >= sizeof stat)
		return UINT64_MAX;
	cache = number_behind(stat, cache_key, 1);
	now -= cache == UINT64_MAX ? 0 : MIN_OF(cache, now);
	return now < max ? max - now : 0;
}

/* The least of a group and all groups above it, up to the mount point. */
static uint64_t left_up_from(
	char *dir, size_t root_len, const char *limit, const char *used, const char *cache_key)
{
	uint64_t left = UINT64_MAX;

	for (;;) {
		char *slash;

		left = MIN_OF(left, left_in(dir, limit, used, cache_key));
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < root_len)
			return left;
		*slash = 0;
	}
}

static uint64_t groups_left(void)
{
	static const char v2[] = "/sys/fs/cgroup", v1[] = "/sys/fs/cgroup/memory";
	char line[4000], dir[4096];
	uint64_t left = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof line, f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (!strcmp(line, "0") && !list[1]) {
			(void)snprintf(dir, sizeof dir, "%s%s", v2, strcmp(path, "/") ? path : "");
			left = MIN_OF(left,
				left_up_from(dir, sizeof v2 - 1, "memory.max", "memory.current",
					"inactive_file "));
		} else if (strstr(list + 1, "memory")) {
			(void)snprintf(dir, sizeof dir, "%s%s", v1, strcmp(path, "/") ? path : "");
			left = MIN_OF(left,
				left_up_from(dir, sizeof v1 - 1, "memory.limit_in_bytes",
					"memory.usage_in_bytes", "total_inactive_file "));
		}
	}
	if (f)
		(void)fclose(f);
	return left;
}

uint64_t memory_available(void)
{
	return MIN_OF(number_behind("/proc/meminfo", "MemAvailable:", 1024), groups_left());
}

void memory_text(uint64_t bytes, char *out, size_t room)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	size_t i = 0;

	while (v >= 1024 && i + 1 < COUNT_OF(unit)) {
		v /= 1024;
		i++;
	}
	(void)snprintf(out, room, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
}
