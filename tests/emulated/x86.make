# SPDX-License-Identifier: Apache-2.0
# Matrix kernels of AVX-512 VNNI and AVX-VNNI and attention of AVX-512 built on emulated intrinsics (immintrin.h here),
# with their tests. Run by test_x86, in a folder of the build tree; SRC is the top of the sources.
CFLAGS = -std=c11 -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
	-Wno-psabi -fno-strict-aliasing -ffp-contract=off -O1 -MMD -MP -mavx2 -mfma -mf16c \
	-D_GNU_SOURCE -DLINEAR_EMULATED -DLINEAR_QUICK -DATTN_EMULATED -I$(SRC)/include -I$(SRC)
CPU = $(SRC)/plugins/cpu
EMULATED = $(wildcard $(CPU)/linear_vnni*.c) $(CPU)/linear_avxvnni.c
PLAIN = $(wildcard $(CPU)/linear_avx2*.c) $(CPU)/dequant.c $(SRC)/tests/unit/test_linear.c
OBJECTS = $(patsubst %.c,%.o,$(notdir $(EMULATED) $(PLAIN)))
ATTN = attn_avx512.o attn_avx2.o attn.o test_attn.o
vpath %.c $(CPU) $(SRC)/tests/unit

all: test_linear test_attn
test_linear: $(OBJECTS)
test_attn: $(ATTN)
test_linear test_attn:
	$(CC) -o $@ $^ -lcmocka -lm
# Loops that gcc does not unroll compile in a fifth of the time.
ROLLED = -fdisable-tree-cunroll -fdisable-tree-cunrolli
$(patsubst %.c,%.o,$(notdir $(EMULATED))) attn_avx512.o: CFLAGS += -isystem $(SRC)/tests/emulated \
	$(shell echo | $(CC) $(ROLLED) -E - >/dev/null 2>&1 && echo $(ROLLED))
# Emulated vectors are no operands of assembly.
attn_avx512.o: CFLAGS += -DCPU_SANITIZED
%.o: %.c
	$(CC) $(CFLAGS) -c -o $@ $<
# A header that is gone from the tree: what named it is built anew.
%.h: ;
-include $(wildcard *.d)
