#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace octalane {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Expected<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a named pipe without a writer must be refused below, not waited for here.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return fail("{}: cannot open: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail("{}: wanted a regular file, got something else", path);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile();
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return fail("{}: cannot map {} bytes: {}", path, size, std::strerror(errno));
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  // As integers: pointers into different objects have no order.
  const auto address = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p); };
  const uintptr_t map_begin = address(bytes_.data()), map_end = map_begin + bytes_.size();
  const uintptr_t part_begin = address(part.data()), part_end = part_begin + part.size();
  if (part_begin < map_begin || part_end > map_end) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (part_begin + page - 1) / page * page;
  const uintptr_t end = part_end / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + (begin - map_begin), end - begin, MADV_DONTNEED);
}

}  // namespace octalane
