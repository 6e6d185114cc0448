# SPDX-License-Identifier: Apache-2.0
# sched: requests -> sequences -> steps; runs on the worker's step thread.
noinst_LTLIBRARIES += libsched.la
libsched_la_SOURCES = sched/admit.c sched/budget.c sched/calibrate.c sched/check.c sched/cost.c sched/cost.h \
	sched/cost_priv.h sched/cost_save.c sched/engine.c sched/heap.c sched/list.c sched/pages.c sched/plan.c \
	sched/preempt.c sched/queue.c sched/sched.c sched/sched.h sched/sched_priv.h sched/seq.c sched/seq.h \
	sched/share.c sched/step.c sched/tenant.c
libsched_la_LIBADD = libcache_kv.la libsampling.la -lm
EXTRA_DIST += sched/README.md docs/scheduling.md

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_cost tests/unit/test_sched tests/unit/test_sched_policy tests/unit/test_sched_time tests/unit/test_sched_encoder
TESTS += tests/unit/test_cost tests/unit/test_sched tests/unit/test_sched_policy tests/unit/test_sched_time tests/unit/test_sched_encoder
THREAD_TESTS += tests/unit/test_sched
tests_unit_test_cost_SOURCES = tests/unit/test_cost.c
tests_unit_test_cost_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_cost_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_sched_encoder_SOURCES = tests/unit/test_sched_encoder.c tests/unit/sched_fake.h tests/unit/tiny.h
tests_unit_test_sched_encoder_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sched_encoder_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_sched_time_SOURCES = tests/unit/test_sched_time.c tests/unit/sched_fake.h tests/unit/tiny.h
tests_unit_test_sched_time_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sched_time_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_sched_policy_SOURCES = tests/unit/test_sched_policy.c tests/unit/sched_fake.h tests/unit/tiny.h
tests_unit_test_sched_policy_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sched_policy_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_sched_SOURCES = tests/unit/test_sched.c tests/unit/tiny.h
tests_unit_test_sched_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sched_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
endif
