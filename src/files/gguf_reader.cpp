// Parses the header of a GGUF file. Nothing it reads is trusted: a count is believed only when that many of the
// smallest things it can count fit into the bytes that are left, so memory stays within a small multiple of the file.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "files/ggml_types.h"
#include "files/gguf_state.h"
#include "files/quote.h"

namespace octalane {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are copied as they lie in the file");

constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kSmallestString = 8;              // its length
constexpr uint64_t kSmallestArray = 4 + 8;           // element type, count
constexpr uint64_t kSmallestPair = 8 + 1 + 4 + 1;    // key of one letter, type, one byte
constexpr uint64_t kSmallestTensor = 8 + 4 + 4 + 8;  // empty name, no dimensions, type, offset
constexpr uint32_t kDefaultAlignment = 32;

}  // namespace

/// Every step returns false after it has recorded the error that open() will return.
class GgufParser {
 public:
  explicit GgufParser(GgufFile::State& state) : state_(state), bytes_(state.bytes) {}

  Status run() {
    if (header() && metadata() && alignment() && tensor_infos() && unique_names() && place_tensors()) return {};
    return tl::make_unexpected(error_);
  }

 private:
  /// What is being read, put into words only when an error needs them.
  struct Subject {
    const char* kind = "header";
    uint64_t index = 0;
    std::string_view name;
    std::string text() const {
      if (!name.empty()) return fmt::format("{} {}", kind, quote(name));
      return std::strcmp(kind, "header") == 0 ? kind : fmt::format("{} {}", kind, index);
    }
  };

  template <class... Args>
  bool bad(uint64_t byte, fmt::format_string<Args...> format, Args&&... args) {
    error_.message = fmt::format("{}: {} at byte {}: {}", state_.path, subject_.text(), byte,
                                 fmt::format(format, std::forward<Args>(args)...));
    return false;
  }

  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  bool read(T& value) {
    if (left() < sizeof value) return bad(at_, "wanted {} bytes, the file ends after {}", sizeof value, left());
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }

  bool read_string(std::string_view& text) {
    const uint64_t begin = at_;
    uint64_t length = 0;
    if (!read(length)) return false;
    if (length > left()) return bad(begin, "a string of {} bytes, the file ends after {}", length, left());
    text = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<size_t>(length)};
    at_ += length;
    return true;
  }

  /// Reads a count of things of at least `smallest` bytes each.
  bool read_count(uint64_t& count, const char* things, uint64_t smallest) {
    const uint64_t begin = at_;
    if (!read(count)) return false;
    if (count > left() / smallest) return bad(begin, "{} {} cannot fit in the {} bytes left", count, things, left());
    return true;
  }

  bool header();
  bool metadata();
  bool value(GgufValue& value);
  bool scalar(GgufType type, GgufScalar& scalar);
  bool array(GgufArray& array, int depth);
  bool elements(const GgufArray& array, int depth);
  bool alignment();
  bool tensor_infos();
  bool tensor_info(GgufTensor& tensor);
  bool unique_names();
  bool place_tensors();
  bool no_overlap();

  template <class T, class Wide>
  bool read_as(GgufScalar& scalar) {
    T value{};
    if (!read(value)) return false;
    scalar = Wide{value};
    return true;
  }

  uint64_t byte_of(const void* inside) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(inside) - bytes_.data());
  }

  GgufFile::State& state_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  uint64_t tensor_count_ = 0, pair_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<uint64_t> offsets_;  ///< of the tensors, from the start of the data section
  Subject subject_;
  Error error_;
};

bool GgufParser::header() {
  std::array<char, 4> magic{};
  if (!read(magic)) return false;
  const std::string_view letters(magic.data(), magic.size());
  if (letters != "GGUF") return bad(0, "wanted the letters GGUF, got {}", quote(letters));
  uint32_t& version = state_.version;
  if (!read(version)) return false;
  if ((version & 0xFFFFu) == 0 && version != 0) return bad(4, "this is a big-endian file; wanted a little-endian one");
  if (version != 2 && version != 3) return bad(4, "wanted GGUF version 2 or 3, got {}", version);
  return read_count(tensor_count_, "tensors", kSmallestTensor) && read_count(pair_count_, "keys", kSmallestPair);
}

bool GgufParser::metadata() {
  for (uint64_t i = 0; i < pair_count_; ++i) {
    auto& [key, content] = state_.metadata.emplace_back();
    const uint64_t begin = at_;
    subject_ = {"key", i, {}};
    if (!read_string(key)) return false;
    if (key.empty()) return bad(begin, "its name is empty");
    subject_.name = key;
    if (!value(content)) return false;
  }
  return true;
}

