#include "core/parallel.h"
#include "kernels/registry.h"
#include "linear/linear.h"

namespace octalane {

Activations::Activations(const Context& context, MatrixView<const float> x) : threads_(context.threads()), x_(x) {
  if (x.contiguous_rows()) return;
  copy_.resize(static_cast<size_t>(x.rows * x.cols));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) copy_[static_cast<size_t>(r * x.cols + c)] = x(r, c);
  }
  x_ = dense_view<const float>(copy_.data(), x.rows, x.cols);
}

const ActivationsView& Activations::get(const Choice& choice, const PackedView& weights) {
  const ActivationGroups groups =
      choice.kernel->groups != nullptr ? choice.kernel->groups(weights.spec) : ActivationGroups{};
  const int64_t stride = weights.padded_cols();
  for (const std::unique_ptr<Made>& made : made_) {
    const ActivationsView& view = made->view;
    if (made->isa == choice.isa && view.form == choice.kernel->form && view.groups == groups && view.stride == stride) {
      return view;
    }
  }
  made_.push_back(std::make_unique<Made>(make(choice, groups, stride)));
  return made_.back()->view;
}

Activations::Made Activations::make(const Choice& choice, const ActivationGroups& groups, int64_t stride) const {
  Made made;
  made.isa = choice.isa;
  QuantizeArgs args{.x = x_, .groups = groups, .stride = stride};
  switch (choice.kernel->form) {
    case ActivationForm::bf16_as_f32:
      made.f32 = AlignedBuffer<float>(x_.rows * stride);
      args.f32 = made.f32.data();
      break;
    case ActivationForm::s8:
      made.codes = AlignedBuffer<int8_t>(x_.rows * stride);
      made.scales = AlignedBuffer<float>(x_.rows * (stride / groups.scale_group));
      made.sums = AlignedBuffer<int32_t>(x_.rows * (stride / groups.sum_group));
      args.codes = made.codes.data();
      args.scales = made.scales.data();
      args.sums = made.sums.data();
      break;
  }
  const Quantizer& quantize = quantizer(*choice.isa, choice.kernel->form);
  parallel_for(threads_, x_.rows, 1, [&](int, int64_t begin, int64_t end) {
    QuantizeArgs part = args;
    part.row_begin = begin;
    part.row_end = end;
    quantize.run(part);
  });
  made.view = {choice.kernel->form, groups, x_.rows, x_.cols, stride, args.f32, args.codes, args.scales, args.sums};
  return made;
}

}  // namespace octalane
