#include "kernels/avx2/probe_vectors.h"
#include "kernels/avxvnni/kernels.h"

namespace octalane::avxvnni {
namespace {

/// Unsigned weights times signed activations.
struct Dot : avx2::ByteOperands {
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  }
};

constexpr int kVectors = 2;  // the sixteen rows of a tile
using Registers = RegisterLoop<Dot, 12>;
using Loaded = LoadedLoop<Dot, 6, kVectors>;
template <int DrainColumns>
using Drained = DrainLoop<Dot, avx2::Drain, kS8Tokens, kVectors, 4096, DrainColumns>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<Registers>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::registers),
    probe_row<Loaded>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::loaded),
    probe_row<Drained<32>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_32),
    probe_row<Drained<256>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_256),
    probe_row<Drained<4096>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_row),
};

}  // namespace octalane::avxvnni
