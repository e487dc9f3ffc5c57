#include "cli/kept_parts.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "core/fnv1a.h"
#include "files/mapped_file.h"
#include "files/output_file.h"

namespace octalane::cli {
namespace {

namespace fs = std::filesystem;

/// visit(bytes of a piece) for everything a part holds, in the order of its file. Works on a part to be read too.
template <class Part, class Visit>
void for_each_piece(Part& part, Visit visit) {
  visit(std::as_writable_bytes(std::span(&part.rel_error, 1)));
  visit(std::as_writable_bytes(std::span(&part.weighted_error, 1)));
  visit(std::as_writable_bytes(std::span(&part.rtn_error, 1)));
  visit(std::as_writable_bytes(std::span(&part.rtn_weighted_error, 1)));
  visit(std::as_writable_bytes(std::span(part.matrix.codes)));
  visit(std::as_writable_bytes(std::span(part.matrix.codebooks)));
  visit(std::as_writable_bytes(std::span(part.matrix.scales)));
}

uint64_t checksum(std::span<const std::byte> bytes) {
  Fnv1a hash;
  hash.add(bytes);
  return hash.value();
}

}  // namespace

std::optional<KeptPart> KeptParts::find(const std::string& key, const AdditiveShape& shape, int64_t rows,
                                        int64_t cols) const {
  const Expected<MappedFile> file = MappedFile::open(path(key));
  if (!file) return std::nullopt;
  KeptPart part;
  part.matrix = {shape, rows, cols, {}, {}, {}};
  part.matrix.codes.resize(static_cast<size_t>(rows * shape.code_bytes(cols)));
  part.matrix.codebooks.resize(static_cast<size_t>(shape.codebook_values()));
  part.matrix.scales.resize(static_cast<size_t>(rows * shape.groups(cols)));
  size_t size = 0;
  for_each_piece(part, [&](std::span<std::byte> piece) { size += piece.size(); });
  std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() != size + sizeof(uint64_t)) return std::nullopt;
  uint64_t wanted = 0;
  std::memcpy(&wanted, bytes.data() + size, sizeof wanted);
  if (checksum(bytes.first(size)) != wanted) return std::nullopt;
  for_each_piece(part, [&](std::span<std::byte> piece) {
    std::memcpy(piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  });
  return part;
}

Status KeptParts::keep(const std::string& key, const KeptPart& part) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return fail("{}: cannot make the folder: {}", folder_, error.message());
  Expected<OutputFile> file = OutputFile::create(path(key));
  if (!file) return fail_with(file);
  KeptPart copy = part;
  std::vector<std::byte> bytes;
  for_each_piece(copy, [&](std::span<std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  const uint64_t sum = checksum(bytes);
  if (const Status done = file->write(bytes); !done) return done;
  if (const Status done = file->write(std::as_bytes(std::span(&sum, 1))); !done) return done;
  return file->commit();
}

void KeptParts::remove() const {
  std::error_code ignored;
  std::vector<fs::path> parts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (entry.path().extension() == ".part") parts.push_back(entry.path());
  }
  for (const fs::path& part : parts) fs::remove(part, ignored);
  fs::remove(folder_, ignored);  // only when it is empty
}

}  // namespace octalane::cli
