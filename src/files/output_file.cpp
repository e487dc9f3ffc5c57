#include "files/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace octalane {

struct OutputFile::State {
  std::string path, target, temporary;
  std::FILE* file = nullptr;

  ~State() {
    if (file) std::fclose(file);
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Expected<OutputFile> OutputFile::create(const std::string& path) {
  std::string target = path;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_regular_file(path, error))
      return fail("{}: wanted a regular file to replace, got something else", path);
    target = std::filesystem::canonical(path, error).string();
    if (error) return fail("{}: cannot resolve: {}", path, error.message());
  }
  static std::atomic<unsigned> serial{0};
  std::string temporary;
  int descriptor = -1;
  do {
    temporary = fmt::format("{}.tmp-{}-{}", target, ::getpid(), serial++);
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EEXIST);
  if (descriptor < 0) return fail("{}: cannot write: {}", path, std::strerror(errno));
  auto state = std::make_unique<State>();
  state->path = path;
  state->target = std::move(target);
  state->temporary = std::move(temporary);
  state->file = ::fdopen(descriptor, "wb");
  if (!state->file) {
    ::close(descriptor);
    return fail("{}: cannot write: {}", path, std::strerror(errno));
  }
  return OutputFile(std::move(state));
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (!state_->file) return fail("{}: written after it was finished", state_->path);
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), state_->file) != bytes.size())
    return fail("{}: cannot write {} bytes: {}", state_->path, bytes.size(), std::strerror(errno));
  return {};
}

Status OutputFile::commit() {
  if (!state_->file) return fail("{}: finished twice", state_->path);
  if (std::fclose(std::exchange(state_->file, nullptr)) != 0)
    return fail("{}: cannot write: {}", state_->path, std::strerror(errno));
  if (std::rename(state_->temporary.c_str(), state_->target.c_str()) != 0)
    return fail("{}: cannot rename {} to it: {}", state_->path, state_->temporary, std::strerror(errno));
  state_->temporary.clear();
  return {};
}

}  // namespace octalane
