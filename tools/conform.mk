# SPDX-License-Identifier: Apache-2.0
# plugin-conform: the conformance program for backend plugins, installed with the header. It has libc's allocator, not
# jemalloc, so that it can make allocations fail.
bin_PROGRAMS += plugin-conform
plugin_conform_SOURCES = tools/conform.c tools/conform.h tools/conform_peer.c tools/conform_models.c tools/conform_ops.c \
	tools/conform_alloc.c tools/conform_alloc.h tools/conform_l0.c tools/conform_l1.c tools/conform_l2.c \
	tools/conform_l3.c tools/conform_l4.c tools/conform_l5.c tools/conform_l6.c \
	tests/unit/tnp_make.c tests/unit/tnp_make.h
SCD_PAGES += man/plugin-conform.1
EXTRA_DIST += man/plugin-conform.1.scd
plugin_conform_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
plugin_conform_LDADD = libbase.la libmem_libc.la $(JANSSON_LIBS) -lm

if PLUGIN_REF
TESTS += tests/conform/ref
if PLUGIN_CPU
TESTS += tests/conform/cpu
endif
if PLUGIN_NULL
if PLUGIN_FAULT
TESTS += tests/conform/fault
endif
endif
endif
EXTRA_DIST += docs/plugin-abi.md tests/conform/ref tests/conform/cpu tests/conform/fault tests/conform/example examples/plugin/Makefile \
	examples/plugin/acme.c examples/plugin/acme.map examples/plugin/acme.plugin

# What a vendor builds against: header, pkg-config file, plugin-conform.
pkgconfig_DATA += tenon-plugin.pc
if PLUGIN_REF
if !SANITIZER
TESTS += tests/conform/example
endif
endif
