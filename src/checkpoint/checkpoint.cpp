#include "checkpoint/checkpoint.h"

#include <filesystem>
#include <map>
#include <optional>

#include "checkpoint/folder.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_tokenizer.h"
#include "files/ggml_types.h"

namespace octalane {

struct Checkpoint::State {
  explicit State(GgufFile file) : metadata(std::move(file)) {}

  std::string path;
  GgufFile metadata;
  Status model_status;
  std::optional<SafetensorsSet> files;  ///< of a folder; else everything is in `metadata`
  FolderTensors folder;                 ///< its tensors are moved to `tensors`
  std::vector<CheckpointTensor> tensors;
  std::map<std::string_view, size_t> by_name, by_role;

  void index() {
    for (size_t i = 0; i < tensors.size(); ++i) {
      by_name.emplace(tensors[i].name, i);
      if (!tensors[i].role.empty()) by_role.emplace(tensors[i].role, i);
    }
  }
};

namespace {

const CheckpointTensor* look_up(const std::map<std::string_view, size_t>& index, std::string_view name,
                                std::span<const CheckpointTensor> tensors) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &tensors[found->second];
}

/// A head beside tied embeddings is a copy that nobody multiplies with.
void drop_tied_head(const Json& config, FolderTensors& folder) {
  if (!boolean_of(member(config, "tie_word_embeddings")).value_or(false)) return;
  for (size_t i = folder.tensors.size(); i-- > 0;) {
    if (folder.tensors[i].role != "output.weight") continue;
    folder.tensors.erase(folder.tensors.begin() + static_cast<ptrdiff_t>(i));
    folder.files.erase(folder.files.begin() + static_cast<ptrdiff_t>(i));
  }
}

/// "llama3" scaling as the tensor that GGUF has for it.
Status add_rope_divisors(const Json& config, const std::string& path, FolderTensors& folder) {
  Expected<std::vector<float>> divisors = rope_divisors(config, path);
  if (!divisors) return fail_with(divisors);
  if (divisors->empty()) return {};
  const std::vector<float>& kept = folder.values.emplace_back(std::move(*divisors));
  folder.tensors.push_back({.name = "rope_freqs.weight",
                            .role = "rope_freqs.weight",
                            .type = "f32",
                            .format = find_format("f32"),
                            .shape = {static_cast<int64_t>(kept.size())},
                            .parts = {reinterpret_cast<const std::byte*>(kept.data())},
                            .bytes = kept.size() * sizeof(float)});
  folder.files.emplace_back();
  return {};
}

/// Everything that config.json and the tokenizer's files say of the model.
Status set_keys(const std::string& folder, const Json& config, FolderTensors& weights, GgufWriter& keys) {
  const std::string path = folder + "/config.json";
  if (const Status done = set_config_keys(config, path, keys); !done) return done;
  if (const Status done = add_rope_divisors(config, path, weights); !done) return done;
  return set_tokenizer_keys(folder, config, integer_of(member(config, "vocab_size")).value_or(0), keys);
}

}  // namespace

int64_t CheckpointTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

Checkpoint::Checkpoint(GgufFile file) {
  auto state = std::make_shared<State>(std::move(file));
  state->path = state->metadata.path();
  for (const GgufTensor& tensor : state->metadata.tensors()) {
    state->tensors.push_back({.name = std::string(tensor.name),
                              .role = std::string(tensor.name),
                              .type = ggml_type_name(tensor.ggml_type),
                              .format = find_ggml_format(tensor.ggml_type),
                              .shape = tensor.shape,
                              .parts = {tensor.data},
                              .bytes = tensor.bytes});
  }
  state->index();
  state_ = std::move(state);
}

Expected<Checkpoint> Checkpoint::open_safetensors(const std::string& path) {
  Expected<SafetensorsSet> files = SafetensorsSet::open(path);
  if (!files) return fail_with(files);
  const std::filesystem::path place(path);
  const std::string folder = std::filesystem::is_directory(place) ? path : place.parent_path().string();
  Json config = Json::object();
  if (const std::string file = folder.empty() ? "config.json" : folder + "/config.json";
      std::filesystem::exists(file)) {
    Expected<Json> read = read_json(file);
    if (!read) return fail_with(read);
    config = std::move(*read);
  }
  Expected<FolderTensors> tensors = folder_tensors(*files, config);
  if (!tensors) return fail("{}: {}", path, tensors.error().message);
  drop_tied_head(config, *tensors);

  GgufWriter keys = GgufWriter::in_memory(path);
  Status model_status = set_keys(folder.empty() ? "." : folder, config, *tensors, keys);
  Expected<GgufFile> metadata = keys.take();
  if (!metadata && model_status) model_status = fail_with(metadata);
  if (!metadata) metadata = GgufWriter::in_memory(path).take();
  if (!metadata) return fail_with(metadata);

  auto state = std::make_shared<State>(std::move(*metadata));
  state->path = path;
  state->model_status = std::move(model_status);
  state->files = std::move(*files);
  state->folder = std::move(*tensors);
  state->tensors = std::move(state->folder.tensors);
  state->index();
  return Checkpoint(std::move(state));
}

Checkpoint::Checkpoint(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Expected<Checkpoint> Checkpoint::open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored) || path.ends_with(".safetensors")) return open_safetensors(path);
  Expected<GgufFile> file = GgufFile::open(path);
  if (!file) return fail_with(file);
  return Checkpoint(std::move(*file));
}

const std::string& Checkpoint::path() const { return state_->path; }
std::string_view Checkpoint::container() const { return state_->files ? "safetensors" : "gguf"; }
uint64_t Checkpoint::file_bytes() const {
  return state_->files ? state_->files->file_bytes() : state_->metadata.file_bytes();
}
const GgufFile& Checkpoint::metadata() const { return state_->metadata; }
const Status& Checkpoint::model_status() const { return state_->model_status; }
std::span<const CheckpointTensor> Checkpoint::tensors() const { return state_->tensors; }

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  return look_up(state_->by_name, name, state_->tensors);
}

const CheckpointTensor* Checkpoint::find_role(std::string_view role) const {
  return look_up(state_->by_role, role, state_->tensors);
}

void Checkpoint::release(const CheckpointTensor& tensor) const {
  if (!state_->files) {
    if (const GgufTensor* held = state_->metadata.find_tensor(tensor.name)) state_->metadata.release(*held);
    return;
  }
  const auto found = state_->by_name.find(tensor.name);
  if (found == state_->by_name.end()) return;
  for (const SafetensorsTensor* file : state_->folder.files[found->second]) state_->files->release(*file);
}

}  // namespace octalane
