# SPDX-License-Identifier: Apache-2.0
# man pages from scdoc sources, shell completion
SCD_PAGES = man/tenon.1
EXTRA_DIST += man/tenon.1.scd completion/tenon.bash
SUFFIXES = .scd
.scd:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(SCDOC) < $< > $@
if HAVE_SCDOC
man_MANS += $(SCD_PAGES)
CLEANFILES += $(SCD_PAGES)
endif
completiondir = $(datadir)/bash-completion/completions
completion_DATA = completion/tenon.bash
install-data-hook:
	cd $(DESTDIR)$(completiondir) && mv tenon.bash tenon && $(LN_S) -f tenon tenonctl
uninstall-hook:
	rm -f $(DESTDIR)$(completiondir)/tenon $(DESTDIR)$(completiondir)/tenonctl
