#include "checkpoint/writer.h"

#include "checkpoint/hf_config.h"
#include "checkpoint/writer_backend.h"
#include "files/quote.h"

namespace octalane {
namespace {

class GgufBackend : public CheckpointWriter::Backend {
 public:
  GgufBackend(GgufWriter writer, const GgufFile& metadata) : writer_(std::move(writer)) {
    for (const auto& [key, value] : metadata.metadata()) {
      if (key != kRopePairsKey) writer_.copy(key, value);
    }
  }

  Status add(std::string_view role, const Format& format, std::span<const int64_t> shape) override {
    if (!can_hold(Container::gguf, format)) return fail("{}: {} has no place in a GGUF file", quote(role), format.name);
    return add(role, static_cast<uint32_t>(format.ggml_type), shape);
  }
  Status add(std::string_view role, uint32_t ggml_type, std::span<const int64_t> shape) override {
    return writer_.add_tensor(role, ggml_type, shape);
  }
  Status write(std::span<const std::byte> rows) override { return writer_.write_tensor(rows); }
  Status write(const AdditiveMatrix&) override { return fail("additive codebooks have no place in a GGUF file"); }
  Status finish() override { return writer_.finish(); }

 private:
  GgufWriter writer_;
};

}  // namespace

bool can_hold(Container container, const Format& format) {
  if (container == Container::gguf) return format.ggml_type >= 0;
  return !format.parts.empty() || format.additive != nullptr || format.spec.code.is_float();
}

Expected<CheckpointWriter> CheckpointWriter::create(const std::string& path, Container container, GgufFile metadata) {
  if (container == Container::folder) {
    auto backend = make_folder_backend(path, std::move(metadata));
    if (!backend) return fail_with(backend);
    return CheckpointWriter(std::move(*backend));
  }
  Expected<GgufWriter> writer = GgufWriter::create(path);
  if (!writer) return fail_with(writer);
  return CheckpointWriter(std::make_unique<GgufBackend>(std::move(*writer), metadata));
}

CheckpointWriter::CheckpointWriter(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Status CheckpointWriter::add_tensor(std::string_view role, const Format& format, std::span<const int64_t> shape) {
  return backend_->add(role, format, shape);
}
Status CheckpointWriter::add_tensor(std::string_view role, uint32_t ggml_type, std::span<const int64_t> shape) {
  return backend_->add(role, ggml_type, shape);
}
Status CheckpointWriter::write(std::span<const std::byte> rows) { return backend_->write(rows); }
Status CheckpointWriter::write(const AdditiveMatrix& matrix) { return backend_->write(matrix); }
Status CheckpointWriter::finish() { return backend_->finish(); }

}  // namespace octalane
