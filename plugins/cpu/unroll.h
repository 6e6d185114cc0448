/* SPDX-License-Identifier: Apache-2.0
 * What the kernel files ask of the compiler: functions that are always inlined, loops that are unrolled whole. Builds with
 * sanitizers check every access: unrolled, a kernel file takes them minutes, and assembly they cannot look into. There
 * loops stay loops and CPU_SANITIZED turns assembly off; the bits are the same.
 */
#ifndef PLUGINS_CPU_UNROLL_H
#define PLUGINS_CPU_UNROLL_H
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CPU_SANITIZED 1
#endif
#endif

#define INLINE static inline __attribute__((always_inline))
#ifdef CPU_SANITIZED
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#endif