bool GgufParser::value(GgufValue& value) {
  const uint64_t begin = at_;
  uint32_t type = 0;
  if (!read(type)) return false;
  if (type > static_cast<uint32_t>(GgufType::f64)) return bad(begin, "unknown value type {}", type);
  value.type = GgufType{type};
  return value.type == GgufType::array ? array(value.array, 0) : scalar(value.type, value.scalar);
}

bool GgufParser::scalar(GgufType type, GgufScalar& scalar) {
  switch (type) {
    case GgufType::u8: return read_as<uint8_t, uint64_t>(scalar);
    case GgufType::u16: return read_as<uint16_t, uint64_t>(scalar);
    case GgufType::u32: return read_as<uint32_t, uint64_t>(scalar);
    case GgufType::u64: return read_as<uint64_t, uint64_t>(scalar);
    case GgufType::i8: return read_as<int8_t, int64_t>(scalar);
    case GgufType::i16: return read_as<int16_t, int64_t>(scalar);
    case GgufType::i32: return read_as<int32_t, int64_t>(scalar);
    case GgufType::i64: return read_as<int64_t, int64_t>(scalar);
    case GgufType::f32: return read_as<float, double>(scalar);
    case GgufType::f64: return read_as<double, double>(scalar);
    case GgufType::boolean: {
      uint8_t byte = 0;
      if (!read(byte)) return false;
      if (byte > 1) return bad(at_ - 1, "a bool is 0 or 1, got {}", byte);
      scalar = byte == 1;
      return true;
    }
    case GgufType::string: {
      std::string_view text;
      if (!read_string(text)) return false;
      scalar = text;
      return true;
    }
    case GgufType::array: break;
  }
  return bad(at_, "not a scalar");
}

bool GgufParser::array(GgufArray& array, int depth) {
  const uint64_t begin = at_;
  uint32_t type = 0;
  if (!read(type)) return false;
  if (type > static_cast<uint32_t>(GgufType::f64)) return bad(begin, "unknown element type {}", type);
  array.type = GgufType{type};
  if (depth >= kMaxArrayDepth) return bad(begin, "arrays nested more than {} deep", kMaxArrayDepth);
  const uint64_t fixed = gguf_type_bytes(array.type);
  const uint64_t smallest = fixed ? fixed : array.type == GgufType::string ? kSmallestString : kSmallestArray;
  if (!read_count(array.count, "elements", smallest)) return false;
  const uint64_t first = at_;
  if (!elements(array, depth)) return false;
  array.bytes = bytes_.subspan(first, at_ - first);
  return true;
}

/// Passes over the elements, checking each; read_count has seen that those of a fixed size lie inside the file.
bool GgufParser::elements(const GgufArray& array, int depth) {
  if (array.type == GgufType::string) {
    std::string_view text;
    for (uint64_t i = 0; i < array.count; ++i) {
      if (!read_string(text)) return false;
    }
  } else if (array.type == GgufType::array) {
    GgufArray inner;
    for (uint64_t i = 0; i < array.count; ++i) {
      if (!this->array(inner, depth + 1)) return false;
    }
  } else if (array.type == GgufType::boolean) {
    GgufScalar flag;
    for (uint64_t i = 0; i < array.count; ++i) {
      if (!scalar(GgufType::boolean, flag)) return false;
    }
  } else {
    at_ += array.count * gguf_type_bytes(array.type);
  }
  return true;
}

bool GgufParser::unique_names() {
  std::vector<std::string_view> names(state_.tensors.size());
  std::transform(state_.tensors.begin(), state_.tensors.end(), names.begin(), [](auto& tensor) { return tensor.name; });
  const auto [first, second] = state_.names.build(std::move(names));
  if (first == second) return true;
  subject_ = {"tensor", second, state_.tensors[second].name};
  return bad(byte_of(state_.tensors[second].name.data()), "a second tensor of this name; the first is at byte {}",
             byte_of(state_.tensors[first].name.data()));
}

/// Finds general.alignment, which needs the index of keys, which finds duplicates.
bool GgufParser::alignment() {
  std::vector<std::string_view> keys(state_.metadata.size());
  std::transform(state_.metadata.begin(), state_.metadata.end(), keys.begin(), [](auto& pair) { return pair.first; });
  const auto [first, second] = state_.keys.build(std::move(keys));
  if (first != second) {
    subject_ = {"key", second, state_.metadata[second].first};
    return bad(byte_of(state_.metadata[second].first.data()), "a second key of this name; the first is at byte {}",
               byte_of(state_.metadata[first].first.data()));
  }
  const size_t found = state_.keys.find("general.alignment");
  if (found == NameIndex::none) return true;
  const auto& [key, content] = state_.metadata[found];
  subject_ = {"key", found, key};
  if (content.type != GgufType::u32)
    return bad(byte_of(key.data()), "wanted u32, got {}", gguf_type_name(static_cast<uint32_t>(content.type)));
  alignment_ = std::get<uint64_t>(content.scalar);
  if (!std::has_single_bit(alignment_)) return bad(byte_of(key.data()), "wanted a power of two, got {}", alignment_);
  return true;
}

