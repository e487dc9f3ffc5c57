// Staging kernels on a device give what the scalar quantizers give, to the bit. On a made-up driver: what is launched,
// and what is refused.
#include "cuda/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "cuda/activation_args.h"
#include "cuda/code.h"
#include "cuda/fake_driver.h"
#include "cuda/host_tokens.h"
#include "cuda/on_device.h"

namespace octalane::test {
namespace {

using cuda::StagedElement;
using cuda::StagingForm;
using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

const StagingForm kForms[] = {
    {},
    {.element = StagedElement::s8},
    {.element = StagedElement::s8, .group = 256},
    {.element = StagedElement::s8, .group = 256, .minima = true},
    {.element = StagedElement::s8, .group = 32, .sums = true},
    {.element = StagedElement::s8, .group = 64, .sums = true},
    {.element = StagedElement::s8, .group = 128, .sums = true},
    {.element = StagedElement::e4m3},
};

/// Ordinary rows, and rows of everything that is not.
Activations awkward(int64_t tokens, int64_t cols) {
  Activations x = Activations::random(tokens, cols, static_cast<uint32_t>(cols));
  const auto each = [&](int64_t m, auto change) {
    for (int64_t k = 0; k < cols && m < tokens; ++k) x.at(m, k) = change(x.at(m, k), k);
  };
  each(1, [](float, int64_t) { return 0.0f; });
  each(2, [](float, int64_t) { return -0.0f; });
  each(3, [](float v, int64_t) { return v * 1e-30f; });
  each(4, [](float v, int64_t) { return v * 1e-39f; });
  each(5, [](float, int64_t) { return 3.0e-39f; });
  each(6, [](float v, int64_t) { return v * 1e38f; });
  each(7, [&](float v, int64_t k) { return k == cols / 2 ? kNaN : v; });
  each(8, [&](float v, int64_t k) { return k == cols - 1 ? -kInf : v; });
  each(9, [](float v, int64_t k) { return k == 0 ? std::bit_cast<float>(0xFFFFFFFFu) : v; });
  each(10, [](float, int64_t k) {  // ties of bfloat16
    return std::bit_cast<float>(0x3F808000u + static_cast<uint32_t>(k % 256 << 16));
  });
  each(11, [](float, int64_t) { return 1e-36f; });
  each(12, [](float v, int64_t k) { return k % 300 < 256 ? v : v * 1000; });  // groups unlike each other
  return x;
}

/// Where rows begin: every one at a multiple of 16 bytes, or hardly any.
struct Placement {
  int64_t first, gap_to;  ///< elements; a stride is rounded up to a multiple of gap_to and made odd for 1
};

class Staged {
 public:
  Staged(const StagingForm& form, Activations x, bool f32, const Placement& place) : form_(form), x_(std::move(x)) {
    const int64_t tokens = x_.rows(), cols = x_.cols();
    const int64_t stride =
        place.gap_to == 1 ? cols + 3 - cols % 2 : (cols + place.gap_to) / place.gap_to * place.gap_to;
    std::vector<float> wide(static_cast<size_t>(place.first + tokens * stride), kNaN);
    std::vector<uint16_t> half(wide.size(), 0x7FFF);
    for (int64_t m = 0; m < tokens; ++m) {
      for (int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<size_t>(place.first + m * stride + k);
        half[at] = f32_to_bf16(x_.at(m, k));
        if (!f32) x_.at(m, k) = bf16_to_f32(half[at]);
        wide[at] = x_.at(m, k);
      }
    }
    OnDevice& on = OnDevice::get();
    const cuda::Buffer from = f32 ? on.upload(wide) : on.upload(half);
    bytes_ = cuda::staging_bytes(form, tokens, cols);
    out_.assign(static_cast<size_t>(bytes_ + kGuard), std::byte{0xFF});
    const cuda::Buffer workspace = on.upload(out_);
    const auto first = static_cast<cuda::Address>(place.first * (f32 ? 4 : 2));
    const auto staged = on.kernels->staging.stage(form, {from.address() + first, f32, tokens, cols, stride},
                                                  {workspace.address(), bytes_}, *on.stream);
    EXPECT_TRUE(staged) << staged.error().message;
    const Status done = on.stream->synchronize();
    EXPECT_TRUE(done) << done.error().message;
    if (!staged || !done) return;
    on.download(out_, workspace);
    scales_ = static_cast<size_t>(staged->scales == 0 ? 0 : staged->scales - workspace.address());
    minima_ = static_cast<size_t>(staged->minima == 0 ? 0 : staged->minima - workspace.address());
    sums_ = static_cast<size_t>(staged->sums == 0 ? 0 : staged->sums - workspace.address());
  }

