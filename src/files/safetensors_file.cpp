// What a parsed safetensors file answers, and the sizes of its types.
#include <algorithm>
#include <array>
#include <limits>

#include "files/quote.h"
#include "files/safetensors_state.h"

namespace octalane {
namespace {

struct Dtype {
  std::string_view name;
  int bits;
};

/// Source: https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs
constexpr std::array kDtypes{
    Dtype{"BOOL", 8},        Dtype{"F4", 4},          Dtype{"F6_E2M3", 6}, Dtype{"F6_E3M2", 6}, Dtype{"U8", 8},
    Dtype{"I8", 8},          Dtype{"F8_E5M2", 8},     Dtype{"F8_E4M3", 8}, Dtype{"F8_E8M0", 8}, Dtype{"I16", 16},
    Dtype{"F8_E4M3FNUZ", 8}, Dtype{"F8_E5M2FNUZ", 8}, Dtype{"U16", 16},    Dtype{"F16", 16},    Dtype{"BF16", 16},
    Dtype{"I32", 32},        Dtype{"U32", 32},        Dtype{"F32", 32},    Dtype{"C64", 64},    Dtype{"F64", 64},
    Dtype{"I64", 64},        Dtype{"U64", 64},
};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

}  // namespace

std::string_view safetensors_dtype_name(std::string_view name) {
  const Dtype* dtype = find_dtype(name);
  return dtype ? dtype->name : std::string_view();
}

Expected<uint64_t> safetensors_tensor_bytes(std::string_view dtype, std::span<const int64_t> shape) {
  const Dtype* known = find_dtype(dtype);
  if (!known) return fail("unknown dtype {}", quote(dtype));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t values = 1;
  bool none = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return fail("dimension {} is negative", dim);
    none |= dim == 0;
    if (dim > 0 && values > kMost / dim) return fail("the product of its dimensions overflows");
    values *= std::max<int64_t>(dim, 1);
  }
  if (values > kMost / known->bits) return fail("its size in bits overflows");
  if (none) return uint64_t{0};
  const uint64_t bits = static_cast<uint64_t>(values) * static_cast<uint64_t>(known->bits);
  if (bits % 8 != 0) return fail("{} values of {} bits are not whole bytes", values, known->bits);
  return bits / 8;
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

uint64_t SafetensorsFile::file_bytes() const { return state_->bytes.size(); }
const std::string& SafetensorsFile::path() const { return state_->path; }
std::span<const SafetensorsTensor> SafetensorsFile::tensors() const { return state_->tensors; }
std::span<const SafetensorsMetadata> SafetensorsFile::metadata() const { return state_->metadata; }

const SafetensorsTensor* SafetensorsFile::find_tensor(std::string_view name) const {
  const size_t i = state_->names.find(name);
  return i == NameIndex::none ? nullptr : &state_->tensors[i];
}

void SafetensorsFile::release(const SafetensorsTensor& tensor) const {
  state_->mapping.release({tensor.data, tensor.bytes});
}

}  // namespace octalane
