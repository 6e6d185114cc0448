# SPDX-License-Identifier: Apache-2.0
# client: libtenon. libclient.la is the same code for programs of this tree, which link it statically.
noinst_LTLIBRARIES += libclient.la
libclient_la_SOURCES = client/client_priv.h client/tenon.c client/submit.c client/next.c client/open_ids.c \
	include/tenon/client.h
libclient_la_CPPFLAGS = $(AM_CPPFLAGS) -DPACKAGE_VERSION='"$(PACKAGE_VERSION)"'
CLIENT_LIBS = libclient.la $(IPC_LIBS)

lib_LTLIBRARIES += libtenon.la
libtenon_la_SOURCES =
libtenon_la_LIBADD = libclient.la libipc.la libbase.la libmem_libc.la $(ZMQ_LIBS)
libtenon_la_DEPENDENCIES = libclient.la libipc.la libbase.la libmem_libc.la client/tenon.map
libtenon_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -Wl,--version-script=$(srcdir)/client/tenon.map
tenoninclude_HEADERS += include/tenon/client.h
pkgconfig_DATA += client/tenon.pc
EXTRA_DIST += client/tenon.map
dist_check_SCRIPTS += scripts/check-libtenon
TESTS += scripts/check-libtenon

CLIENT_EXAMPLES = client/examples/hello client/examples/many client/examples/poll client/examples/cancel
check_PROGRAMS += $(CLIENT_EXAMPLES)
client_examples_hello_LDADD = libtenon.la
client_examples_many_LDADD = libtenon.la
client_examples_poll_LDADD = libtenon.la
client_examples_cancel_LDADD = libtenon.la

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_client
TESTS += tests/unit/test_client
THREAD_TESTS += tests/unit/test_client
tests_unit_test_client_SOURCES = tests/unit/test_client.c tests/unit/fake_daemon.c tests/unit/fake_daemon.h
tests_unit_test_client_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_client_LDADD = $(CLIENT_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS) -lpthread
endif
