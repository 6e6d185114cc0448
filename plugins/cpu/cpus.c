/* SPDX-License-Identifier: Apache-2.0
 * CPU count, instruction sets and memory of this machine, see cpus.h. [any thread]
 */
#include "cpus.h"
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* Start of the file as a string; false if it cannot be read. */
static bool file_read(const char *path, char *out, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t got = 0;

	if (fd < 0)
		return false;
	while (have < n - 1 && (got = read(fd, out + have, n - 1 - have)) > 0)
		have += (size_t)got;
	(void)close(fd);
	out[have] = '\0';
	return got >= 0;
}

static bool path_join(char *out, size_t n, const char *a, const char *b, const char *c)
{
	size_t la = strlen(a), lb = strlen(b), lc = strlen(c);

	if (la + lb + lc + 1 > n)
		return false;
	memcpy(out, a, la);
	memcpy(out + la, b, lb);
	memcpy(out + la + lb, c, lc + 1);
	return true;
}

/* Path of this process in hierarchy `key` ("0::" for v2, ":cpu,cpuacct:" parts for v1). */
static bool cgroup_path(const char *key, char *out, size_t n)
{
	char text[4096], *at, *end;

	if (!file_read("/proc/self/cgroup", text, sizeof text))
		return false;
	at = strstr(text, key);
	if (!at)
		return false;
	at = strchr(at, '/');
	if (!at)
		return false;
	end = strchr(at, '\n');
	if (end)
		*end = '\0';
	if (strlen(at) >= n)
		return false;
	memcpy(out, at, strlen(at) + 1);
	return true;
}

/* "quota period" -> whole CPUs, rounded up; UINT32_MAX without a limit. */
static uint32_t quota_cpus(const char *text)
{
	char *rest;
	unsigned long long quota = strtoull(text, &rest, 10), period;

	if (rest == text)
		return UINT32_MAX;
	period = strtoull(rest, NULL, 10);
	if (!period || !quota || quota / period >= UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)((quota + period - 1) / period);
}

/* Smallest quota from this group up to the root: each level limits the ones below. */
static uint32_t quota_v2(void)
{
	char dir[2048], path[4096], text[128];
	uint32_t best = UINT32_MAX;

	if (!cgroup_path("0::", dir, sizeof dir))
		return best;
	for (;;) {
		char *slash;
		uint32_t n;

		if (path_join(path, sizeof path, "/sys/fs/cgroup", dir, "/cpu.max") &&
			file_read(path, text, sizeof text)) {
			n = quota_cpus(text);
			best = n < best ? n : best;
		}
		slash = strrchr(dir, '/');
		if (!slash)
			return best;
		*slash = '\0';
	}
}

static uint32_t quota_v1(void)
{
	static const char *const dirs[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct" };
	char path[256], quota[64], period[64], both[130];

	for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
		if (!path_join(path, sizeof path, dirs[i], "/cpu.cfs_quota_us", "") ||
			!file_read(path, quota, sizeof quota) || quota[0] == '-')
			continue;
		if (!path_join(path, sizeof path, dirs[i], "/cpu.cfs_period_us", "") ||
			!file_read(path, period, sizeof period) ||
			!path_join(both, sizeof both, quota, " ", period))
			continue;
		return quota_cpus(both);
	}
	return UINT32_MAX;
}

uint32_t cpus_usable(void)
{
	cpu_set_t mask;
	uint32_t n = 1, v2 = quota_v2(), v1 = quota_v1();

	CPU_ZERO(&mask);
	if (!sched_getaffinity(0, sizeof mask, &mask) && CPU_COUNT(&mask) > 0)
		n = (uint32_t)CPU_COUNT(&mask);
	n = v2 < n ? v2 : n;
	n = v1 < n ? v1 : n;
	return n ? n : 1;
}

#if defined(__x86_64__)
static uint64_t xcr0(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

bool cpus_have_dotprod(void) { return false; }
bool cpus_have_avx2(void)
{
	const uint32_t want1 = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want1) != want1 || (xcr0() & 6) != 6)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

bool cpus_have_avxvnni(void)
{
	uint32_t a, b, c, d;

	return cpus_have_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
		__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

bool cpus_have_vnni(void)
{
	const uint32_t want = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
	uint32_t a, b, c, d;

	return cpus_have_avx2() && (xcr0() & 0xe6) == 0xe6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
		(b & want) == want && (c & bit_AVX512VNNI);
}

void cpus_name(char *out, size_t n)
{
	uint32_t r[12] = { 0 };
	char text[sizeof r + 1];
	const char *at = text;

	for (uint32_t i = 0; i < 3; i++)
		if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]))
			r[4 * i] = 0;
	memcpy(text, r, sizeof r);
	text[sizeof r] = '\0';
	while (*at == ' ')
		at++;
	if (!*at)
		at = "x86-64";
	(void)path_join(out, n, at, "", "");
}
#else
bool cpus_have_avx2(void) { return false; }
bool cpus_have_avxvnni(void) { return false; }
bool cpus_have_vnni(void) { return false; }
#if defined(__aarch64__)
bool cpus_have_dotprod(void) { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
#else
bool cpus_have_dotprod(void) { return false; }
#endif
void cpus_name(char *out, size_t n) { (void)path_join(out, n, "CPU", "", ""); }
#endif

static uint64_t meminfo(const char *key)
{
	char text[4096], *at;

	if (!file_read("/proc/meminfo", text, sizeof text))
		return 0;
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* Room left under the group's own memory limit; UINT64_MAX without one. */
static uint64_t cgroup_room(void)
{
	char dir[2048], path[4096], text[64];
	uint64_t most, used;

	if (!cgroup_path("0::", dir, sizeof dir) ||
		!path_join(path, sizeof path, "/sys/fs/cgroup", dir, "/memory.max") ||
		!file_read(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	most = strtoull(text, NULL, 10);
	if (!path_join(path, sizeof path, "/sys/fs/cgroup", dir, "/memory.current") ||
		!file_read(path, text, sizeof text))
		return UINT64_MAX;
	used = strtoull(text, NULL, 10);
	return used < most ? most - used : 0;
}

uint64_t cpus_mem_total(void) { return meminfo("MemTotal:"); }

uint64_t cpus_mem_free(void)
{
	uint64_t machine = meminfo("MemAvailable:"), group = cgroup_room();

	return machine < group ? machine : group;
}
