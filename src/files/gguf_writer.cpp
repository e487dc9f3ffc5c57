#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "files/ggml_types.h"
#include "files/gguf_state.h"
#include "files/output_file.h"
#include "files/quote.h"

namespace octalane {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kDefaultAlignment = 32;
constexpr size_t kLongestName = 63;  // ggml refuses a longer tensor name

template <class T>
void append(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little && std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  out.append(text);
}

void append_type(std::string& out, GgufType type) { append(out, static_cast<uint32_t>(type)); }

template <class T>
bool append_as(std::string& out, const GgufScalar& scalar) {
  T value{};
  if (!convert(scalar, value)) return false;
  append(out, value);
  return true;
}

bool append_scalar(std::string& out, GgufType type, const GgufScalar& scalar) {
  switch (type) {
    case GgufType::u8: return append_as<uint8_t>(out, scalar);
    case GgufType::u16: return append_as<uint16_t>(out, scalar);
    case GgufType::u32: return append_as<uint32_t>(out, scalar);
    case GgufType::u64: return append_as<uint64_t>(out, scalar);
    case GgufType::i8: return append_as<int8_t>(out, scalar);
    case GgufType::i16: return append_as<int16_t>(out, scalar);
    case GgufType::i32: return append_as<int32_t>(out, scalar);
    case GgufType::i64: return append_as<int64_t>(out, scalar);
    case GgufType::f32: return append_as<float>(out, scalar);
    case GgufType::f64: return append_as<double>(out, scalar);
    case GgufType::boolean: return append_as<bool>(out, scalar);
    case GgufType::string:
      if (!std::holds_alternative<std::string_view>(scalar)) return false;
      append_text(out, std::get<std::string_view>(scalar));
      return true;
    case GgufType::array: break;
  }
  return false;
}

uint64_t padding(uint64_t size, uint64_t alignment) { return (alignment - size % alignment) % alignment; }

}  // namespace

struct GgufWriter::State {
  struct Pair {
    std::string key;
    std::string value;  ///< type and value as they will lie in the file
  };
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<int64_t> shape;
    uint64_t bytes;
  };

  std::string path;
  std::optional<OutputFile> file;  ///< none: into `memory`
  std::vector<std::byte> memory;
  std::vector<Pair> pairs;
  std::vector<Tensor> tensors;
  std::optional<Error> error;  ///< the first: every later call returns it
  bool header_written = false;
  uint64_t alignment = kDefaultAlignment;
  size_t current = 0;    ///< tensor whose bytes come next
  uint64_t written = 0;  ///< of its bytes

  State(std::string name, std::optional<OutputFile> output) : path(std::move(name)), file(std::move(output)) {}

  template <class... Args>
  tl::unexpected<Error> failed(fmt::format_string<Args...> format, Args&&... args) {
    return keep(Error{fmt::format("{}: {}", path, fmt::format(format, std::forward<Args>(args)...))});
  }
  tl::unexpected<Error> keep(Error found) {
    if (!error) error = std::move(found);
    return tl::make_unexpected(*error);
  }

  void set(std::string_view key, std::string value);
  Status write(std::span<const std::byte> bytes);
  Status write_header();
  Status pad(uint64_t size);
  Status skip_complete();
  Status complete();
};

/// Replaces the value of a key that is there; its place in the file stays.
void GgufWriter::State::set(std::string_view key, std::string value) {
  if (key.empty()) return void(failed("a key must have a name"));
  if (header_written) return void(failed("key {}: set after the first tensor was written", quote(key)));
  for (Pair& pair : pairs) {
    if (pair.key == key) return void(pair.value = std::move(value));
  }
  pairs.push_back({std::string(key), std::move(value)});
}

Status GgufWriter::State::write(std::span<const std::byte> bytes) {
  if (!file) {
    memory.insert(memory.end(), bytes.begin(), bytes.end());
    return {};
  }
  if (Status done = file->write(bytes); !done) return keep(done.error());
  return {};
}

Status GgufWriter::State::pad(uint64_t size) {
  const std::vector<std::byte> zeros(padding(size, alignment));
  return write(zeros);
}

Status GgufWriter::State::write_header() {
  if (error) return tl::make_unexpected(*error);
  if (header_written) return {};
  std::string out = "GGUF";
  append(out, kVersion);
  append(out, uint64_t{tensors.size()});
  append(out, uint64_t{pairs.size()});
  for (const Pair& pair : pairs) {
    append_text(out, pair.key);
    out += pair.value;
    if (pair.key != "general.alignment") continue;
    uint32_t type_and_value[2] = {};
    if (pair.value.size() == sizeof type_and_value)
      std::memcpy(type_and_value, pair.value.data(), sizeof type_and_value);
    if (GgufType{type_and_value[0]} != GgufType::u32 || !std::has_single_bit(type_and_value[1]))
      return failed("key \"general.alignment\": wanted a u32 that is a power of two");
    alignment = type_and_value[1];
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t dim : tensor.shape) append(out, dim);
    append(out, tensor.type);
    append(out, offset);
    const uint64_t room = uint64_t{1} << 62;
    if (tensor.bytes > room || offset > room)
      return failed("tensor {}: the file would be too large", quote(tensor.name));
    offset += tensor.bytes + padding(tensor.bytes, alignment);
  }
  header_written = true;
  if (Status done = write(std::as_bytes(std::span(out))); !done) return done;
  if (Status done = pad(out.size()); !done) return done;
  return skip_complete();
}