  void expect_as_scalar() const {
    const int64_t tokens = x_.rows(), cols = x_.cols(), padded = cuda::staged_columns({}, cols);
    const ActivationForm form = form_.element == StagedElement::bf16   ? ActivationForm::bf16_as_f32
                                : form_.element == StagedElement::e4m3 ? ActivationForm::e4m3
                                                                       : ActivationForm::s8;
    const ActivationGroups groups{form == ActivationForm::bf16_as_f32 ? 0
                                  : form_.group == 0                  ? kWholeRow
                                                                      : form_.group,
                                  form_.minima ? 32
                                  : form_.sums ? form_.group
                                               : 0};
    const Formed formed(quantizer(*find_isa("scalar"), form), groups, x_.view(), padded);
    const HostTokens wanted = host_tokens(formed.view(), padded);
    for (size_t i = 0; i < wanted.x.size(); ++i) {
      ASSERT_EQ(out_[i], wanted.x[i]) << "byte " << i % (wanted.x.size() / static_cast<size_t>(tokens)) << " of token "
                                      << i / (wanted.x.size() / static_cast<size_t>(tokens));
    }
    expect_parts("scale", scales_, wanted.scales, groups.scales(padded), tokens);
    expect_parts("sum", sums_, wanted.sums, form_.sums ? groups.sums(padded) : 0, tokens);
    ASSERT_EQ(minima_ != 0, form_.minima);
    for (size_t i = 0; form_.minima && i < wanted.minima.size(); ++i) {
      uint16_t got = 0;
      std::memcpy(&got, &out_[minima_ + 2 * i], 2);
      ASSERT_EQ(got, wanted.minima[i]) << "element " << i << " of the minima";
    }
    for (size_t i = static_cast<size_t>(bytes_); i < out_.size(); ++i) ASSERT_EQ(out_[i], std::byte{0xFF});
  }

 private:
  static constexpr int64_t kGuard = 256;

  void expect_parts(const char* what, size_t at, const std::vector<float>& wanted, int64_t groups,
                    int64_t tokens) const {
    ASSERT_EQ(at != 0, groups != 0) << what;
    const int64_t padded = cuda::padded_tokens(tokens);
    for (int64_t i = 0; i < groups * padded; ++i) {
      float got = 0;
      std::memcpy(&got, &out_[at + static_cast<size_t>(i) * 4], 4);
      const int64_t token = i % padded;  // the scalar form has NaN past the last
      const float want = token < tokens ? wanted[static_cast<size_t>(i)] : 0.0f;
      ASSERT_TRUE(same_bits(got, want)) << what << " of group " << i / padded << ", token " << token << ": wanted "
                                        << want << ", got " << got;
    }
  }

