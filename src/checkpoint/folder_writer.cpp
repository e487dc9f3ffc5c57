#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/additive_tensors.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_names.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/writer_backend.h"
#include "files/quote.h"
#include "files/safetensors.h"

namespace octalane {
namespace {

namespace fs = std::filesystem;

/// The safetensors type of a part's elements, and how many bytes one has.
struct Element {
  std::string_view dtype;
  int bytes;
};
Element element_of(const Format& format, const FormatPart& part) {
  if (part.suffix == "weight") return {"U32", 4};
  if (part.bytes == 1) return {"U8", 1};
  if (part.bytes == 4) return {"F32", 4};
  return {format.spec.scale.type == ScaleType::f16 ? "F16" : "BF16", 2};
}

Json quantization_of(const Format& format) {
  const std::string_view name = format.name.substr(std::string_view("mlx-").size());
  return {{"group_size", format.block},
          {"bits", format.parts[0].bytes * 8 / format.block},
          {"mode", name.starts_with("affine") ? "affine" : std::string(name)}};
}

class FolderBackend : public CheckpointWriter::Backend {
 public:
  FolderBackend(std::string path, std::string work, SafetensorsWriter writer, GgufFile metadata)
      : path_(std::move(path)), work_(std::move(work)), writer_(std::move(writer)), metadata_(std::move(metadata)) {
    writer_->set_metadata("format", "mlx");
  }
  ~FolderBackend() override {
    writer_.reset();
    std::error_code ignored;
    if (!work_.empty()) fs::remove_all(work_, ignored);
  }

