#include "kernels/amx/gemm.h"
#include "kernels/avx512bf16/decode.h"

namespace octalane::amx {
namespace {

struct Bf16 {
  static constexpr int kStepCols = 32;
  OCTALANE_INLINE static const std::byte* tokens(const ActivationsView& x) {
    return reinterpret_cast<const std::byte*>(x.bf16);
  }
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    product_bf16<C, A, B>();
  }
};

/// The sums are the outputs.
struct Sums {
  OCTALANE_INLINE __m512 operator()(__m512i sums, int, int) const { return _mm512_castsi512_ps(sums); }
};

[[gnu::noinline]] void multiply(const MatmulArgs& args, const Decode& decode) {
  const auto convert_for = [](int64_t, int64_t) OCTALANE_INLINE_LAMBDA { return Sums{}; };
  gemm<Bf16>(args, bf16_panels(args.x.rows, args.w.padded_cols()), decode, convert_for);
}

}  // namespace

void bf16_gemm(const MatmulArgs& args) {
  with_any_decoder(args.w, [&](const Decoder& decoder) {
    multiply(args, {&decoder, [](const void* self, int64_t tile, int64_t step, int64_t steps, std::byte* out) {
                      const auto& d = *static_cast<const Decoder*>(self);
                      d.fill(d.self, tile, step, step + steps, out, kStepPair);  // a step is a block of 32 columns
                    }});
  });
}

}  // namespace octalane::amx
