# SPDX-License-Identifier: Apache-2.0
# Matrix kernels of AVX-512 VNNI and AVX-VNNI built on emulated intrinsics (immintrin.h here), with the tests of
# matrix products. Run by test_x86, in a folder of the build tree; SRC is the top of the sources.
CFLAGS = -std=c11 -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
	-Wno-psabi -fno-strict-aliasing -ffp-contract=off -O1 -MMD -mavx2 -mfma -mf16c \
	-D_GNU_SOURCE -DLINEAR_EMULATED -DLINEAR_QUICK -I$(SRC)/include -I$(SRC)
CPU = $(SRC)/plugins/cpu
EMULATED = $(wildcard $(CPU)/linear_vnni*.c) $(CPU)/linear_avxvnni.c
PLAIN = $(wildcard $(CPU)/linear_avx2*.c) $(CPU)/dequant.c $(SRC)/tests/unit/test_linear.c
OBJECTS = $(patsubst %.c,%.o,$(notdir $(EMULATED) $(PLAIN)))
vpath %.c $(CPU) $(SRC)/tests/unit

test_linear: $(OBJECTS)
	$(CC) -o $@ $(OBJECTS) -lcmocka -lm
# Loops that gcc does not unroll compile in a fifth of the time.
ROLLED = -fdisable-tree-cunroll -fdisable-tree-cunrolli
$(patsubst %.c,%.o,$(notdir $(EMULATED))): CFLAGS += -isystem $(SRC)/tests/emulated \
	$(shell echo | $(CC) $(ROLLED) -E - >/dev/null 2>&1 && echo $(ROLLED))
%.o: %.c
	$(CC) $(CFLAGS) -c -o $@ $<
-include $(wildcard *.d)
