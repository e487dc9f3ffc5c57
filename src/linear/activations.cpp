#include <algorithm>

#include "core/parallel.h"
#include "kernels/registry.h"
#include "linear/linear.h"

namespace octalane {
namespace {

/// Elements [begin, end) of a tiled form: the last strip, whose tokens past the last nobody writes.
void clear_last_strip(const QuantizeArgs& args, int64_t begin, int64_t end) {
  if (args.bf16 != nullptr) std::fill(args.bf16 + begin, args.bf16 + end, uint16_t{0});
  if (args.codes != nullptr) std::fill(args.codes + begin, args.codes + end, int8_t{0});
}

}  // namespace

Activations::Activations(const Context& context, MatrixView<const float> x) : threads_(context.threads()), x_(x) {
  if (x.contiguous_rows()) return;
  copy_.resize(static_cast<size_t>(x.rows * x.cols));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) copy_[static_cast<size_t>(r * x.cols + c)] = x(r, c);
  }
  x_ = dense_view<const float>(copy_.data(), x.rows, x.cols);
}

Activations::Activations(const Context& context, MatrixView<const float> x, std::function<void(int64_t row)> fill)
    : threads_(context.threads()), x_(x), fill_(std::move(fill)) {}

const ActivationsView& Activations::get(const Choice& choice, const PackedView& weights) {
  const ActivationGroups groups =
      choice.kernel->groups != nullptr ? choice.kernel->groups(weights.spec) : ActivationGroups{};
  int64_t stride = weights.padded_cols();
  if (is_tiled(choice.kernel->form)) stride = (stride + kStepBytes - 1) / kStepBytes * kStepBytes;
  for (const std::unique_ptr<Made>& made : made_) {
    const ActivationsView& view = made->view;
    if (made->isa == choice.isa && view.form == choice.kernel->form && view.groups == groups && view.stride == stride) {
      return view;
    }
  }
  made_.push_back(std::make_unique<Made>(make(choice, groups, stride)));
  return made_.back()->view;
}

Activations::Made Activations::make(const Choice& choice, const ActivationGroups& groups, int64_t stride) {
  Made made;
  made.isa = choice.isa;
  QuantizeArgs args{.x = x_, .groups = groups, .stride = stride};
  const ActivationForm form = choice.kernel->form;
  const int64_t rows = is_tiled(form) ? (x_.rows + kStripTokens - 1) / kStripTokens * kStripTokens : x_.rows;
  if (form == ActivationForm::bf16_as_f32) {
    made.f32 = AlignedBuffer<float>(rows * stride);
    args.f32 = made.f32.data();
  } else if (form == ActivationForm::bf16_tiles) {
    made.bf16 = AlignedBuffer<uint16_t>(rows * stride);
    args.bf16 = made.bf16.data();
  } else {
    made.codes = AlignedBuffer<int8_t>(rows * stride);
    made.scales = AlignedBuffer<float>(x_.rows * groups.scales(stride));
    made.sums = AlignedBuffer<int32_t>(x_.rows * groups.sums(stride));
    args.codes = made.codes.data();
    args.scales = made.scales.data();
    args.sums = made.sums.data();
  }
  if (is_tiled(form)) clear_last_strip(args, x_.rows / kStripTokens * kStripTokens * stride, rows * stride);
  const Quantizer& quantize = quantizer(*choice.isa, form);
  parallel_for(threads_, x_.rows, 1, [&](int, int64_t begin, int64_t end) {
    QuantizeArgs part = args;
    if (!fill_) {
      part.row_begin = begin;
      part.row_end = end;
      return quantize.run(part);
    }
    for (int64_t row = begin; row < end; ++row) {
      fill_(row);
      part.row_begin = row;
      part.row_end = row + 1;
      quantize.run(part);
    }
  });
  fill_ = nullptr;
  made.view = {form, groups, x_.rows, x_.cols, stride, args.f32, args.bf16, args.codes, args.scales, args.sums};
  return made;
}

}  // namespace octalane
