# SPDX-License-Identifier: Apache-2.0
# Kernels of processors that the machine is not: AVX-512 VNNI and AVX-VNNI on emulated intrinsics,
# 64-bit ARM under qemu. The scripts build what they test with rules of their own (another compiler, other flags); they say
# SKIP where tools are missing.
dist_check_SCRIPTS += tests/emulated/test_x86 tests/emulated/test_arm
TESTS += tests/emulated/test_x86 tests/emulated/test_arm
EXTRA_DIST += tests/emulated/README.md tests/emulated/x86.make tests/emulated/immintrin.h \
	tests/emulated/arm.make tests/emulated/shim/cmocka.h tests/emulated/test_plugin.c

clean-local:
	rm -rf tests/emulated/x86 tests/emulated/arm
