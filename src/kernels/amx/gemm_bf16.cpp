#include "kernels/amx/decode_bf16.h"
#include "kernels/amx/gemm.h"

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

template <class Decoder>
void run(const MatmulArgs& args) {
  const Decoder decoder(args.w);
  const Decode decode{&decoder, [](const void* self, int64_t tile, int64_t step, int64_t steps, std::byte* out) {
                        // A step is a block of 32 columns.
                        (*static_cast<const Decoder*>(self))(tile, step, step + steps, out, kStepPair);
                      }};
  multiply(args, decode);
}

}  // namespace

void bf16_gemm(const MatmulArgs& args) {
  const CodeSpec& code = args.w.spec.code;
  switch (code.map) {
    case CodeMap::f16: return run<FloatDecoderBf16<CodeMap::f16>>(args);
    case CodeMap::bf16: return run<FloatDecoderBf16<CodeMap::bf16>>(args);
    case CodeMap::f32: return run<FloatDecoderBf16<CodeMap::f32>>(args);
    case CodeMap::table: return run<CodeDecoderBf16<4>>(args);
    case CodeMap::offset: break;
  }
  switch (code.bits) {
    case 2: return run<CodeDecoderBf16<2>>(args);
    case 3: return run<CodeDecoderBf16<3>>(args);
    case 4: return run<CodeDecoderBf16<4>>(args);
    case 5: return run<CodeDecoderBf16<5>>(args);
    case 6: return run<CodeDecoderBf16<6>>(args);
    default: return run<CodeDecoderBf16<8>>(args);
  }
}

}  // namespace octalane::amx
