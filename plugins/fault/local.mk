# SPDX-License-Identifier: Apache-2.0
# The plugin that fails on request, in front of another or of what plugin `null` answers.
if PLUGIN_FAULT
plugin_LTLIBRARIES += plugins/fault/fault.la
plugin_DATA += plugins/fault/fault.plugin
plugins_fault_fault_la_SOURCES = plugins/fault/fault.c plugins/null/null_ops.c
plugins_fault_fault_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-Wl,--version-script=$(srcdir)/plugins/tnp.map
plugins_fault_fault_la_DEPENDENCIES = plugins/tnp.map
endif
EXTRA_DIST += plugins/fault/fault.plugin