bool GgufParser::tensor_infos() {
  subject_ = {};
  if (tensor_count_ > left() / kSmallestTensor)
    return bad(8, "{} tensors cannot fit in the {} bytes after the keys", tensor_count_, left());
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    subject_ = {"tensor", i, {}};
    if (!tensor_info(state_.tensors.emplace_back())) return false;
    const uint64_t begin = at_;
    uint64_t& offset = offsets_.emplace_back();
    if (!read(offset)) return false;
    if (offset % alignment_ != 0)
      return bad(begin, "its data offset {} is not a multiple of the alignment {}", offset, alignment_);
  }
  return true;
}

bool GgufParser::tensor_info(GgufTensor& tensor) {
  if (!read_string(tensor.name)) return false;
  subject_.name = tensor.name;
  const uint64_t shape_byte = at_;
  uint32_t dimensions = 0;
  if (!read(dimensions)) return false;
  if (dimensions > kMaxTensorDimensions)
    return bad(shape_byte, "wanted at most {} dimensions, got {}", kMaxTensorDimensions, dimensions);
  tensor.shape.resize(dimensions);
  for (int64_t& dim : tensor.shape) {
    if (!read(dim)) return false;
  }
  const uint64_t type_byte = at_;
  if (!read(tensor.ggml_type)) return false;
  const GgmlType* type = find_ggml_type(tensor.ggml_type);
  if (!type) return bad(type_byte, "unknown ggml {}", ggml_type_name(tensor.ggml_type));
  const Expected<uint64_t> bytes = ggml_tensor_bytes(*type, tensor.shape);
  if (!bytes) return bad(shape_byte, "{}", bytes.error().message);
  tensor.bytes = *bytes;
  return true;
}

bool GgufParser::place_tensors() {
  const uint64_t after_infos = (at_ + alignment_ - 1) / alignment_ * alignment_;
  // A file without tensor bytes may end before the padding does.
  const uint64_t section = std::min<uint64_t>(after_infos, bytes_.size());
  const uint64_t size = bytes_.size() - section;
  for (size_t i = 0; i < state_.tensors.size(); ++i) {
    GgufTensor& tensor = state_.tensors[i];
    subject_ = {"tensor", i, tensor.name};
    if (offsets_[i] > size || tensor.bytes > size - offsets_[i])
      return bad(byte_of(tensor.name.data()), "{} bytes at offset {} of the data section (byte {}), which has {} bytes",
                 tensor.bytes, offsets_[i], section, size);
    tensor.data = bytes_.data() + section + offsets_[i];
  }
  return no_overlap();
}

/// Tensors that share bytes would let a small file ask for much memory, and no writer makes them.
bool GgufParser::no_overlap() {
  std::vector<size_t> order(state_.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::erase_if(order, [&](size_t i) { return state_.tensors[i].bytes == 0; });
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = state_.tensors[order[i - 1]];
    const GgufTensor& tensor = state_.tensors[order[i]];
    if (before.data + before.bytes <= tensor.data) continue;
    subject_ = {"tensor", order[i], tensor.name};
    return bad(byte_of(tensor.name.data()), "its data at byte {} overlaps that of tensor {}, {} bytes at byte {}",
               byte_of(tensor.data), quote(before.name), before.bytes, byte_of(before.data));
  }
  return true;
}

Expected<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_shared<State>();
  state->path = std::move(name);
  state->bytes = bytes;
  if (const Status parsed = GgufParser(*state).run(); !parsed) return fail_with(parsed);
  return GgufFile(std::move(state));
}

Expected<GgufFile> GgufFile::parse_owned(std::vector<std::byte> bytes, std::string name) {
  auto state = std::make_shared<State>();
  state->path = std::move(name);
  state->owned = std::move(bytes);
  state->bytes = state->owned;
  if (const Status parsed = GgufParser(*state).run(); !parsed) return fail_with(parsed);
  return GgufFile(std::move(state));
}

Expected<GgufFile> GgufFile::open(const std::string& path) {
  Expected<MappedFile> mapping = MappedFile::open(path);
  if (!mapping) return fail_with(mapping);
  auto state = std::make_shared<State>();
  state->path = path;
  state->mapping = std::move(*mapping);
  state->bytes = state->mapping.bytes();
  if (const Status parsed = GgufParser(*state).run(); !parsed) return fail_with(parsed);
  return GgufFile(std::move(state));
}

}  // namespace octalane
