/* SPDX-License-Identifier: Apache-2.0
 * What this machine lends: CPUs (affinity, cgroup quota), instruction sets, memory. Pure questions to the kernel,
 * without stdio.
 */
#ifndef PLUGINS_CPU_CPUS_H
#define PLUGINS_CPU_CPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t cpus_usable(void);	     /* affinity mask cut by the cgroup's quota; at least 1 */
bool cpus_have_avx2(void);	     /* AVX2, FMA and F16C, and the OS saves the registers   */
bool cpus_have_avxvnni(void);	     /* the same and AVX-VNNI                               */
bool cpus_have_dotprod(void);	     /* NEON with sdot                                       */
bool cpus_have_vnni(void);	     /* AVX2 and AVX-512 F, BW, VL and VNNI                 */
void cpus_name(char *out, size_t n); /* brand string                                         */
uint64_t cpus_mem_total(void);
uint64_t cpus_mem_free(void); /* what may still be taken, the cgroup's limit included */
#endif
