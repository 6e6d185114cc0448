# SPDX-License-Identifier: Apache-2.0
# sched: requests -> sequences -> steps; runs on the worker's step thread.
noinst_LTLIBRARIES += libsched.la
libsched_la_SOURCES = sched/sched.c sched/sched.h sched/sched_priv.h sched/seq.c sched/seq.h sched/step.c
libsched_la_LIBADD = libcache_kv.la libsampling.la
EXTRA_DIST += sched/README.md
