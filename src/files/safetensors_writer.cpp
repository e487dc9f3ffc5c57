#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "files/json_reader.h"
#include "files/output_file.h"
#include "files/quote.h"
#include "files/safetensors_state.h"

namespace octalane {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the header's length is written as it lies in memory");

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

struct SafetensorsWriter::State {
  struct Tensor {
    std::string name;  ///< as a JSON string
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t bytes;
  };
  /// Tensors begin to end (exclusive) in one file.
  struct Shard {
    size_t begin = 0, end = 0;
    uint64_t bytes = 0;
    std::string name;
    std::optional<OutputFile> file;
  };

  std::string path;
  std::string folder, stem;  ///< of the files to write
  uint64_t max_shard_bytes = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<Tensor> tensors;
  std::set<std::string, std::less<>> names;
  std::vector<Shard> shards;  ///< empty until the first bytes are written
  std::optional<OutputFile> index;
  std::optional<Error> error;  ///< the first: every later call returns it
  size_t shard = 0;            ///< that is written
  size_t current = 0;          ///< tensor whose bytes come next
  uint64_t written = 0;        ///< of its bytes

  template <class... Args>
  tl::unexpected<Error> failed(fmt::format_string<Args...> format, Args&&... args) {
    return keep(Error{fmt::format("{}: {}", path, fmt::format(format, std::forward<Args>(args)...))});
  }
  tl::unexpected<Error> keep(Error found) {
    if (!error) error = std::move(found);
    return tl::make_unexpected(*error);
  }

  std::string full(const std::string& name) const { return (fs::path(folder) / name).string(); }
  std::string index_name() const { return stem + std::string(kSafetensorsIndexSuffix); }
  void divide();
  Status start();
  Status refuse_other_shards();
  Status write_header(Shard& shard);
  Expected<std::string> header(const Shard& shard);
  Status write_index();
  Status write(std::span<const std::byte> bytes);
  void skip_complete();
  Status commit();
};

/// Tensors to shards, in order: a shard ends before the tensor that would make it too large.
void SafetensorsWriter::State::divide() {
  shards.emplace_back();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Shard& last = shards.back();
    const bool fits = last.bytes <= max_shard_bytes && tensors[i].bytes <= max_shard_bytes - last.bytes;
    if (!fits && last.end > last.begin) shards.push_back({.begin = i, .end = i});
    shards.back().bytes += tensors[i].bytes;
    shards.back().end = i + 1;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1
                         ? fmt::format("{}{}", stem, kSafetensorsSuffix)
                         : fmt::format("{}-{:05}-of-{:05}{}", stem, i + 1, shards.size(), kSafetensorsSuffix);
  }
}

/// Files of an earlier model that would not be replaced would be read together with these, or instead of them.
Status SafetensorsWriter::State::refuse_other_shards() {
  std::set<std::string> mine;
  for (const Shard& s : shards) mine.insert(s.name);
  if (shards.size() > 1) mine.insert(index_name());
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    const std::string name = at->path().filename().string();
    const bool shard_name =
        name.starts_with(stem + "-") && name.find("-of-") != std::string::npos && name.ends_with(kSafetensorsSuffix);
    const bool ours = shard_name || name == index_name() || name == stem + std::string(kSafetensorsSuffix);
    if (ours && !mine.contains(name))
      return failed("{} is there from another model: it would be taken for a part of this one", quote(name));
  }
  return failure ? Status(failed("cannot list the folder: {}", failure.message())) : Status();
}

/// Divides the tensors among files, and writes all headers.
Status SafetensorsWriter::State::start() {
  if (error) return tl::make_unexpected(*error);
  if (!shards.empty()) return {};
  divide();
  if (Status done = refuse_other_shards(); !done) return done;
  for (Shard& s : shards) {
    if (Status done = write_header(s); !done) return done;
  }
  if (shards.size() > 1) {
    if (Status done = write_index(); !done) return done;
  }
  skip_complete();
  return {};
}

Status SafetensorsWriter::State::write_header(Shard& s) {
  const Expected<std::string> text = header(s);
  if (!text) return fail_with(text);
  Expected<OutputFile> file = OutputFile::create(full(s.name));
  if (!file) return keep(file.error());
  s.file = std::move(*file);
  const uint64_t length = text->size();
  if (Status done = s.file->write(std::as_bytes(std::span(&length, 1))); !done) return keep(done.error());
  if (Status done = s.file->write(bytes_of(*text)); !done) return keep(done.error());
  return {};
}

/// The header of one file, with spaces behind it so that the data begins at a multiple of 8 bytes.
Expected<std::string> SafetensorsWriter::State::header(const Shard& s) {
  std::string out = "{";
  const auto separate = [&out] { out += out.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    out += fmt::format("\"{}\":{{", kSafetensorsMetadataKey);
    for (size_t i = 0; i < metadata.size(); ++i)
      out += fmt::format("{}{}:{}", i > 0 ? "," : "", metadata[i].first, metadata[i].second);
    out += "}";
  }
  uint64_t offset = 0;
  for (size_t i = s.begin; i < s.end; ++i) {
    const Tensor& t = tensors[i];
    separate();
    out += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", t.name, t.dtype,
                       fmt::join(t.shape, ","), offset, offset + t.bytes);
    offset += t.bytes;
  }
  out += "}";
  out.resize((out.size() + 7) / 8 * 8, ' ');
  if (out.size() > kMostSafetensorsHeaderBytes)
    return failed("{}: the header would have {} bytes, the format allows {}", s.name, out.size(),
                  kMostSafetensorsHeaderBytes);
  return out;
}

