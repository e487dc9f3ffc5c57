// AMX by software, for tests on processors without it: each tile instruction faults, and the handler of that fault does
// what the instruction would have done. Slow, and no word on speed; but the kernel's own code runs, instruction by
// instruction, against the same claims as anywhere else.
#pragma once

namespace octalane::test {

/// Takes over SIGILL, once. False where the rest of the AMX kernels (AVX-512 with BF16) cannot run, or on systems other
/// than Linux on x86-64.
bool emulate_amx();

}  // namespace octalane::test
