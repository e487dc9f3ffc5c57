// The probe loops that vector instructions share. Included by the flagged sources of instruction sets, so everything is
// inline or local to them.
//
// An Op is one multiply-add instruction:
//   Vector, Accumulator   register types; an Accumulator is as wide as a Vector
//   kElement, kOps        operand type; operations of one instruction, a multiply and an add being two
//   kUnit                 bytes of the operand that one lane takes from an activation row
//   zero(), load(bytes), broadcast(bytes), multiply_add(accumulator, weights, activations), store(bytes, accumulator)
// and for Ops with integer accumulators a Drain:
//   Sum                   the fp32 sums of one accumulator
//   zero_sum(), store_sum(bytes, sum)
//   add(accumulator, args, vector, token, sum)   what ProbeKind::drain_32 says
#pragma once

#include "core/inline.h"
#include "kernels/kernel.h"

#define OCTALANE_PROBE_LAMBDA __attribute__((always_inline))

namespace octalane {
namespace {

template <int I>
struct ProbeIndex {
  static constexpr int value = I;
};

/// body(ProbeIndex<0>), ... body(ProbeIndex<N - 1>).
template <int N, class Body>
OCTALANE_INLINE void probe_unroll(const Body& body) {
  if constexpr (N > 0) {
    probe_unroll<N - 1>(body);
    body(ProbeIndex<N - 1>{});
  }
}

/// Everything in memory may have changed: loads stay in their loop.
OCTALANE_INLINE void forget_memory() { asm volatile("" : : : "memory"); }

/// Chains accumulators, independent of each other and enough to cover the latency of the instruction.
template <class Op, int Chains>
struct RegisterLoop {
  static constexpr int kRounds = 4;
  static constexpr double kOps = double{kRounds} * Chains * Op::kOps;

  static void run(const ProbeArgs& args) {
    const auto w = Op::load(args.operands), x = Op::load(args.operands + sizeof(w));
    typename Op::Accumulator sums[Chains];
    probe_unroll<Chains>([&](auto i) OCTALANE_PROBE_LAMBDA { sums[i.value] = Op::zero(); });
    for (int64_t n = 0; n < args.iterations; ++n) {
      probe_unroll<kRounds>([&](auto) OCTALANE_PROBE_LAMBDA {
        probe_unroll<Chains>([&](auto i) OCTALANE_PROBE_LAMBDA { Op::multiply_add(sums[i.value], w, x); });
      });
    }
    probe_unroll<Chains>([&](auto i)
                             OCTALANE_PROBE_LAMBDA { Op::store(args.out + i.value * sizeof(sums[0]), sums[i.value]); });
  }
};

/// Tokens x Vectors accumulators. A step loads Vectors vectors of weights and broadcasts one unit of each token; kSteps
/// steps make a block, which lies in L1: [step][Vectors] vectors, then [token][kSteps] units.
template <class Op, int Tokens, int Vectors>
struct Block {
  static constexpr int kSteps = 64;
  static constexpr double kOps = double{kSteps} * Tokens * Vectors * Op::kOps;
  static constexpr int kWidth = sizeof(typename Op::Vector);
  static constexpr int kActivations = kSteps * Vectors * kWidth;  ///< where they begin
  static_assert(kActivations + Tokens * kSteps * Op::kUnit <= kProbeOperandBytes);
  static_assert(Tokens * Vectors * kWidth <= kProbeOutBytes);

  using Sums = typename Op::Accumulator[Tokens][Vectors];

