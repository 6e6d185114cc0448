# SPDX-License-Identifier: Apache-2.0
# tools: tenon (user), tenonctl (admin). Each command is tools/cmd_NAME.c; add it to tenon_SOURCES and commands.def.
bin_PROGRAMS += tenon
tenon_SOURCES = tools/tenon.c tools/commands.h tools/commands.def tools/cli.c tools/cli_jsonl.c tools/cli.h
tenon_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) -DPACKAGE_VERSION='"$(PACKAGE_VERSION)"'
# Libraries of the folders that the commands need, dependents first.
TENON_LIBS =
tenon_LDADD = $(TENON_LIBS) $(BASE_LIBS) $(JANSSON_LIBS)
