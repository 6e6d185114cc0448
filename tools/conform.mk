# SPDX-License-Identifier: Apache-2.0
# plugin-conform: the conformance program for backend plugins, installed with the header. It has libc's allocator, not
# jemalloc, so that it can make allocations fail.
bin_PROGRAMS += plugin-conform
plugin_conform_SOURCES = tools/conform.c tools/conform.h tools/conform_peer.c tools/conform_models.c tools/conform_ops.c \
	tools/conform_alloc.c tools/conform_alloc.h tools/conform_l0.c tools/conform_l1.c tools/conform_l2.c \
	tools/conform_l3.c tools/conform_l4.c tools/conform_l5.c tools/conform_l6.c \
	tests/unit/tnp_make.c tests/unit/tnp_make.h
plugin_conform_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
plugin_conform_LDADD = libbase.la libmem_libc.la $(JANSSON_LIBS) -lm

if PLUGIN_REF
dist_check_SCRIPTS += tests/conform/ref
TESTS += tests/conform/ref
if PLUGIN_NULL
if PLUGIN_FAULT
dist_check_SCRIPTS += tests/conform/fault
TESTS += tests/conform/fault
endif
endif
endif
