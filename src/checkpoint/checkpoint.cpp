#include "checkpoint/checkpoint.h"

#include <map>

#include "files/ggml_types.h"

namespace octalane {

struct Checkpoint::State {
  explicit State(GgufFile file) : metadata(std::move(file)) {}

  GgufFile metadata;
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

}  // namespace

int64_t CheckpointTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

Checkpoint::Checkpoint(GgufFile file) {
  auto state = std::make_shared<State>(std::move(file));
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

Expected<Checkpoint> Checkpoint::open(const std::string& path) {
  Expected<GgufFile> file = GgufFile::open(path);
  if (!file) return fail_with(file);
  return Checkpoint(std::move(*file));
}

const std::string& Checkpoint::path() const { return state_->metadata.path(); }
std::string_view Checkpoint::container() const { return "gguf"; }
uint64_t Checkpoint::file_bytes() const { return state_->metadata.file_bytes(); }
const GgufFile& Checkpoint::metadata() const { return state_->metadata; }
std::span<const CheckpointTensor> Checkpoint::tensors() const { return state_->tensors; }

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  return look_up(state_->by_name, name, state_->tensors);
}

const CheckpointTensor* Checkpoint::find_role(std::string_view role) const {
  return look_up(state_->by_role, role, state_->tensors);
}

void Checkpoint::release(const CheckpointTensor& tensor) const {
  if (const GgufTensor* held = state_->metadata.find_tensor(tensor.name)) state_->metadata.release(*held);
}

}  // namespace octalane