  Status add(std::string_view role, const Format& format, std::span<const int64_t> shape) override {
    if (role == "rope_freqs.weight") {  // part of config.json there
      tensors_.push_back({&format, shape[0], 1, true});
      return {};
    }
    const std::string name = path_of_role(role);
    if (name.empty()) return fail("{}: has no place in a model folder", quote(role));
    if (!can_hold(Container::folder, format)) return fail("{}: {} has no place in a model folder", name, format.name);
    roles_.emplace(role);
    int64_t rows = 1;
    for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
    if (format.additive != nullptr) {
      if (const Status added = add_additive(name, format, rows, shape[0]); !added) return added;
    }
    tensors_.push_back({&format, shape[0], rows});
    if (format.additive != nullptr) return {};
    std::vector<int64_t> outer(shape.rbegin(), shape.rend());
    if (format.parts.empty()) {
      if (shape.size() > 1) dense_.push_back(name);
      std::string dtype(format.name);
      std::ranges::transform(dtype, dtype.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
      return writer_->add_tensor(name, dtype, outer);
    }
    const std::string path = name.substr(0, name.rfind('.'));
    for (const FormatPart& part : format.parts) {
      const Element element = element_of(format, part);
      std::vector<int64_t> dims = outer;
      dims.back() = shape[0] / format.block * part.bytes / element.bytes;
      if (part.per_matrix) dims = {};
      const Status added = writer_->add_tensor(fmt::format("{}.{}", path, part.suffix), element.dtype, dims);
      if (!added) return added;
    }
    layers_.emplace_back(path, &format);
    return {};
  }

  Status add(std::string_view role, uint32_t, std::span<const int64_t>) override {
    return fail("{}: its type has no place in a model folder", quote(role));
  }

  Status write(const AdditiveMatrix& matrix) override {
    if (current_ == tensors_.size()) return fail("{}: a matrix more than were declared", path_);
    const Tensor& tensor = tensors_[current_];
    const AdditiveLayout* layout = tensor.format->additive;
    if (layout == nullptr || row_ != 0) return fail("{}: wanted rows of {}", path_, tensor.format->name);
    if (matrix.shape != layout->shape || matrix.rows != tensor.rows || matrix.cols != tensor.cols) {
      return fail("{}: wanted a matrix of {} x {} in {}, got {} x {} or another shape of codebooks", path_, tensor.rows,
                  tensor.cols, tensor.format->name, matrix.rows, matrix.cols);
    }
    if (const Status sound = check_additive(matrix); !sound) return fail("{}: {}", path_, sound.error().message);
    for (const std::vector<std::byte>& part : additive_parts(*layout, matrix)) {
      if (const Status done = writer_->write_tensor(part); !done) return done;
    }
    ++current_;
    return {};
  }

  Status write(std::span<const std::byte> rows) override {
    while (!rows.empty()) {
      if (current_ == tensors_.size()) return fail("{}: {} bytes more than were declared", path_, rows.size());
      const Tensor& tensor = tensors_[current_];
      if (tensor.format->additive != nullptr) {
        return fail("{}: wanted a whole matrix of {}, got rows", path_, tensor.format->name);
      }
      const auto row_bytes = static_cast<size_t>(tensor.format->row_bytes(tensor.cols));
      const size_t left = row_bytes * static_cast<size_t>(tensor.rows - row_);
      const std::span<const std::byte> now = rows.first(std::min(rows.size(), left));
      if (row_bytes == 0 || now.size() % row_bytes != 0) return fail("{}: wanted whole rows", path_);
      if (const Status done = write_rows(tensor, now); !done) return done;
      rows = rows.subspan(now.size());
    }
    return {};
  }

  Status finish() override {
    if (current_ != tensors_.size()) return fail("{}: rows are missing", path_);
    const Expected<Json> config = make_config();
    if (!config) return fail_with(config);
    const Expected<TokenizerFiles> tokenizer = tokenizer_files(metadata_);
    if (!tokenizer) return fail_with(tokenizer);
    Json whole = *config;
    whole["bos_token_id"] = tokenizer->bos_token_id;
    whole["eos_token_id"] = tokenizer->eos_token_id;
    if (const Status done = write_json(work_ + "/config.json", whole); !done) return done;
    if (const Status done = write_json(work_ + "/tokenizer.json", tokenizer->tokenizer); !done) return done;
    if (const Status done = write_json(work_ + "/tokenizer_config.json", tokenizer->config); !done) return done;
    if (const Status done = writer_->finish(); !done) return done;
    writer_.reset();
    std::error_code error;
    fs::rename(work_, path_, error);
    if (error) return fail("{}: cannot put the folder in its place: {}", path_, error.message());
    work_.clear();
    return {};
  }

 private:
  struct Tensor {
    const Format* format;
    int64_t cols, rows;
    bool divisors = false;
  };

  Status add_additive(const std::string& name, const Format& format, int64_t rows, int64_t cols) {
    if (additive_ != nullptr && additive_ != &format) {
      return fail("{}: a folder holds one kind of additive codebooks, wanted {}, got {}", name, additive_->name,
                  format.name);
    }
    if (cols % format.block != 0) return fail("{}: {} columns are no whole blocks of {}", name, cols, format.name);
    additive_ = &format;
    writer_->set_metadata("format", "pt");
    for (const TensorHeader& part : additive_headers(*format.additive, rows, cols)) {
      const std::string part_name = fmt::format("{}.{}", name.substr(0, name.rfind('.')), part.suffix);
      if (const Status added = writer_->add_tensor(part_name, part.dtype, part.shape); !added) return added;
    }
    return {};
  }

  Status write_rows(const Tensor& tensor, std::span<const std::byte> rows) {
    const int64_t row_bytes = tensor.format->row_bytes(tensor.cols);
    const auto count = static_cast<int64_t>(rows.size()) / row_bytes;
    const std::span<const FormatPart> parts = tensor.format->parts;
    if (tensor.divisors) {
      divisors_.resize(rows.size() / sizeof(float));
      std::memcpy(divisors_.data(), rows.data(), rows.size());
    } else if (parts.empty()) {
      if (const Status done = writer_->write_tensor(rows); !done) return done;
    } else {
      if (const Status done = write_parts(tensor, rows, count); !done) return done;
    }
    row_ += count;
    if (row_ < tensor.rows) return {};
    for (const std::vector<std::byte>& part : later_) {
      if (const Status done = writer_->write_tensor(part); !done) return done;
    }
    later_.clear();
    row_ = 0;
    ++current_;
    return {};
  }

  /// The first part goes to the file, the others wait until all of it is there: they lie behind it.
  Status write_parts(const Tensor& tensor, std::span<const std::byte> rows, int64_t count) {
    const std::span<const FormatPart> parts = tensor.format->parts;
    const int64_t blocks = tensor.cols / tensor.format->block;
    later_.resize(parts.size() - 1);
    std::vector<std::byte> first(static_cast<size_t>(count * blocks * parts[0].bytes));
    for (size_t p = 1; p < parts.size(); ++p) {
      const int64_t size = parts[p].per_matrix ? parts[p].bytes : (row_ + count) * blocks * parts[p].bytes;
      later_[p - 1].resize(static_cast<size_t>(size));
    }
    for (int64_t r = 0; r < count; ++r) {
      std::array<std::byte*, kMaxParts> to{first.data() + r * blocks * parts[0].bytes};
      for (size_t p = 1; p < parts.size(); ++p) {
        to[p] = later_[p - 1].data() + (parts[p].per_matrix ? 0 : (row_ + r) * blocks * parts[p].bytes);
      }
      split_row(*tensor.format, rows.data() + r * tensor.format->row_bytes(tensor.cols), tensor.cols, to);
    }
    return writer_->write_tensor(first);
  }

  Expected<Json> make_config() const {
    const bool tied = !roles_.contains("output.weight"), bias = roles_.contains("blk.0.attn_q.bias");
    Expected<Json> config = config_of(metadata_, tied, bias, divisors_);
    if (!config) return config;
    if (!layers_.empty()) set_mlx_config(*config);
    if (additive_ != nullptr) set_additive_config(*additive_, dense_, *config);
    return config;
  }

  void set_mlx_config(Json& config) const {
    // The format of most layers is the rule, others are exceptions.
    const Format* usual = std::ranges::max(layers_, {}, [&](const auto& layer) {
                            return std::ranges::count(layers_, layer.second, &Layer::second);
                          }).second;
    Json quantization = quantization_of(*usual);
    for (const auto& [path, format] : layers_) {
      if (format != usual) quantization[path] = quantization_of(*format);
    }
    config["quantization"] = quantization;
    config["quantization_config"] = quantization;
  }

  using Layer = std::pair<std::string, const Format*>;

  std::string path_, work_;  ///< the folder as it will be, and where it is made
  std::optional<SafetensorsWriter> writer_;
  GgufFile metadata_;
  std::vector<Tensor> tensors_;
  std::vector<Layer> layers_;
  const Format* additive_ = nullptr;  ///< of all layers with additive codebooks
  std::vector<std::string> dense_;    ///< matrices without scales
  std::set<std::string, std::less<>> roles_;
  std::vector<float> divisors_;
  size_t current_ = 0;
  int64_t row_ = 0;
  std::vector<std::vector<std::byte>> later_;
};

}  // namespace

Expected<std::unique_ptr<CheckpointWriter::Backend>> make_folder_backend(const std::string& path, GgufFile metadata) {
  std::error_code error;
  std::string place = path;
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  if (fs::exists(place, error) && !(fs::is_directory(place, error) && fs::is_empty(place, error))) {
    return fail("{}: wanted a new or empty folder to write to, got one that is in use", path);
  }
  std::string work = place + ".XXXXXX";
  if (::mkdtemp(work.data()) == nullptr) return fail("{}: cannot make a folder: {}", path, std::strerror(errno));
  fs::permissions(work, fs::perms(0755), error);
  Expected<SafetensorsWriter> writer = SafetensorsWriter::create(work);
  if (!writer) {
    fs::remove_all(work, error);
    return fail_with(writer);
  }
  return std::make_unique<FolderBackend>(place, work, std::move(*writer), std::move(metadata));
}

}  // namespace octalane
