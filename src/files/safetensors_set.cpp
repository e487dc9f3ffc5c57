// A model in one or several safetensors files.
#include <algorithm>
#include <filesystem>
#include <set>

#include "files/quote.h"
#include "files/safetensors_state.h"

namespace octalane {
namespace {

namespace fs = std::filesystem;

struct SeriesName {
  std::string_view stem;
  uint64_t number = 0, count = 0;
};

/// The parts of STEM-00001-of-00002.safetensors; a count of 0 for any other name.
SeriesName series_name(std::string_view name) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  name.remove_suffix(kSafetensorsSuffix.size());
  if (name.size() < kTail) return {};
  const std::string_view tail = name.substr(name.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return {};
  const auto number = [](std::string_view digits) {
    uint64_t value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return uint64_t{0};
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return value;
  };
  return {name.substr(0, name.size() - kTail), number(tail.substr(1, kDigits)), number(tail.substr(kTail - kDigits))};
}

/// The safetensors files of a folder without an index, in order of name.
Expected<std::vector<std::string>> shards_by_name(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (std::string name = at->path().filename().string(); name.ends_with(kSafetensorsSuffix))
      names.push_back(std::move(name));
  }
  if (error) return fail("{}: cannot list: {}", folder, error.message());
  if (names.empty()) return fail("{}: no .safetensors file in this folder", folder);
  std::sort(names.begin(), names.end());
  if (std::find(names.begin(), names.end(), "model.safetensors") != names.end()) return {{"model.safetensors"}};
  const SeriesName first = series_name(names[0]);
  if (names.size() == 1 && first.count == 0) return names;
  for (size_t i = 0; i < names.size(); ++i) {
    const SeriesName shard = series_name(names[i]);
    if (shard.count == 0 || shard.stem != first.stem || shard.count != first.count)
      return fail("{}: {} and {} are not shards of one model, and there is no model{}", folder, quote(names[0]),
                  quote(names[i]), kSafetensorsIndexSuffix);
    if (shard.number != i + 1) return fail("{}: shard {} of {} is missing", folder, i + 1, first.count);
  }
  if (names.size() != first.count) return fail("{}: shard {} of {} is missing", folder, names.size() + 1, first.count);
  return names;
}

}  // namespace

struct SafetensorsSet::State {
  std::string path;
  std::vector<SafetensorsFile> shards;
  std::vector<SafetensorsTensor> tensors;
  std::vector<size_t> shard_of;  ///< each tensor
  NameIndex names;

  Status open_shard(const std::string& file);
  Status open_folder();
  Status open_index(const std::string& file);
  Status agree(const SafetensorsWeightMap& map, const std::vector<std::string>& files, const std::string& index) const;
  Status index_names();
};

Status SafetensorsSet::State::open_shard(const std::string& file) {
  Expected<SafetensorsFile> shard = SafetensorsFile::open(file);
  if (!shard) return fail_with(shard);
  tensors.insert(tensors.end(), shard->tensors().begin(), shard->tensors().end());
  shard_of.resize(tensors.size(), shards.size());
  shards.push_back(std::move(*shard));
  return {};
}

Status SafetensorsSet::State::open_folder() {
  const std::string index = (fs::path(path) / fmt::format("model{}", kSafetensorsIndexSuffix)).string();
  std::error_code ignored;
  if (fs::exists(index, ignored)) return open_index(index);
  const Expected<std::vector<std::string>> files = shards_by_name(path);
  if (!files) return fail_with(files);
  for (const std::string& name : *files) {
    if (Status done = open_shard((fs::path(path) / name).string()); !done) return done;
  }
  return index_names();
}

Status SafetensorsSet::State::open_index(const std::string& file) {
  const Expected<MappedFile> mapping = MappedFile::open(file);
  if (!mapping) return fail_with(mapping);
  const auto bytes = mapping->bytes();
  const Expected<SafetensorsWeightMap> map =
      parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
  if (!map) return fail_with(map);
  std::set<std::string> unique;
  for (const auto& [tensor, shard] : *map) unique.insert(shard);
  const std::vector<std::string> files(unique.begin(), unique.end());
  for (const std::string& name : files) {
    if (Status done = open_shard((fs::path(path) / name).string()); !done) return done;
  }
  if (Status done = index_names(); !done) return done;
  return agree(*map, files, file);
}

/// Every tensor is where the index says, and the index says it of every tensor.
Status SafetensorsSet::State::agree(const SafetensorsWeightMap& map, const std::vector<std::string>& files,
                                    const std::string& index) const {
  for (const auto& [tensor, file] : map) {
    const size_t i = names.find(tensor);
    if (i == NameIndex::none) return fail("{}: tensor {} is not in {}", index, quote(tensor), quote(file));
    if (const std::string& found = files[shard_of[i]]; found != file)
      return fail("{}: tensor {}: wanted in {}, found in {}", index, quote(tensor), quote(file), quote(found));
  }
  if (map.size() == tensors.size()) return {};
  std::set<std::string_view> mapped;
  for (const auto& [tensor, file] : map) mapped.insert(tensor);
  const auto extra =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return !mapped.contains(t.name); });
  const auto i = static_cast<size_t>(extra - tensors.begin());
  return fail("{}: tensor {}, found in {}, is not in its weight_map", index, quote(extra->name),
              quote(files[shard_of[i]]));
}

Status SafetensorsSet::State::index_names() {
  std::vector<std::string_view> all;
  for (const SafetensorsTensor& tensor : tensors) all.push_back(tensor.name);
  const auto [first, second] = names.build(std::move(all));
  if (first == second) return {};
  return fail("{}: tensor {} is there twice; the first is in {}", shards[shard_of[second]].path(),
              quote(tensors[second].name), shards[shard_of[first]].path());
}

Expected<SafetensorsSet> SafetensorsSet::open(const std::string& path) {
  auto state = std::make_shared<State>();
  state->path = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (const Status done = state->open_folder(); !done) return fail_with(done);
  } else {
    if (const Status done = state->open_shard(path); !done) return fail_with(done);
    if (const Status done = state->index_names(); !done) return fail_with(done);
  }
  return SafetensorsSet(std::move(state));
}

SafetensorsSet::SafetensorsSet(std::shared_ptr<const State> state) : state_(std::move(state)) {}

uint64_t SafetensorsSet::file_bytes() const {
  uint64_t sum = 0;
  for (const SafetensorsFile& shard : state_->shards) sum += shard.file_bytes();
  return sum;
}
const std::string& SafetensorsSet::path() const { return state_->path; }
std::span<const SafetensorsFile> SafetensorsSet::shards() const { return state_->shards; }
std::span<const SafetensorsTensor> SafetensorsSet::tensors() const { return state_->tensors; }

const SafetensorsTensor* SafetensorsSet::find_tensor(std::string_view name) const {
  const size_t i = state_->names.find(name);
  return i == NameIndex::none ? nullptr : &state_->tensors[i];
}

std::span<const SafetensorsMetadata> SafetensorsSet::metadata() const {
  return state_->shards.empty() ? std::span<const SafetensorsMetadata>() : state_->shards[0].metadata();
}

void SafetensorsSet::release(const SafetensorsTensor& tensor) const {
  // Only the shard that maps these bytes does anything.
  for (const SafetensorsFile& shard : state_->shards) shard.release(tensor);
}

}  // namespace octalane
