// What a parsed GGUF file answers.
#include <array>
#include <cstring>
#include <type_traits>

#include "files/gguf_state.h"
#include "files/quote.h"

namespace octalane {
namespace {

/// The name of what get() wants, for its errors.
template <class T>
constexpr const char* wanted() {
  if constexpr (std::is_same_v<T, bool>) return "a bool";
  if constexpr (std::is_same_v<T, int64_t>) return "an int64";
  if constexpr (std::is_same_v<T, int32_t>) return "an int32";
  if constexpr (std::is_same_v<T, float>) return "a float";
  if constexpr (std::is_same_v<T, double>) return "a number";
  return "a string";
}

template <class From, class Wide>
GgufScalar load(const std::byte* at) {
  From value{};
  std::memcpy(&value, at, sizeof value);
  return Wide{value};
}

/// The element at `at`, which moves behind it. Parsing has checked that it lies inside the file.
GgufScalar take_element(GgufType type, const std::byte*& at) {
  const std::byte* here = at;
  at += gguf_type_bytes(type);
  switch (type) {
    case GgufType::u8: return load<uint8_t, uint64_t>(here);
    case GgufType::u16: return load<uint16_t, uint64_t>(here);
    case GgufType::u32: return load<uint32_t, uint64_t>(here);
    case GgufType::u64: return load<uint64_t, uint64_t>(here);
    case GgufType::i8: return load<int8_t, int64_t>(here);
    case GgufType::i16: return load<int16_t, int64_t>(here);
    case GgufType::i32: return load<int32_t, int64_t>(here);
    case GgufType::i64: return load<int64_t, int64_t>(here);
    case GgufType::f32: return load<float, double>(here);
    case GgufType::f64: return load<double, double>(here);
    case GgufType::boolean: return *here != std::byte{0};
    case GgufType::string:
    case GgufType::array: break;
  }
  uint64_t length = 0;
  std::memcpy(&length, here, sizeof length);
  at += sizeof length + length;
  return std::string_view(reinterpret_cast<const char*>(here + sizeof length), static_cast<size_t>(length));
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  constexpr std::array kNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                              "bool", "string", "array", "u64", "i64", "f64"};
  return type < kNames.size() ? kNames[type] : fmt::format("type {}", type);
}

std::string describe(GgufType type, const GgufScalar& scalar) {
  std::string name = gguf_type_name(static_cast<uint32_t>(type));
  if (type == GgufType::array) return name;
  if (const auto* value = std::get_if<uint64_t>(&scalar)) return fmt::format("{} {}", name, *value);
  if (const auto* value = std::get_if<int64_t>(&scalar)) return fmt::format("{} {}", name, *value);
  if (const auto* value = std::get_if<double>(&scalar)) return fmt::format("{} {}", name, *value);
  return name;
}

uint64_t gguf_type_bytes(GgufType type) {
  constexpr std::array kBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return static_cast<uint64_t>(kBytes[static_cast<size_t>(type)]);
}

int64_t GgufTensor::rows() const {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

GgufFile::GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

uint32_t GgufFile::version() const { return state_->version; }
uint64_t GgufFile::file_bytes() const { return state_->bytes.size(); }
const std::string& GgufFile::path() const { return state_->path; }
std::span<const GgufTensor> GgufFile::tensors() const { return state_->tensors; }
std::span<const std::pair<std::string_view, GgufValue>> GgufFile::metadata() const { return state_->metadata; }

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const size_t i = state_->names.find(name);
  return i == NameIndex::none ? nullptr : &state_->tensors[i];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const size_t i = state_->keys.find(key);
  return i == NameIndex::none ? nullptr : &state_->metadata[i].second;
}

void GgufFile::release(const GgufTensor& tensor) const { state_->mapping.release({tensor.data, tensor.bytes}); }

template <class T>
Expected<T> GgufFile::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return fail("{}: key {} is missing", path(), quote(key));
  T result{};
  if (value->type == GgufType::array || !convert(value->scalar, result))
    return fail("{}: key {}: wanted {}, got {}", path(), quote(key), wanted<T>(), describe(value->type, value->scalar));
  return result;
}

template <class T>
Expected<T> GgufFile::get_or(std::string_view key, T fallback) const {
  if (!find(key)) return fallback;
  return get<T>(key);
}

template <class T>
Expected<std::vector<T>> GgufFile::get_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return fail("{}: key {} is missing", path(), quote(key));
  if (value->type != GgufType::array || value->array.type == GgufType::array)
    return fail("{}: key {}: wanted an array of scalars, got {}", path(), quote(key),
                value->type == GgufType::array ? "an array of arrays" : describe(value->type, value->scalar));
  const GgufArray& array = value->array;
  std::vector<T> result;
  result.reserve(array.count);
  const std::byte* at = array.bytes.data();
  for (uint64_t i = 0; i < array.count; ++i) {
    const GgufScalar element = take_element(array.type, at);
    T converted{};
    if (!convert(element, converted))
      return fail("{}: key {}: element {}: wanted {}, got {}", path(), quote(key), i, wanted<T>(),
                  describe(array.type, element));
    result.push_back(converted);
  }
  return result;
}

template Expected<int64_t> GgufFile::get(std::string_view) const;
template Expected<double> GgufFile::get(std::string_view) const;
template Expected<bool> GgufFile::get(std::string_view) const;
template Expected<std::string_view> GgufFile::get(std::string_view) const;
template Expected<int64_t> GgufFile::get_or(std::string_view, int64_t) const;
template Expected<double> GgufFile::get_or(std::string_view, double) const;
template Expected<bool> GgufFile::get_or(std::string_view, bool) const;
template Expected<std::string_view> GgufFile::get_or(std::string_view, std::string_view) const;
template Expected<std::vector<int64_t>> GgufFile::get_array(std::string_view) const;
template Expected<std::vector<int32_t>> GgufFile::get_array(std::string_view) const;
template Expected<std::vector<double>> GgufFile::get_array(std::string_view) const;
template Expected<std::vector<float>> GgufFile::get_array(std::string_view) const;
template Expected<std::vector<bool>> GgufFile::get_array(std::string_view) const;
template Expected<std::vector<std::string_view>> GgufFile::get_array(std::string_view) const;

}  // namespace octalane
