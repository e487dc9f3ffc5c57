#include "files/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "files/mapped_file.h"
#include "files/output_file.h"
#include "files/quote.h"

namespace octalane {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in the file");

constexpr std::string_view kMagic = "\x93NUMPY";

/// What the header says: a Python dictionary with exactly these three keys.
struct NpyHeader {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

/// Reads the dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". Every step returns false at
/// the first byte that does not fit.
class HeaderScanner {
 public:
  explicit HeaderScanner(std::string_view text) : text_(text) {}

  bool scan(NpyHeader& header) {
    if (!accept('{')) return false;
    while (!accept('}')) {
      std::string_view key;
      if (!text(key) || !accept(':') || !value(key, header)) return false;
      if (!accept(',')) return accept('}') && at_end();
    }
    return at_end();
  }
  size_t at() const { return at_; }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool text(std::string_view& out) {
    const char mark = accept('\'') ? '\'' : '"';
    if (mark == '"' && !accept('"')) return false;
    const size_t end = text_.find(mark, at_);
    if (end == text_.npos) return false;
    out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }
  bool value(std::string_view key, NpyHeader& header) {
    if (key == "descr" && !header.descr) return text(header.descr.emplace());
    if (key == "fortran_order" && !header.fortran_order) {
      header.fortran_order = accept("True");
      return *header.fortran_order || accept("False");
    }
    return key == "shape" && !header.shape && shape(header.shape.emplace());
  }
  bool shape(std::vector<int64_t>& dims) {
    if (!accept('(')) return false;
    while (!accept(')')) {
      skip_space();
      int64_t& dim = dims.emplace_back();
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), dim);
      if (error != std::errc{} || dim < 0) return false;
      at_ += static_cast<size_t>(end - begin);
      accept('L');  // Python 2 wrote its long integers so
      if (!accept(',')) return accept(')');
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

struct HeaderPlace {
  size_t begin, size;
};

Expected<HeaderPlace> find_header(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic))
    return fail("{}: byte 0: wanted the magic string of .npy files, got {}", name,
                quote(text.substr(0, kMagic.size())));
  constexpr size_t kVersionAt = kMagic.size(), kSizeAt = kVersionAt + 2;
  const int version = bytes.size() > kVersionAt ? static_cast<int>(bytes[kVersionAt]) : 0;
  if (version < 1 || version > 3)
    return fail("{}: byte {}: wanted .npy version 1, 2 or 3, got {}", name, kVersionAt, version);
  const size_t size_bytes = version == 1 ? 2 : 4;
  uint32_t size = 0;
  if (bytes.size() < kSizeAt + size_bytes) return fail("{}: the file ends at byte {}", name, bytes.size());
  std::memcpy(&size, bytes.data() + kSizeAt, size_bytes);
  const size_t begin = kSizeAt + size_bytes;
  if (size > bytes.size() - begin)
    return fail("{}: byte {}: a header of {} bytes, the file has {} left", name, kSizeAt, size, bytes.size() - begin);
  return HeaderPlace{begin, size};
}

/// Rows and columns, whose product fits in int64 even where one is 0.
Expected<std::array<int64_t, 2>> matrix_shape(const std::vector<int64_t>& shape, const std::string& where) {
  if (shape.empty() || shape.size() > 2) return fail("{}: wanted 1 or 2 dimensions, got {}", where, shape.size());
  const std::array<int64_t, 2> dims{shape.size() == 2 ? shape[0] : 1, shape.back()};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(float));
  if (dims[1] > kMost / std::max<int64_t>(dims[0], 1))
    return fail("{}: a shape of {} x {} overflows", where, dims[0], dims[1]);
  return dims;
}

void copy_transposed(const std::byte* columns, Matrix& matrix) {
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const int64_t from = (c * matrix.rows + r) * static_cast<int64_t>(sizeof(float));
      std::memcpy(&matrix.values[static_cast<size_t>(r * matrix.cols + c)], columns + from, sizeof(float));
    }
  }
}

}  // namespace

Expected<Matrix> parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  const Expected<HeaderPlace> place = find_header(bytes, name);
  if (!place) return fail_with(place);
  HeaderScanner scanner({reinterpret_cast<const char*>(bytes.data()) + place->begin, place->size});
  NpyHeader header;
  if (!scanner.scan(header))
    return fail("{}: byte {}: not a header of a plain array", name, place->begin + scanner.at());
  if (!header.descr || !header.fortran_order || !header.shape)
    return fail("{}: byte {}: the header lacks {}", name, place->begin,
                !header.descr           ? "descr"
                : !header.fortran_order ? "fortran_order"
                                        : "shape");
  const std::string where = fmt::format("{}: header at byte {}", name, place->begin);
  if (*header.descr != "<f4") return fail("{}: wanted dtype \"<f4\" (float32), got {}", where, quote(*header.descr));
  const Expected<std::array<int64_t, 2>> shape = matrix_shape(*header.shape, where);
  if (!shape) return fail_with(shape);

  const std::span<const std::byte> data = bytes.subspan(place->begin + place->size);
  const auto [rows, cols] = *shape;
  const auto wanted = static_cast<uint64_t>(rows * cols) * sizeof(float);
  if (data.size() != wanted)
    return fail("{}: byte {}: {} x {} values: wanted {} bytes, got {}", name, place->begin + place->size, rows, cols,
                wanted, data.size());
  Matrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.values.resize(static_cast<size_t>(rows * cols));
  if (*header.fortran_order && header.shape->size() == 2) {
    copy_transposed(data.data(), matrix);
  } else if (!data.empty()) {
    std::memcpy(matrix.values.data(), data.data(), data.size());
  }
  return matrix;
}

Expected<Matrix> read_npy(const std::string& path) {
  const Expected<MappedFile> file = MappedFile::open(path);
  if (!file) return fail_with(file);
  return parse_npy(file->bytes(), path);
}

Status write_npy(const std::string& path, MatrixView<const float> matrix) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", matrix.rows, matrix.cols);
  constexpr size_t kDataAt = 128;  // a multiple of 64 that holds the longest header of two dimensions
  constexpr size_t kHeaderAt = kMagic.size() + 4;
  header.resize(kDataAt - kHeaderAt - 1, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(size & 0xFF), static_cast<char>(size >> 8)};
  start += header;

  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  if (Status done = file->write(std::as_bytes(std::span(start))); !done) return done;
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) row[static_cast<size_t>(c)] = matrix(r, c);
    if (Status done = file->write(std::as_bytes(std::span(row))); !done) return done;
  }
  return file->commit();
}

}  // namespace octalane
