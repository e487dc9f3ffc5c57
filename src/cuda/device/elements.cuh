// The operand types of the multiply instructions.
#pragma once

#include <cstdint>

namespace octalane::cuda {

/// Operand types: the type of accumulators, the columns of K that 32 bytes of an operand hold, and whether the
/// assembler of sm_90 makes mma.sync of other instructions.
template <class SumType, int Columns, bool Emulated>
struct Element {
  using Sum = SumType;
  static constexpr int kColumns = Columns;
  static constexpr bool kEmulated = Emulated;
};
struct S8 : Element<int, 32, false> {};
struct E4m3 : Element<float, 32, true> {};
struct Bf16 : Element<float, 16, false> {};
struct F16 : Element<float, 16, false> {};

/// Tells the compiler that `value` changes here: nothing that reads it moves across.
__device__ __forceinline__ void pin(int& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void pin(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void pin(float& value) { asm volatile("" : "+f"(value)::"memory"); }
__device__ __forceinline__ void pin(const uint8_t*& value) { asm volatile("" : "+l"(value)::"memory"); }
template <class Value, int Count>
__device__ __forceinline__ void pin_all(Value (&values)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) pin(values[i]);
}

}  // namespace octalane::cuda
