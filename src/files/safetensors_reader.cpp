// Parses the header of a safetensors file. Nothing it reads is trusted, and what is kept of it stays within a small
// multiple of its bytes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "files/json_reader.h"
#include "files/quote.h"
#include "files/safetensors_state.h"

namespace octalane {

static_assert(std::endian::native == std::endian::little, "the header's length is copied as it lies in the file");

/// Every step returns false after it has recorded the error that open() will return.
class SafetensorsParser final : public JsonEvents {
 public:
  explicit SafetensorsParser(SafetensorsFile::State& state) : state_(state) {}

  static Expected<SafetensorsFile> run(std::shared_ptr<SafetensorsFile::State> state) {
    SafetensorsParser parser(*state);
    if (!parser.header() || !parser.unique_keys() || !parser.unique_names() || !parser.place_tensors())
      return tl::make_unexpected(parser.error_);
    return SafetensorsFile(std::move(state));
  }

  bool open_object() override;
  bool open_array() override;
  bool close() override;
  bool key(std::string& name) override;
  bool text(std::string& value) override;
  bool natural(uint64_t value) override;
  bool other(std::string_view what) override { return unexpected(what); }
  void invalid() override { bad(at(), "the header is not valid JSON"); }

 private:
  /// Where in the header reading is; the value of `field_` within a tensor.
  enum class Level { outside, header, metadata, tensor, shape, offsets };
  enum Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };
  /// What the file says of a tensor beside its SafetensorsTensor.
  struct Extent {
    uint64_t named_at = 0;  ///< the byte behind the tensor's name
    std::vector<uint64_t> offsets;
  };

  template <class... Args>
  bool bad(uint64_t byte, fmt::format_string<Args...> format, Args&&... args) {
    error_.message = fmt::format("{}: {} at byte {}: {}", state_.path, subject_, byte,
                                 fmt::format(format, std::forward<Args>(args)...));
    return false;
  }
  bool unexpected(std::string_view what);
  void about_tensor(size_t i) { subject_ = "tensor " + quote(state_.tensors[i].name); }

  bool back_in_header() {
    level_ = Level::header;
    subject_ = "header";
    return true;
  }

  bool header();
  bool new_tensor(std::string& name);
  bool new_field(std::string_view name);
  bool whole_tensor();
  bool unique_keys();
  bool unique_names();
  bool place_tensors();

  /// The byte of the file that reading has come to.
  uint64_t at() const { return sizeof(uint64_t) + read_; }
  std::string_view keep(std::string& text) { return state_.texts.emplace_back(std::move(text)); }

  SafetensorsFile::State& state_;
  uint64_t read_ = 0;  ///< of the header
  uint64_t data_begin_ = 0, data_bytes_ = 0;
  Level level_ = Level::outside;
  bool metadata_seen_ = false, metadata_next_ = false;
  unsigned seen_ = kNone;  ///< of the fields of the tensor that is being read
  Field field_ = kNone;
  std::vector<Extent> extents_;     ///< one for each tensor
  std::vector<uint64_t> keyed_at_;  ///< the byte behind each key of the metadata
  std::string subject_ = "header";  ///< what an error would be about
  Error error_;
};

bool SafetensorsParser::header() {
  const std::span<const std::byte> bytes = state_.bytes;
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    return bad(0, "wanted the {} bytes of its length, the file ends after {}", sizeof length, bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMostSafetensorsHeaderBytes)
    return bad(0, "wanted at most {} bytes, got {}", kMostSafetensorsHeaderBytes, length);
  if (length > bytes.size() - sizeof length)
    return bad(0, "{} bytes, the file ends after {}", length, bytes.size() - sizeof length);
  data_begin_ = sizeof length + length;
  data_bytes_ = bytes.size() - data_begin_;
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  if (!json.starts_with('{')) return bad(sizeof length, "wanted {{, got {}", quote(json.substr(0, 1)));
  return read_json(json, *this, read_);
}

bool SafetensorsParser::unexpected(std::string_view what) {
  const auto wanted = [this] {
    switch (level_) {
      case Level::outside:
      case Level::header: return "an object";
      case Level::metadata: return "a string";
      case Level::tensor:
        return field_ == kDtype ? "a string" : field_ == kShape ? "an array" : "an array of two numbers";
      case Level::shape:
      case Level::offsets: break;
    }
    return "a natural number";
  };
  return bad(at(), "wanted {}, got {}", wanted(), what);
}

bool SafetensorsParser::open_object() {
  if (level_ == Level::outside) {
    level_ = Level::header;
  } else if (level_ == Level::header) {
    level_ = metadata_next_ ? Level::metadata : Level::tensor;
  } else {
    return unexpected("an object");
  }
  return true;
}

bool SafetensorsParser::open_array() {
  if (level_ != Level::tensor || field_ == kDtype) return unexpected("an array");
  level_ = field_ == kShape ? Level::shape : Level::offsets;
  return true;
}

bool SafetensorsParser::close() {
  switch (level_) {
    case Level::outside:
    case Level::header: level_ = Level::outside; return true;
    case Level::metadata: return back_in_header();
    case Level::tensor: return whole_tensor() && back_in_header();
    case Level::shape: break;
    case Level::offsets:
      if (const size_t count = extents_.back().offsets.size(); count != 2)
        return bad(at(), "wanted 2 data_offsets, got {}", count);
  }
  level_ = Level::tensor;
  return true;
}

