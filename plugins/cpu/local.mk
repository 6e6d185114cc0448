# SPDX-License-Identifier: Apache-2.0
# The CPU backend; includes tenon/plugin.h and libc only. One module; what is built for a newer instruction set sits
# in convenience libraries of its own and is reached only through a table chosen at run time.

if PLUGIN_CPU
plugin_LTLIBRARIES += plugins/cpu/cpu.la
plugin_DATA += plugins/cpu/cpu.plugin
noinst_DATA += plugins/cpu/.libs/cpu.plugin
plugins_cpu_cpu_la_SOURCES = plugins/cpu/plugin.c plugins/cpu/cpu.h plugins/cpu/cpus.c plugins/cpu/cpus.h \
	plugins/cpu/pool.c plugins/cpu/pool.h plugins/cpu/graph.c plugins/cpu/graph.h plugins/cpu/plan.c \
	plugins/cpu/plan.h plugins/cpu/model.c plugins/cpu/model.h plugins/cpu/kv.c plugins/cpu/batch.c \
	plugins/cpu/exec.c plugins/cpu/profile.c plugins/cpu/groups.c plugins/cpu/experts.c plugins/cpu/plan_experts.c plugins/cpu/plan_memory.c plugins/cpu/plan_priv.h plugins/cpu/rows.c plugins/cpu/attend.c plugins/cpu/elem.c plugins/cpu/elem.h \
	plugins/cpu/attn.c plugins/cpu/attn.h plugins/cpu/half.h
plugins_cpu_cpu_la_CFLAGS = $(AM_CFLAGS) -pthread
plugins_cpu_cpu_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-Wl,--version-script=$(srcdir)/plugins/tnp.map
plugins_cpu_cpu_la_LIBADD = $(LINEAR_LIBS) -lm -lpthread
EXTRA_plugins_cpu_cpu_la_DEPENDENCIES = plugins/tnp.map

if HOST_X86_64
noinst_LTLIBRARIES += libcpu_avx2.la
libcpu_avx2_la_SOURCES = plugins/cpu/elem_avx2.c plugins/cpu/attn_avx2.c \
	plugins/cpu/attn_avx2.h plugins/cpu/attn_source.h plugins/cpu/attn_tile.h plugins/cpu/avx2.h
libcpu_avx2_la_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c
noinst_LTLIBRARIES += libcpu_avx512.la
libcpu_avx512_la_SOURCES = plugins/cpu/attn_avx512.c
libcpu_avx512_la_CFLAGS = $(libcpu_avx2_la_CFLAGS) -mavx512f -mavx512bw -mavx512vl
CPU_ISA_LIBS = libcpu_avx512.la libcpu_avx2.la
plugins_cpu_cpu_la_LIBADD += $(CPU_ISA_LIBS)
noinst_PROGRAMS += bench/bench_attn
bench_bench_attn_SOURCES = bench/bench_attn.c plugins/cpu/attn.c plugins/cpu/half.h
bench_bench_attn_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma
bench_bench_attn_LDADD = liblimits.la $(CPU_ISA_LIBS) -lm
endif

if HOST_AARCH64
plugins_cpu_cpu_la_SOURCES += plugins/cpu/elem_neon.c plugins/cpu/attn_neon.c plugins/cpu/attn_source.h plugins/cpu/neon.h
endif

plugins/cpu/.libs/cpu.plugin: $(srcdir)/plugins/cpu/cpu.plugin plugins/cpu/cpu.la
	$(AM_V_GEN)cp $(srcdir)/plugins/cpu/cpu.plugin $@
CLEANFILES += plugins/cpu/.libs/cpu.plugin
endif
EXTRA_DIST += plugins/cpu/elem_neon.c plugins/cpu/attn_neon.c plugins/cpu/attn_source.h plugins/cpu/neon.h
EXTRA_DIST += plugins/cpu/cpu.plugin plugins/cpu/README.md

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_attn
TESTS += tests/unit/test_attn
tests_unit_test_attn_SOURCES = tests/unit/test_attn.c plugins/cpu/attn.c plugins/cpu/attn.h plugins/cpu/half.h
tests_unit_test_attn_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_attn_LDADD = $(CPU_ISA_LIBS) $(CMOCKA_LIBS) -lm
if PLUGIN_CPU
check_PROGRAMS += tests/unit/test_kernels
TESTS += tests/unit/test_kernels
tests_unit_test_kernels_SOURCES = tests/unit/test_kernels.c plugins/cpu/elem.c plugins/cpu/attn.c
tests_unit_test_kernels_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kernels_LDADD = $(CMOCKA_LIBS) -lm
if HOST_X86_64
tests_unit_test_kernels_LDADD += libcpu_avx2.la
endif
if HOST_AARCH64
tests_unit_test_kernels_SOURCES += plugins/cpu/elem_neon.c plugins/cpu/attn_neon.c
endif
CPU_TESTS = tests/unit/test_cpu_values tests/unit/test_cpu_invariance tests/unit/test_cpu_errors tests/unit/test_pool
check_PROGRAMS += $(CPU_TESTS)
TESTS += $(CPU_TESTS)
THREAD_TESTS += $(CPU_TESTS)
CPU_TEST_SOURCES = tests/unit/tnp_drive.c tests/unit/tnp_drive.h tests/unit/tnp_make.c tests/unit/tnp_make.h
tests_unit_test_cpu_values_SOURCES = tests/unit/test_cpu_values.c $(CPU_TEST_SOURCES)
tests_unit_test_cpu_values_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_cpu_values_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_cpu_invariance_SOURCES = tests/unit/test_cpu_invariance.c $(CPU_TEST_SOURCES)
tests_unit_test_cpu_invariance_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_cpu_invariance_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_cpu_errors_SOURCES = tests/unit/test_cpu_errors.c $(CPU_TEST_SOURCES)
tests_unit_test_cpu_errors_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_cpu_errors_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_pool_SOURCES = tests/unit/test_pool.c plugins/cpu/pool.c plugins/cpu/pool.h
tests_unit_test_pool_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pool_LDADD = $(CMOCKA_LIBS)
endif
endif
