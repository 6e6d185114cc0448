/* SPDX-License-Identifier: Apache-2.0
 * Features of the processor that the kernel has switched on too. A feature that CPUID reports but whose registers
 * the kernel does not save (XCR0) would fault, so both are asked.
 */
#include "plugins/plugins_priv.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
enum reg { EAX, EBX, ECX, EDX };
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };

static const struct feature {
	const char *name;
	uint32_t leaf, subleaf, reg, bit, xcr0;
} features[] = {
	{ "sse3", 1, 0, ECX, 0, 0 },
	{ "ssse3", 1, 0, ECX, 9, 0 },
	{ "sse4_1", 1, 0, ECX, 19, 0 },
	{ "sse4_2", 1, 0, ECX, 20, 0 },
	{ "popcnt", 1, 0, ECX, 23, 0 },
	{ "fma", 1, 0, ECX, 12, XCR0_AVX },
	{ "f16c", 1, 0, ECX, 29, XCR0_AVX },
	{ "avx", 1, 0, ECX, 28, XCR0_AVX },
	{ "bmi1", 7, 0, EBX, 3, 0 },
	{ "bmi2", 7, 0, EBX, 8, 0 },
	{ "avx2", 7, 0, EBX, 5, XCR0_AVX },
	{ "avx512f", 7, 0, EBX, 16, XCR0_AVX512 },
	{ "avx512dq", 7, 0, EBX, 17, XCR0_AVX512 },
	{ "avx512bw", 7, 0, EBX, 30, XCR0_AVX512 },
	{ "avx512vl", 7, 0, EBX, 31, XCR0_AVX512 },
	{ "avx512vbmi", 7, 0, ECX, 1, XCR0_AVX512 },
	{ "avx512vnni", 7, 0, ECX, 11, XCR0_AVX512 },
	{ "avx512bf16", 7, 1, EAX, 5, XCR0_AVX512 },
	{ "avxvnni", 7, 1, EAX, 4, XCR0_AVX },
	{ "amx_tile", 7, 0, EDX, 24, XCR0_AMX },
	{ "amx_int8", 7, 0, EDX, 25, XCR0_AMX },
};

static uint64_t xcr0(void)
{
	uint32_t r[4], lo, hi;

	if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] & bit_OSXSAVE))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

static bool feature_on(const struct feature *f)
{
	uint32_t r[4] = { 0 };

	if (f->subleaf &&
		(!__get_cpuid_count(f->leaf, 0, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || r[EAX] < f->subleaf))
		return false;
	if (!__get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
		return false;
	return (r[f->reg] >> f->bit & 1) && (xcr0() & f->xcr0) == f->xcr0;
}
#elif defined(__aarch64__)
static const struct feature {
	const char *name;
	unsigned long kind, bit;
} features[] = {
	{ "neon", AT_HWCAP, HWCAP_ASIMD },
	{ "fp16", AT_HWCAP, HWCAP_ASIMDHP },
	{ "dotprod", AT_HWCAP, HWCAP_ASIMDDP },
	{ "sve", AT_HWCAP, HWCAP_SVE },
	{ "i8mm", AT_HWCAP2, HWCAP2_I8MM },
	{ "bf16", AT_HWCAP2, HWCAP2_BF16 },
};

static bool feature_on(const struct feature *f) { return getauxval(f->kind) & f->bit; }
#else
static const struct feature {
	const char *name;
} features[] = { { "none" } };

static bool feature_on(const struct feature *f)
{
	(void)f;
	return false;
}
#endif

bool isa_has(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(features); i++)
		if (!strcmp(features[i].name, name))
			return feature_on(&features[i]);
	return false;
}