/// Pads a tensor whose bytes are all there, and passes over tensors that have none.
Status GgufWriter::State::skip_complete() {
  while (current < tensors.size() && written == tensors[current].bytes) {
    if (Status done = pad(written); !done) return done;
    ++current;
    written = 0;
  }
  return {};
}

Expected<GgufWriter> GgufWriter::create(const std::string& path) {
  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  return GgufWriter(std::make_unique<State>(path, std::move(*file)));
}

GgufWriter GgufWriter::in_memory(const std::string& name) {
  return GgufWriter(std::make_unique<State>(name, std::nullopt));
}

GgufWriter::GgufWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;
GgufWriter::~GgufWriter() = default;

void GgufWriter::set(std::string_view key, GgufType type, GgufScalar value) {
  std::string out;
  append_type(out, type);
  if (!append_scalar(out, type, value))
    return void(state_->failed("key {}: the value does not fit the type {}", quote(key),
                               gguf_type_name(static_cast<uint32_t>(type))));
  state_->set(key, std::move(out));
}

void GgufWriter::copy(std::string_view key, const GgufValue& value) {
  if (value.type != GgufType::array) return set(key, value.type, value.scalar);
  std::string out;
  append_type(out, GgufType::array);
  append_type(out, value.array.type);
  append(out, value.array.count);
  out.append(reinterpret_cast<const char*>(value.array.bytes.data()), value.array.bytes.size());
  state_->set(key, std::move(out));
}

namespace {

template <class T, class Append>
std::string encode_array(GgufType type, std::span<const T> values, Append append_value) {
  std::string out;
  append_type(out, GgufType::array);
  append_type(out, type);
  append(out, uint64_t{values.size()});
  for (const T& value : values) append_value(out, value);
  return out;
}

}  // namespace

void GgufWriter::set_array(std::string_view key, std::span<const std::string> values) {
  state_->set(key, encode_array(GgufType::string, values, append_text));
}
void GgufWriter::set_array(std::string_view key, std::span<const int32_t> values) {
  state_->set(key, encode_array(GgufType::i32, values, append<int32_t>));
}
void GgufWriter::set_array(std::string_view key, std::span<const float> values) {
  state_->set(key, encode_array(GgufType::f32, values, append<float>));
}

Status GgufWriter::add_tensor(std::string_view name, uint32_t ggml_type, std::span<const int64_t> shape) {
  State& s = *state_;
  if (s.error) return tl::make_unexpected(*s.error);
  if (s.header_written) return s.failed("tensor {}: declared after the first tensor was written", quote(name));
  if (name.empty() || name.size() > kLongestName)
    return s.failed("tensor {}: wanted a name of 1 to {} bytes, got {}", quote(name), kLongestName, name.size());
  const GgmlType* type = find_ggml_type(ggml_type);
  if (!type) return s.failed("tensor {}: unknown ggml {}", quote(name), ggml_type_name(ggml_type));
  const Expected<uint64_t> bytes = ggml_tensor_bytes(*type, shape);
  if (!bytes) return s.failed("tensor {}: {}", quote(name), bytes.error().message);
  for (const State::Tensor& other : s.tensors) {
    if (other.name == name) return s.failed("tensor {}: declared twice", quote(name));
  }
  s.tensors.push_back({std::string(name), ggml_type, {shape.begin(), shape.end()}, *bytes});
  return {};
}

Status GgufWriter::write_tensor(std::span<const std::byte> piece) {
  State& s = *state_;
  if (Status done = s.write_header(); !done) return done;
  if (piece.empty()) return {};
  if (s.current == s.tensors.size()) return s.failed("{} bytes more than the declared tensors have", piece.size());
  const State::Tensor& tensor = s.tensors[s.current];
  if (piece.size() > tensor.bytes - s.written)
    return s.failed("tensor {}: wanted {} bytes, got {}", quote(tensor.name), tensor.bytes, s.written + piece.size());
  if (Status done = s.write(piece); !done) return done;
  s.written += piece.size();
  return s.skip_complete();
}

Status GgufWriter::State::complete() {
  if (Status done = write_header(); !done) return done;
  if (current == tensors.size()) return {};
  return failed("tensor {}: wanted {} bytes, got {}", quote(tensors[current].name), tensors[current].bytes, written);
}

Status GgufWriter::finish() {
  State& s = *state_;
  if (Status done = s.complete(); !done) return done;
  if (Status done = s.file->commit(); !done) return s.keep(done.error());
  return {};
}

Expected<GgufFile> GgufWriter::take() {
  State& s = *state_;
  if (const Status done = s.complete(); !done) return fail_with(done);
  return GgufFile::parse_owned(std::move(s.memory), s.path);
}

}  // namespace octalane
