# SPDX-License-Identifier: Apache-2.0
# sched: requests -> sequences -> steps; runs on the worker's step thread.
noinst_LTLIBRARIES += libsched.la
libsched_la_SOURCES = sched/sched.c sched/sched.h sched/sched_priv.h sched/seq.c sched/seq.h sched/step.c \
	sched/engine.c sched/cost.h
libsched_la_LIBADD = libcache_kv.la libsampling.la
EXTRA_DIST += sched/README.md

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_sched
TESTS += tests/unit/test_sched
THREAD_TESTS += tests/unit/test_sched
tests_unit_test_sched_SOURCES = tests/unit/test_sched.c tests/unit/tiny.h
tests_unit_test_sched_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sched_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
endif