bool SafetensorsParser::key(std::string& name) {
  if (level_ == Level::tensor) return new_field(name);
  if (level_ == Level::metadata) {
    subject_ = "key " + quote(name);
    state_.metadata.emplace_back(keep(name), std::string_view());
    keyed_at_.push_back(at());
    return true;
  }
  metadata_next_ = name == kSafetensorsMetadataKey;
  if (!metadata_next_) return new_tensor(name);
  subject_ = "key " + quote(name);
  return !std::exchange(metadata_seen_, true) || bad(at(), "a second key of this name");
}

bool SafetensorsParser::new_tensor(std::string& name) {
  state_.tensors.emplace_back().name = keep(name);
  extents_.emplace_back().named_at = at();
  seen_ = kNone;
  about_tensor(state_.tensors.size() - 1);
  return true;
}

bool SafetensorsParser::new_field(std::string_view name) {
  field_ = name == "dtype" ? kDtype : name == "shape" ? kShape : kNone;
  if (name == "data_offsets") field_ = kOffsets;
  if (field_ == kNone) return bad(at(), "wanted dtype, shape or data_offsets, got {}", quote(name));
  if ((seen_ & field_) != 0) return bad(at(), "a second {}", name);
  seen_ |= field_;
  return true;
}

bool SafetensorsParser::text(std::string& value) {
  if (level_ == Level::metadata) {
    state_.metadata.back().second = keep(value);
    return true;
  }
  if (level_ != Level::tensor || field_ != kDtype) return unexpected("a string");
  std::string_view& dtype = state_.tensors.back().dtype;
  dtype = safetensors_dtype_name(value);
  return !dtype.empty() || bad(at(), "unknown dtype {}", quote(value));
}

bool SafetensorsParser::natural(uint64_t value) {
  if (level_ == Level::offsets) {
    extents_.back().offsets.push_back(value);
    return true;
  }
  if (level_ != Level::shape) return unexpected("a number");
  if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return bad(at(), "dimension {} is too large", value);
  state_.tensors.back().shape.push_back(static_cast<int64_t>(value));
  return true;
}

/// The fields of the tensor are all there and agree with one another and with the size of the file.
bool SafetensorsParser::whole_tensor() {
  for (const auto& [field, name] :
       {std::pair{kDtype, "dtype"}, std::pair{kShape, "shape"}, std::pair{kOffsets, "data_offsets"}}) {
    if ((seen_ & field) == 0) return bad(at(), "its {} is missing", name);
  }
  SafetensorsTensor& tensor = state_.tensors.back();
  const Expected<uint64_t> bytes = safetensors_tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) return bad(at(), "{}", bytes.error().message);
  const uint64_t begin = extents_.back().offsets[0], end = extents_.back().offsets[1];
  if (begin > end || end > data_bytes_)
    return bad(at(), "data_offsets {} to {} of the data section, which has {} bytes", begin, end, data_bytes_);
  if (end - begin != *bytes)
    return bad(at(), "its dtype and shape need {} bytes, its data_offsets hold {}", *bytes, end - begin);
  tensor.bytes = *bytes;
  tensor.data = state_.bytes.data() + data_begin_ + begin;
  return true;
}

bool SafetensorsParser::unique_keys() {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : state_.metadata) keys.push_back(key);
  const auto [first, second] = NameIndex().build(keys);
  if (first == second) return true;
  subject_ = "key " + quote(keys[second]);
  return bad(keyed_at_[second], "a second key of this name; the first is at byte {}", keyed_at_[first]);
}

bool SafetensorsParser::unique_names() {
  std::vector<std::string_view> names;
  for (const SafetensorsTensor& tensor : state_.tensors) names.push_back(tensor.name);
  const auto [first, second] = state_.names.build(std::move(names));
  if (first == second) return true;
  about_tensor(second);
  return bad(extents_[second].named_at, "a second tensor of this name; the first is at byte {}",
             extents_[first].named_at);
}

/// Tensors lie in the data section without overlap, without holes, to its end.
bool SafetensorsParser::place_tensors() {
  std::vector<size_t> order(state_.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [this](size_t a, size_t b) { return extents_[a].offsets < extents_[b].offsets; });
  uint64_t filled = 0;
  for (const size_t i : order) {
    about_tensor(i);
    const uint64_t begin = extents_[i].offsets[0];
    if (begin < filled)
      return bad(extents_[i].named_at, "its data at offset {} overlaps other data, which ends at {}", begin, filled);
    if (begin > filled)
      return bad(extents_[i].named_at, "its data at offset {} leaves a hole: other data ends at {}", begin, filled);
    filled = extents_[i].offsets[1];
  }
  subject_ = "data section";
  return filled == data_bytes_ || bad(data_begin_, "it has {} bytes, the tensors only {}", data_bytes_, filled);
}

Expected<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_shared<State>();
  state->path = std::move(name);
  state->bytes = bytes;
  return SafetensorsParser::run(std::move(state));
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Expected<MappedFile> mapping = MappedFile::open(path);
  if (!mapping) return fail_with(mapping);
  auto state = std::make_shared<State>();
  state->path = path;
  state->mapping = std::move(*mapping);
  state->bytes = state->mapping.bytes();
  return SafetensorsParser::run(std::move(state));
}

}  // namespace octalane
