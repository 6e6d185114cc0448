# SPDX-License-Identifier: Apache-2.0
# Deterministic simulation of scheduler and prefix cache. `make check` runs a short form, `make check-sim` 10,000
# histories.
check_PROGRAMS += tests/sim/sim_sched
TESTS += tests/sim/sim_sched
tests_sim_sim_sched_SOURCES = tests/sim/sim_sched.c tests/sim/sim.h tests/sim/sim_rng.c tests/sim/request.c tests/sim/world.c \
	tests/sim/fake_engine.c tests/sim/history.c tests/sim/checks.c tests/sim/policy.c tests/sim/budgets.c tests/sim/tiers.c tests/sim/tree.c $(GGUF_MAKE)
tests_sim_sim_sched_LDADD = libsched.la $(MODEL_LIBS) $(BASE_LIBS)
EXTRA_DIST += tests/sim/README.md

check-sim: tests/sim/sim_sched$(EXEEXT)
	tests/sim/sim_sched$(EXEEXT) --count 10000
.PHONY: check-sim
