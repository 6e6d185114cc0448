# SPDX-License-Identifier: Apache-2.0
# cache/kv: page numbers and block tables (worker side); no device calls.
noinst_LTLIBRARIES += libcache_kv.la
libcache_kv_la_SOURCES = cache/kv/pages.c cache/kv/pages.h cache/kv/prefix.h cache/kv/prefix_priv.h cache/kv/prefix.c \
	cache/kv/prefix_node.c cache/kv/prefix_find.c cache/kv/prefix_offer.c cache/kv/prefix_evict.c cache/kv/prefix_pin.c \
	cache/kv/prefix_save.c cache/kv/prefix_restore.c cache/kv/prefix_rebuild.c cache/kv/tier.h cache/kv/tier_priv.h \
	cache/kv/tier.c cache/kv/tier_memory.c cache/kv/tier_file.c
libcache_kv_la_CFLAGS = $(AM_CFLAGS) $(SODIUM_CFLAGS)
libcache_kv_la_LIBADD = $(SODIUM_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_pages
TESTS += tests/unit/test_pages
tests_unit_test_pages_SOURCES = tests/unit/test_pages.c
tests_unit_test_pages_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pages_LDADD = libcache_kv.la $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_prefix
TESTS += tests/unit/test_prefix
tests_unit_test_prefix_SOURCES = tests/unit/test_prefix.c tests/unit/kv_world.c tests/unit/kv_world.h
tests_unit_test_prefix_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_prefix_LDADD = libcache_kv.la $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_tier
TESTS += tests/unit/test_tier
tests_unit_test_tier_SOURCES = tests/unit/test_tier.c
tests_unit_test_tier_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_tier_LDADD = libcache_kv.la $(BASE_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/test_prefix_tier
TESTS += tests/unit/test_prefix_tier
tests_unit_test_prefix_tier_SOURCES = tests/unit/test_prefix_tier.c tests/unit/kv_world.c tests/unit/kv_world.h
tests_unit_test_prefix_tier_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_prefix_tier_LDADD = libcache_kv.la $(BASE_LIBS) $(CMOCKA_LIBS)
endif

check_PROGRAMS += tests/fuzz/fuzz_tier
tests_fuzz_fuzz_tier_SOURCES = tests/fuzz/fuzz_tier.c
tests_fuzz_fuzz_tier_LDADD = libcache_kv.la $(BASE_LIBS)
EXTRA_DIST += tests/data/fuzz/tier
if FUZZERS
tests_fuzz_fuzz_tier_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_tier_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_tier
endif
EXTRA_DIST += cache/README.md