/// Laid out as transformers does: two spaces, keys in order.
Status SafetensorsWriter::State::write_index() {
  Expected<OutputFile> file = OutputFile::create(full(index_name()));
  if (!file) return keep(file.error());
  index = std::move(*file);
  uint64_t total = 0;
  std::map<std::string_view, std::string_view> files;
  for (const Shard& s : shards) {
    total += s.bytes;
    for (size_t i = s.begin; i < s.end; ++i) files[tensors[i].name] = s.name;
  }
  std::string out = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  const char* separator = "";
  for (const auto& [tensor, name] : files) {
    out += fmt::format("{}\n    {}: \"{}\"", separator, tensor, name);
    separator = ",";
  }
  out += "\n  }\n}\n";
  if (Status done = index->write(bytes_of(out)); !done) return keep(done.error());
  return {};
}

Status SafetensorsWriter::State::write(std::span<const std::byte> bytes) {
  if (Status done = shards[shard].file->write(bytes); !done) return keep(done.error());
  written += bytes.size();
  skip_complete();
  return {};
}

/// Passes over tensors whose bytes are all there, and from shard to shard with them.
void SafetensorsWriter::State::skip_complete() {
  while (current < tensors.size() && written == tensors[current].bytes) {
    ++current;
    written = 0;
  }
  while (shard + 1 < shards.size() && current >= shards[shard].end) ++shard;
}

/// Renames everything, the index last: until it is there, nobody takes the shards for a model. When one cannot be
/// renamed, those that were are removed.
Status SafetensorsWriter::State::commit() {
  std::vector<std::string> committed;
  const auto commit_one = [&](OutputFile& file, const std::string& name) -> Status {
    if (Status done = file.commit(); !done) {
      std::error_code ignored;
      for (const std::string& other : committed) fs::remove(full(other), ignored);
      return keep(done.error());
    }
    committed.push_back(name);
    return {};
  };
  for (Shard& s : shards) {
    if (Status done = commit_one(*s.file, s.name); !done) return done;
  }
  return index ? commit_one(*index, index_name()) : Status();
}

Expected<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, uint64_t max_shard_bytes) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->max_shard_bytes = max_shard_bytes;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    state->folder = path;
    state->stem = "model";
    return SafetensorsWriter(std::move(state));
  }
  const std::string name = fs::path(path).filename().string();
  if (!name.ends_with(kSafetensorsSuffix) || name.size() == kSafetensorsSuffix.size())
    return fail("{}: wanted an existing folder or a name that ends in {}", path, kSafetensorsSuffix);
  const fs::path parent = fs::path(path).parent_path();
  state->folder = parent.empty() ? "." : parent.string();
  state->stem = name.substr(0, name.size() - kSafetensorsSuffix.size());
  if (!fs::is_directory(state->folder, ignored)) return fail("{}: {} is not a folder", path, quote(state->folder));
  if (json_string(state->stem).empty()) return fail("{}: its name is not UTF-8", path);
  return SafetensorsWriter(std::move(state));
}

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::set_metadata(std::string_view key, std::string_view value) {
  State& s = *state_;
  if (!s.shards.empty()) return void(s.failed("key {}: set after the first tensor was written", quote(key)));
  std::string json_key = json_string(key), json_value = json_string(value);
  if (json_key.empty() || json_value.empty()) return void(s.failed("key {}: it or its value is not UTF-8", quote(key)));
  const auto same = [&](const auto& pair) { return pair.first == json_key; };
  const auto found = std::find_if(s.metadata.begin(), s.metadata.end(), same);
  if (found != s.metadata.end()) return void(found->second = std::move(json_value));
  s.metadata.emplace_back(std::move(json_key), std::move(json_value));
}

Status SafetensorsWriter::add_tensor(std::string_view name, std::string_view dtype, std::span<const int64_t> shape) {
  State& s = *state_;
  if (s.error) return tl::make_unexpected(*s.error);
  if (!s.shards.empty()) return s.failed("tensor {}: declared after the first tensor was written", quote(name));
  if (name.empty() || name == kSafetensorsMetadataKey)
    return s.failed("{} cannot be the name of a tensor", quote(name));
  const Expected<uint64_t> bytes = safetensors_tensor_bytes(dtype, shape);
  if (!bytes) return s.failed("tensor {}: {}", quote(name), bytes.error().message);
  std::string json_name = json_string(name);
  if (json_name.empty()) return s.failed("tensor {}: its name is not UTF-8", quote(name));
  if (!s.names.emplace(name).second) return s.failed("tensor {}: declared twice", quote(name));
  s.tensors.push_back({std::move(json_name), std::string(dtype), {shape.begin(), shape.end()}, *bytes});
  return {};
}

Status SafetensorsWriter::write_tensor(std::span<const std::byte> piece) {
  State& s = *state_;
  if (Status done = s.start(); !done) return done;
  if (piece.empty()) return {};
  if (s.current == s.tensors.size()) return s.failed("{} bytes more than the declared tensors have", piece.size());
  const State::Tensor& tensor = s.tensors[s.current];
  if (piece.size() > tensor.bytes - s.written)
    return s.failed("tensor {}: wanted {} bytes, got {}", tensor.name, tensor.bytes, s.written + piece.size());
  return s.write(piece);
}

Status SafetensorsWriter::finish() {
  State& s = *state_;
  if (Status done = s.start(); !done) return done;
  if (s.current < s.tensors.size())
    return s.failed("tensor {}: wanted {} bytes, got {}", s.tensors[s.current].name, s.tensors[s.current].bytes,
                    s.written);
  return s.commit();
}

}  // namespace octalane
