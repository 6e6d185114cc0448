# SPDX-License-Identifier: Apache-2.0
# The cpu plugin and the reference plugin for 64-bit ARM, and tests of theirs. Run by test_arm, in a folder of the build
# tree that looks like one itself (plugins/NAME/.libs/NAME.so); SRC is the top of the sources, CROSS the compiler.
CFLAGS = -std=c11 -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
	-fno-strict-aliasing -ffp-contract=off -O2 -fPIC -fvisibility=hidden -MMD -MP -D_GNU_SOURCE -DLINEAR_QUICK -I$(SRC)/tests/emulated/shim -I$(SRC)/include -I$(SRC)
X86 = $(wildcard $(SRC)/plugins/cpu/*avx*.c $(SRC)/plugins/cpu/*vnni*.c)
DOTPROD = $(patsubst $(SRC)/%.c,%.o,$(wildcard $(SRC)/plugins/cpu/linear_neon*.c))
object = $(patsubst $(SRC)/%.c,%.o,$(1))
CPU = $(call object,$(filter-out $(X86),$(wildcard $(SRC)/plugins/cpu/*.c)))
REF = $(call object,$(wildcard $(SRC)/plugins/ref/*.c))
DRIVE = tests/unit/tnp_drive.o tests/unit/tnp_make.o base/mem_libc.o
TESTS = test_kernels test_linear test_plugin
PLUGINS = plugins/cpu/.libs/cpu.so plugins/ref/.libs/ref.so

all: $(PLUGINS) $(TESTS)
plugins/cpu/.libs/cpu.so: $(CPU)
plugins/ref/.libs/ref.so: $(REF)
$(PLUGINS):
	@mkdir -p $(@D)
	$(CROSS) -shared -Wl,-z,defs -Wl,--version-script=$(SRC)/plugins/tnp.map -o $@ $^ -lm -lpthread
test_linear: tests/unit/test_linear.o $(filter plugins/cpu/linear% plugins/cpu/dequant%,$(CPU))
test_kernels: tests/unit/test_kernels.o $(addprefix plugins/cpu/,elem.o attn.o elem_neon.o attn_neon.o)
test_plugin: tests/emulated/test_plugin.o $(DRIVE)
$(TESTS):
	$(CROSS) -o $@ $^ -lm -ldl
$(DOTPROD): CFLAGS += -march=armv8.2-a+dotprod
vpath %.c $(SRC)
%.o: %.c
	@mkdir -p $(@D)
	$(CROSS) $(CFLAGS) -c -o $@ $<
# A header that is gone from the tree: what named it is built anew.
%.h: ;
-include $(wildcard base/*.d plugins/*/*.d tests/*/*.d)