  StagingForm form_;
  Activations x_;
  int64_t bytes_ = 0;
  size_t scales_ = 0, sums_ = 0, minima_ = 0;
  std::vector<std::byte> out_;
};

TEST(CudaStaging, gives_the_bits_of_the_scalar_quantizers) {
  if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  for (const StagingForm& form : kForms) {
    for (const bool f32 : {true, false}) {
      for (const Placement place : {Placement{0, 8}, Placement{1, 1}, Placement{4, 4}}) {
        for (const int64_t cols : {1, 31, 100, 128, 257, 1040, 4096, 33000}) {
          SCOPED_TRACE(testing::Message() << cuda::name(form) << (f32 ? ", fp32, " : ", bfloat16, ") << cols
                                          << " columns from " << place.first << ", " << place.gap_to);
          Staged(form, awkward(cols > 5000 ? 13 : 70, cols), f32, place).expect_as_scalar();
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(CudaStaging, serves_every_number_of_tokens) {
  if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  for (const StagingForm& form : kForms) {
    for (const int64_t tokens : {1, 2, 63, 64, 65, 300}) {
      SCOPED_TRACE(testing::Message() << cuda::name(form) << ", " << tokens << " tokens");
      Staged(form, awkward(tokens, 384), true, {0, 8}).expect_as_scalar();
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// f16 on the device: every value within half of binary16's smallest step of the bfloat16 times the token's power of
/// two, which is exact for all but values far below the largest.
void expect_f16(const StagingForm& form, const Activations& x) {
  OnDevice& on = OnDevice::get();
  const int64_t tokens = x.rows(), cols = x.cols(), padded = cuda::staged_columns(form, cols);
  const int64_t groups = padded / form.group, bytes = cuda::staging_bytes(form, tokens, cols);
  const int64_t stride = x.view().row_stride;
  const cuda::Buffer from = on.upload(std::vector<float>(x.view().data, x.view().data + (tokens - 1) * stride + cols));
  std::vector<std::byte> out(static_cast<size_t>(bytes + 256), std::byte{0xFF});
  const cuda::Buffer workspace = on.upload(out);
  const auto staged = on.kernels->staging.stage(form, {from.address(), true, tokens, cols, stride},
                                                {workspace.address(), bytes}, *on.stream);
  ASSERT_TRUE(staged) << staged.error().message;
  ASSERT_TRUE(on.stream->synchronize());
  on.download(out, workspace);
  for (auto i = static_cast<size_t>(bytes); i < out.size(); ++i) ASSERT_EQ(out[i], std::byte{0xFF});
  const auto read = [&]<class T>(cuda::Address at, int64_t i, T value) {
    std::memcpy(&value, &out[static_cast<size_t>(at - workspace.address()) + static_cast<size_t>(i) * sizeof(T)],
                sizeof(T));
    return value;
  };
  for (int64_t m = 0; m < tokens; ++m) {
    const float scale = read(staged->scales, m, 0.0f);
    bool finite = true;
    float most = 0;
    for (int64_t k = 0; k < cols; ++k)
      finite &= std::isfinite(x.at(m, k)), most = std::max(most, std::fabs(x.at(m, k)));
    const int exponent = !finite ? 127 : most == 0 ? -112 : std::max(std::ilogb(most), -112);
    ASSERT_EQ(scale, std::ldexp(1.0f, exponent)) << "token " << m;
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0, sizes = 0;
      for (int64_t k = g * form.group; k < (g + 1) * form.group; ++k) {
        const bool second = k / 16 % 2 == 1;
        const int64_t at = k / 32 * 32 + cuda::f16_position(static_cast<int>(k % 32), form.code);
        const double got = std::ldexp(double{f16_to_f32(read(staged->x, m * padded + at, uint16_t{}))},
                                      exponent - cuda::kF16Exponent) /
                           (second ? cuda::f16_second_scale(form.code) : 1.0f);
        const float wanted = k < cols ? round_to_bf16(x.at(m, k)) : 0.0f;
        if (!std::isfinite(wanted)) {
          ASSERT_FALSE(std::isfinite(got)) << m << ", " << k;
        } else {
          const double most_off =
              std::ldexp(second ? 1 / cuda::f16_second_scale(form.code) : 1.0, exponent - cuda::kF16Exponent - 25);
          ASSERT_LE(std::fabs(got - wanted), most_off) << m << ", " << k << ": wanted " << wanted << ", got " << got;
        }
        sum += wanted, sizes += std::fabs(wanted);
      }
      const double got = std::ldexp(double{read(staged->sums, m * groups + g, 0.0f)}, exponent - cuda::kF16Exponent) /
                         cuda::f16_code_scale(form.code);
      if (!finite && std::isfinite(sum)) continue;  // a scale for what is not finite leaves others few bits
      if (std::isfinite(sum))
        ASSERT_LE(std::fabs(got - sum), sizes * 0x1p-19) << "sum " << g << " of token " << m;
      else
        ASSERT_FALSE(std::isfinite(got)) << "sum " << g << " of token " << m;
    }
  }
}

TEST(CudaStaging, makes_f16_of_bfloat16_by_a_power_of_two_a_token) {
  if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  for (const cuda::Code code : {cuda::Code::nibble, cuda::Code::table, cuda::Code::byte}) {
    for (const int group : {16, 32, 64}) {
      const StagingForm form{.element = StagedElement::f16, .group = group, .code = code};
      for (const int64_t cols : {1, 31, 257, 1040, 33000}) {
        SCOPED_TRACE(testing::Message() << cuda::name(form) << ", " << cols << " columns");
        expect_f16(form, awkward(13, cols));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaStagingForm, is_what_the_lane_multiplies_and_equal_where_inputs_may_be_shared) {
  EXPECT_EQ(cuda::staging_form(StagedType::bf16, 32), cuda::staging_form(StagedType::bf16, 64));
  EXPECT_EQ(cuda::staging_form(StagedType::s8_row, 32), (StagingForm{.element = StagedElement::s8}));
  EXPECT_EQ(cuda::staging_form(StagedType::s8_row, 32), cuda::staging_form(StagedType::s8_row, 64));
  EXPECT_EQ(cuda::staging_form(StagedType::s8_xblock, 32), cuda::staging_form(StagedType::s8_block, 64));
  EXPECT_EQ(cuda::staging_form(StagedType::f8_row, 32), (StagingForm{.element = StagedElement::e4m3}));
  EXPECT_FALSE(cuda::staging_form(StagedType::s8_group, 32) == cuda::staging_form(StagedType::s8_group, 64));
  EXPECT_EQ(cuda::name(cuda::staging_form(StagedType::s8_group, 16)), "s8 by 32 with sums");
  EXPECT_EQ(cuda::name(cuda::staging_form(StagedType::s8_block, 128)), "s8 by 256");
  EXPECT_EQ(cuda::name(cuda::staging_form(StagedType::s8_nested, 32)), "s8 by 256 with minima");
  EXPECT_EQ(cuda::name(cuda::staging_form(StagedType::f8_row, 32)), "e4m3 by row");
  EXPECT_EQ(cuda::name({.element = StagedElement::f16, .group = 32}), "f16 for nibbles by 32");
}

TEST(CudaStagingForm, needs_room_for_codes_scales_and_sums_each_from_a_multiple_of_256_bytes) {
  EXPECT_EQ(cuda::staging_bytes({}, 3, 100), 3 * 128 * 2);
  EXPECT_EQ(cuda::staging_bytes({.element = StagedElement::s8}, 3, 100), 512 + 320 * 4);
  EXPECT_EQ(cuda::staging_bytes({.element = StagedElement::s8, .group = 256}, 64, 300), 64 * 384 + 2 * 320 * 4);
  EXPECT_EQ(cuda::staging_bytes({.element = StagedElement::s8, .group = 64, .sums = true}, 64, 128),
            64 * 128 + 2 * 2 * 320 * 4);
  EXPECT_EQ(cuda::staging_bytes({.element = StagedElement::s8, .group = 256, .minima = true}, 64, 384),
            64 * 384 + 2 * 320 * 4 + 2 * 320 * 32);
  EXPECT_EQ(cuda::staging_bytes({.element = StagedElement::f16, .group = 32}, 3, 300), 3 * 512 * 2 + 256 + 256);
}

class FakeStaging : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::activation_code().empty()) GTEST_SKIP() << "built without nvcc";
  }
  cuda::DriverApi api_ = fake_driver();
};

TEST_F(FakeStaging, launches_a_block_for_every_token_that_has_scales) {
  const auto session = cuda::Session::open(api_, {.name = "Fake H200", .capability = 90});
  const auto staging = cuda::Staging::load(*session);
  ASSERT_TRUE(staging) << staging.error().message;
  const auto stream = session->stream();
  cuda::ActivationArgs args{};
  fake_work().kernel = [&](const std::string&, void** arguments) {
    std::memcpy(&args, arguments[0], sizeof args);
    return 0.0;
  };
  const cuda::Tokens x{.address = 4096, .f32 = false, .tokens = 5, .cols = 4100, .stride = 4200};
  const auto bf16 = staging->stage({}, x, {1 << 20, 1 << 20}, *stream);
  ASSERT_TRUE(bf16) << bf16.error().message;
  EXPECT_EQ(bf16->scales, 0u);
  EXPECT_EQ(args.x_stride, 4200);
  EXPECT_EQ(args.padded_cols, 4224);
  const auto s8 =
      staging->stage({.element = StagedElement::s8, .group = 64, .sums = true}, x, {1 << 20, 1 << 20}, *stream);
  ASSERT_TRUE(s8) << s8.error().message;
  EXPECT_EQ(s8->scales, (1u << 20) + 21248u);  // 5 * 4224 up to a multiple of 256
  EXPECT_EQ(s8->sums, s8->scales + 66 * 320 * 4);
  EXPECT_EQ(args.padded_tokens, 320);
  EXPECT_EQ(args.sum_group, 64);
  const auto& launches = fake_work().launches;
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].function, "stage_bf16_bf16");
  EXPECT_EQ(launches[0].blocks, 5u);
  EXPECT_EQ(launches[1].function, "stage_s8_bf16");
  EXPECT_EQ(launches[1].blocks, 320u);
  EXPECT_EQ(launches[1].threads, 288u);
  const auto none = staging->stage({}, {.address = 4096, .tokens = 0, .cols = 64, .stride = 64}, {}, *stream);
  EXPECT_TRUE(none);
  EXPECT_EQ(launches.size(), 2u);
}

TEST_F(FakeStaging, says_what_it_cannot_stage) {
  const auto session = cuda::Session::open(api_, {.name = "Fake A100", .capability = 80});
  const auto staging = cuda::Staging::load(*session);
  ASSERT_TRUE(staging) << staging.error().message;
  const auto stream = session->stream();
  const cuda::Tokens good{.address = 4096, .f32 = true, .tokens = 5, .cols = 100, .stride = 100};
  const cuda::Workspace room{1 << 20, 1 << 20};
  const auto error = [&](const StagingForm& form, cuda::Tokens x, cuda::Workspace workspace) {
    const auto staged = staging->stage(form, x, workspace, *stream);
    return staged ? std::string("none") : staged.error().message;
  };
  EXPECT_EQ(error({}, good, room), "none");
  EXPECT_EQ(error({.element = StagedElement::e4m3}, good, room),
            "cuda: staging: e4m3 by row: wanted compute capability 9.0, got 8.0");
  EXPECT_EQ(error({}, good, {1 << 20, 1279}), "cuda: staging: wanted a workspace of 1280 bytes for 5 x 100, got 1279");
  EXPECT_EQ(error({}, good, {(1 << 20) + 16, 1 << 20}),
            "cuda: staging: wanted a workspace at a multiple of 256 bytes, got 0x100010");
  cuda::Tokens odd = good;
  odd.address = 4098;
  EXPECT_EQ(error({}, odd, room), "cuda: staging: wanted tokens at a multiple of 4 bytes, got 0x1002");
  odd.f32 = false;
  EXPECT_EQ(error({}, odd, room), "none");
  cuda::Tokens many = good;
  many.tokens = int64_t{1} << 32;
  EXPECT_THAT(error({}, many, room), HasSubstr("wanted up to 1073741823 tokens and columns, got 4294967296 x 100"));
}

}  // namespace
}  // namespace octalane::test
