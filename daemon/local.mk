# SPDX-License-Identifier: Apache-2.0
# daemon: tenond. All but main.c is a convenience library, so that tests can drive its parts.
noinst_LTLIBRARIES += libdaemonconf.la
libdaemonconf_la_SOURCES = daemon/config.c daemon/config_lists.c daemon/config.h daemon/config_priv.h
libdaemonconf_la_CFLAGS = $(AM_CFLAGS) $(CONFIG_CFLAGS)
libdaemonconf_la_LIBADD = $(CONFIG_LIBS)

# The worker's half: engine, scheduler, plugins.
noinst_LTLIBRARIES += libworker.la
libworker_la_SOURCES = daemon/worker.c daemon/worker.h daemon/worker_priv.h daemon/worker_queue.c daemon/worker_prep.c \
	daemon/worker_step.c daemon/worker_step.h daemon/worker_serve.c daemon/worker_report.c daemon/worker_settings.c \
	daemon/worker_admin.c daemon/process_memory.c daemon/process_memory.h daemon/box.c daemon/box.h
libworker_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SODIUM_CFLAGS)
libworker_la_LIBADD = $(JANSSON_LIBS) $(SODIUM_LIBS) -lpthread
WORKER_LIBS = libworker.la libsched.la $(MODEL_LIBS) $(IPC_LIBS)

noinst_LTLIBRARIES += libdaemon.la
libdaemon_la_SOURCES = daemon/daemon.c daemon/daemon.h daemon/loop.c daemon/loop.h daemon/timer.c daemon/timer.h \
	daemon/list.h daemon/sessions.c daemon/session.c daemon/session.h daemon/request.c daemon/request.h daemon/models.c \
	daemon/models.h daemon/worker_link.c daemon/worker_link.h daemon/worker_start.c daemon/admin.c daemon/notify.c daemon/settings.c \
	daemon/queue.c daemon/jobs.c daemon/jobs.h daemon/admin_priv.h daemon/admin_commands.c
libdaemon_la_CPPFLAGS = $(AM_CPPFLAGS) -DPACKAGE_VERSION='"$(PACKAGE_VERSION)"'
libdaemon_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(ZMQ_CFLAGS)
libdaemon_la_LIBADD = $(JANSSON_LIBS) $(ZMQ_LIBS) -lpthread
DAEMON_LIBS = libdaemon.la libdaemonconf.la $(WORKER_LIBS) $(BASE_LIBS) -lm

sbin_PROGRAMS += tenond
tenond_SOURCES = daemon/main.c
tenond_CPPFLAGS = $(libdaemon_la_CPPFLAGS)
tenond_CFLAGS = $(libdaemon_la_CFLAGS)
tenond_LDADD = $(DAEMON_LIBS)

bin_PROGRAMS += tenonctl
tenonctl_SOURCES = tools/tenonctl.c tools/ctl.h tools/ctl_ask.c tools/ctl_show.c tools/ctl_table.c tools/ctl_term.c tools/ctl_top.c
tenonctl_CPPFLAGS = $(libdaemon_la_CPPFLAGS)
tenonctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(ZMQ_CFLAGS) $(NCURSES_CFLAGS)
tenonctl_LDADD = $(BASE_LIBS) $(JANSSON_LIBS) $(ZMQ_LIBS) $(NCURSES_LIBS)

sysconf_DATA += etc/tenond.conf
EXTRA_DIST += etc/tenond.conf etc/tenond.service.in daemon/README.md

# For systemd; installed where its packages look for units, without needing systemd to build.
systemddir = $(prefix)/lib/systemd/system
systemd_DATA = etc/tenond.service
CLEANFILES += etc/tenond.service
etc/tenond.service: $(srcdir)/etc/tenond.service.in
	$(AM_V_GEN)$(MKDIR_P) etc
	$(AM_V_at)sed -e 's,[@]sbindir[@],$(sbindir),' -e 's,[@]sysconfdir[@],$(sysconfdir),' $(srcdir)/etc/tenond.service.in >$@

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_config
TESTS += tests/unit/test_config
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_config_LDADD = libdaemonconf.la $(BASE_LIBS) $(CMOCKA_LIBS)
endif

check_PROGRAMS += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c
tests_fuzz_fuzz_config_LDADD = libdaemonconf.la $(BASE_LIBS)
EXTRA_DIST += tests/data/fuzz/config
if FUZZERS
tests_fuzz_fuzz_config_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_config_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_config
endif

# End to end: a daemon of its own per test. The long form of the kills: make chaos.
E2E_TESTS = tests/e2e/a_serve.py tests/e2e/b_bad_input.py tests/e2e/c_kills.py tests/e2e/d_faults.py \
	tests/e2e/e_classes.py tests/e2e/f_prefix.py tests/e2e/g_durable.py \
	tests/e2e/h_baseline.py tests/e2e/i_embed.py tests/e2e/m_plan.py tests/e2e/n_windows.py
dist_check_SCRIPTS += $(E2E_TESTS)
EXTRA_DIST += tests/e2e/tenon_e2e.py
TESTS += $(E2E_TESTS)

CHAOS_KILLS = 100
chaos: all $(check_DATA)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) TENON_CHAOS_KILLS=$(CHAOS_KILLS) $(PYTHON3) $(srcdir)/tests/e2e/c_kills.py
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) TENON_CHAOS_KILLS=$(CHAOS_KILLS) $(PYTHON3) $(srcdir)/tests/e2e/h_baseline.py
.PHONY: chaos

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_daemon tests/unit/test_daemon_work
THREAD_TESTS += tests/unit/test_daemon tests/unit/test_daemon_work
TESTS += tests/unit/test_daemon tests/unit/test_daemon_work
tests_unit_test_daemon_SOURCES = tests/unit/test_daemon.c tests/unit/daemon_world.h tests/unit/fake_worker.c tests/unit/fake_worker.h
tests_unit_test_daemon_CPPFLAGS = $(libdaemon_la_CPPFLAGS)
tests_unit_test_daemon_CFLAGS = $(libdaemon_la_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_daemon_LDADD = $(DAEMON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_daemon_work_SOURCES = tests/unit/test_daemon_work.c tests/unit/daemon_world.h tests/unit/fake_worker.c \
	tests/unit/fake_worker.h
tests_unit_test_daemon_work_CPPFLAGS = $(libdaemon_la_CPPFLAGS)
tests_unit_test_daemon_work_CFLAGS = $(libdaemon_la_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_daemon_work_LDADD = $(DAEMON_LIBS) $(CMOCKA_LIBS)
endif

SCD_PAGES += man/tenond.8 man/tenonctl.1 man/tenond.conf.5
EXTRA_DIST += man/tenond.8.scd man/tenonctl.1.scd man/tenond.conf.5.scd
