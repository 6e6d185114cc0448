# SPDX-License-Identifier: Apache-2.0
# ipc: frames through shared memory. Used by libtenon, tenond and workers; needs base (and its allocator), libzmq, libc.
noinst_LTLIBRARIES += libipc.la
libipc_la_SOURCES = ipc/ipc.h ipc/shared.h ipc/segment.c ipc/ring.c ipc/park.c ipc/bell_priv.h ipc/bell_eventfd.c \
	ipc/bell_zmq.c ipc/link.c ipc/link_priv.h ipc/attach.c ipc/attach_priv.h ipc/connect.c ipc/frame.c \
	include/tenon/wire.h
libipc_la_CPPFLAGS = $(AM_CPPFLAGS) $(ZMQ_CFLAGS)
libipc_la_LIBADD = $(ZMQ_LIBS)
IPC_LIBS = libipc.la
tenoninclude_HEADERS += include/tenon/wire.h
EXTRA_DIST += ipc/README.md docs/ipc.md
dist_check_SCRIPTS += scripts/check-shared
TESTS += scripts/check-shared

if HAVE_CMOCKA
IPC_TESTS = tests/unit/test_ipc_ring tests/unit/test_ipc_attach tests/unit/test_ipc_frames tests/unit/test_ipc_model \
	tests/unit/test_ipc_stress
check_PROGRAMS += $(IPC_TESTS)
TESTS += $(IPC_TESTS)
THREAD_TESTS += $(IPC_TESTS)
tests_unit_test_ipc_ring_SOURCES = tests/unit/test_ipc_ring.c
tests_unit_test_ipc_ring_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ipc_ring_LDADD = $(IPC_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lpthread
tests_unit_test_ipc_attach_SOURCES = tests/unit/test_ipc_attach.c
tests_unit_test_ipc_attach_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(ZMQ_CFLAGS)
tests_unit_test_ipc_attach_LDADD = $(IPC_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) $(ZMQ_LIBS) -lpthread
tests_unit_test_ipc_frames_SOURCES = tests/unit/test_ipc_frames.c
tests_unit_test_ipc_frames_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ipc_frames_LDADD = $(IPC_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lpthread
tests_unit_test_ipc_model_SOURCES = tests/unit/test_ipc_model.c
tests_unit_test_ipc_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ipc_model_LDADD = $(CMOCKA_LIBS)
tests_unit_test_ipc_stress_SOURCES = tests/unit/test_ipc_stress.c
tests_unit_test_ipc_stress_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ipc_stress_LDADD = $(IPC_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lpthread
endif

check_PROGRAMS += tests/fuzz/fuzz_frames tests/fuzz/fuzz_attach
tests_fuzz_fuzz_frames_SOURCES = tests/fuzz/fuzz_frames.c
tests_fuzz_fuzz_attach_SOURCES = tests/fuzz/fuzz_attach.c
tests_fuzz_fuzz_frames_LDADD = $(IPC_LIBS) $(BASE_LIBS)
tests_fuzz_fuzz_attach_LDADD = $(IPC_LIBS) $(BASE_LIBS)
EXTRA_DIST += tests/data/fuzz/frames tests/data/fuzz/attach
if FUZZERS
tests_fuzz_fuzz_frames_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_attach_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_frames_SOURCES += tests/fuzz/replay_main.c
tests_fuzz_fuzz_attach_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_frames tests/fuzz/fuzz_attach
endif