  template <class Body>
  OCTALANE_INLINE static void for_each(const Body& body) {
    probe_unroll<Tokens>([&](auto t) OCTALANE_PROBE_LAMBDA {
      probe_unroll<Vectors>([&](auto v) OCTALANE_PROBE_LAMBDA { body(t, v); });
    });
  }
  OCTALANE_INLINE static void clear(Sums& sums) {
    for_each([&](auto t, auto v) OCTALANE_PROBE_LAMBDA { sums[t.value][v.value] = Op::zero(); });
  }
  OCTALANE_INLINE static void steps(const std::byte* operands, int begin, int end, Sums& sums) {
    for (int step = begin; step < end; ++step) {
      typename Op::Vector w[Vectors];
      probe_unroll<Vectors>(
          [&](auto v) OCTALANE_PROBE_LAMBDA { w[v.value] = Op::load(operands + (step * Vectors + v.value) * kWidth); });
      probe_unroll<Tokens>([&](auto t) OCTALANE_PROBE_LAMBDA {
        const auto x = Op::broadcast(operands + kActivations + (t.value * kSteps + step) * Op::kUnit);
        probe_unroll<Vectors>([&](auto v)
                                  OCTALANE_PROBE_LAMBDA { Op::multiply_add(sums[t.value][v.value], w[v.value], x); });
      });
    }
  }
};

template <class Op, int Tokens, int Vectors>
struct LoadedLoop {
  using B = Block<Op, Tokens, Vectors>;
  static constexpr double kOps = B::kOps;

  static void run(const ProbeArgs& args) {
    typename B::Sums sums;
    B::clear(sums);
    for (int64_t n = 0; n < args.iterations; ++n) {
      forget_memory();
      B::steps(args.operands, 0, B::kSteps, sums);
    }
    B::for_each([&](auto t, auto v) OCTALANE_PROBE_LAMBDA {
      Op::store(args.out + (t.value * Vectors + v.value) * B::kWidth, sums[t.value][v.value]);
    });
  }
};

/// As LoadedLoop over rows of Columns columns (the block of 256 columns is used again for longer ones), with a drain
/// every DrainColumns. An iteration is a row.
template <class Op, class Drain, int Tokens, int Vectors, int Columns, int DrainColumns>
struct DrainLoop {
  using B = Block<Op, Tokens, Vectors>;
  static constexpr int kColumnsPerStep = Op::kUnit;  // int8: a byte a column
  static constexpr int kBlockColumns = B::kSteps * kColumnsPerStep;
  static constexpr double kOps = B::kOps * Columns / kBlockColumns;
  static_assert(Columns % kBlockColumns == 0 && Columns % DrainColumns == 0);

  static void run(const ProbeArgs& args) {
    typename Drain::Sum totals[Tokens][Vectors];
    typename B::Sums sums;
    B::for_each([&](auto t, auto v) OCTALANE_PROBE_LAMBDA { totals[t.value][v.value] = Drain::zero_sum(); });
    for (int64_t n = 0; n < args.iterations; ++n) {
      for (int column = 0; column < Columns; column += DrainColumns) {
        B::clear(sums);
        for (int done = 0; done < DrainColumns; done += kBlockColumns) {
          constexpr int kSteps = (DrainColumns < kBlockColumns ? DrainColumns : kBlockColumns) / kColumnsPerStep;
          const int first = column % kBlockColumns / kColumnsPerStep;
          forget_memory();
          B::steps(args.operands, first, first + kSteps, sums);
        }
        B::for_each([&](auto t, auto v) OCTALANE_PROBE_LAMBDA {
          Drain::add(sums[t.value][v.value], args, v.value, t.value, totals[t.value][v.value]);
        });
      }
    }
    B::for_each([&](auto t, auto v) OCTALANE_PROBE_LAMBDA {
      Drain::store_sum(args.out + (t.value * Vectors + v.value) * B::kWidth, totals[t.value][v.value]);
    });
  }
};

/// A row of the probe table.
template <class Loop>
constexpr ProbeLoop probe_row(const char* instruction, Lane lane, ProbeElement element, ProbeKind kind) {
  return {
      .instruction = instruction, .lane = lane, .element = element, .kind = kind, .ops = Loop::kOps, .run = Loop::run};
}

}  // namespace
}  // namespace octalane
