# SPDX-License-Identifier: Apache-2.0
# The plugin that computes nothing.
if PLUGIN_NULL
plugin_LTLIBRARIES += plugins/null/null.la
plugin_DATA += plugins/null/null.plugin
plugins_null_null_la_SOURCES = plugins/null/null.c plugins/null/null_ops.c
plugins_null_null_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-Wl,--version-script=$(srcdir)/plugins/tnp.map
plugins_null_null_la_DEPENDENCIES = plugins/tnp.map
endif
EXTRA_DIST += plugins/null/null.plugin
