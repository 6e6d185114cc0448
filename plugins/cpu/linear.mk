# SPDX-License-Identifier: Apache-2.0
# Matrix products of the CPU plugin: one convenience library for each instruction set, so that nothing built for a
# newer one can run before the variant is chosen.
noinst_LTLIBRARIES += liblinear_base.la
liblinear_base_la_SOURCES = plugins/cpu/linear_base.c plugins/cpu/dequant.c plugins/cpu/dequant.h plugins/cpu/linear.h \
	plugins/cpu/unroll.h
LINEAR_LIBS = liblinear_base.la

if HOST_X86_64
noinst_LTLIBRARIES += liblinear_avx2.la
liblinear_avx2_la_SOURCES = plugins/cpu/linear_avx2.c plugins/cpu/linear_avx2.h plugins/cpu/linear_avx2_codes.h \
	plugins/cpu/linear_avx2_quantise.h plugins/cpu/linear_avx2_act.c plugins/cpu/linear_avx2_pack.c \
	plugins/cpu/linear_avx2_i8.c plugins/cpu/linear_avx2_i8.h plugins/cpu/linear_avx2_i16.c plugins/cpu/linear_avx2_i16.h \
	plugins/cpu/linear_avx2_f32.c plugins/cpu/linear_avx2_float.c
liblinear_avx2_la_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c -ffp-contract=off

noinst_LTLIBRARIES += liblinear_vnni.la
liblinear_vnni_la_SOURCES = plugins/cpu/linear_vnni.c plugins/cpu/linear_vnni.h plugins/cpu/linear_vnni_act.c \
	plugins/cpu/linear_vnni_codes.h
liblinear_vnni_la_CFLAGS = $(liblinear_avx2_la_CFLAGS) -mavx512f -mavx512bw -mavx512vl -mavx512vnni

noinst_LTLIBRARIES += liblinear_avxvnni.la
liblinear_avxvnni_la_SOURCES = plugins/cpu/linear_avxvnni.c plugins/cpu/linear_avx2_i8.h plugins/cpu/linear_avx2_i16.h
liblinear_avxvnni_la_CFLAGS = $(liblinear_avx2_la_CFLAGS) -mavxvnni
LINEAR_LIBS += liblinear_vnni.la liblinear_avxvnni.la liblinear_avx2.la
endif

if HOST_AARCH64
noinst_LTLIBRARIES += liblinear_neon.la
liblinear_neon_la_SOURCES = plugins/cpu/linear_neon.c plugins/cpu/linear_neon_pack.c plugins/cpu/linear_neon.h
liblinear_neon_la_CFLAGS = $(AM_CFLAGS) -march=armv8.2-a+dotprod -ffp-contract=off
LINEAR_LIBS += liblinear_neon.la
endif
EXTRA_DIST += plugins/cpu/linear_neon.c plugins/cpu/linear_neon_pack.c plugins/cpu/linear_neon.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_linear
TESTS += tests/unit/test_linear
tests_unit_test_linear_SOURCES = tests/unit/test_linear.c
tests_unit_test_linear_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_linear_LDADD = $(LINEAR_LIBS) $(CMOCKA_LIBS) -lm
endif
EXTRA_DIST += tests/data/linear/dequant.bin tests/data/linear/generate.py
if HOST_X86_64
noinst_PROGRAMS += bench/bench_linear
bench_bench_linear_SOURCES = bench/bench_linear.c
bench_bench_linear_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma
bench_bench_linear_LDADD = liblimits.la $(LINEAR_LIBS)
endif
