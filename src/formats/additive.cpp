// Additive codebooks, in the files of CodeGEMM (https://github.com/naver-aics/codegemm) and of AQLM
// (https://github.com/Vahe1994/AQLM). Codes of a CodeGEMM file lie column by column, so a row of bytes exists in
// octalane only: its codes, then its scales. The codebooks are in no row.
#include "formats/additive.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/half.h"
#include "formats/families.h"
#include "formats/row_name.h"

namespace octalane {
namespace {

constexpr int kRowGroup = 128;  ///< of the planes where a row has one scale
constexpr int kWordCodes = 4;   ///< of a CodeGEMM word

/// Where values of an N x K matrix lie in its parts, counted in elements.
class Places {
 public:
  Places(const AdditiveLayout& layout, int64_t rows, int64_t cols)
      : layout_(layout), rows_(rows), vectors_(cols / layout.shape.vector), groups_(layout.shape.groups(cols)) {}

  int64_t code(int64_t row, int64_t vector, int64_t book) const {
    if (layout_.by_rows) return (row * vectors_ + vector) * layout_.shape.books + book;
    const int64_t word = (book * (vectors_ / kWordCodes) + vector / kWordCodes) * rows_ + row;
    return word * kWordCodes + vector % kWordCodes;
  }
  int64_t scale(int64_t row, int64_t group) const {
    return layout_.by_rows ? row * groups_ + group : group * rows_ + row;
  }

  /// visit(place in the part, place in [K / v][m]) for every code of a row.
  template <class Visit>
  void for_each_code(int64_t row, Visit visit) const {
    for (int64_t v = 0; v < vectors_; ++v) {
      for (int64_t b = 0; b < layout_.shape.books; ++b) visit(code(row, v, b), v * layout_.shape.books + b);
    }
  }

 private:
  AdditiveLayout layout_;
  int64_t rows_, vectors_, groups_;
};

template <int books, int vector, int group>
void planes_of_additive(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  constexpr AdditiveShape shape{books, vector, group};
  std::memcpy(out.codes, bytes, static_cast<size_t>(shape.code_bytes(cols)));
  const std::byte* scales = bytes + shape.code_bytes(cols);
  constexpr int plane_group = group == 0 ? kRowGroup : group;
  for (int64_t g = 0; g < (cols + plane_group - 1) / plane_group; ++g) {
    uint16_t bits = 0;
    std::memcpy(&bits, scales + (group == 0 ? 0 : 2 * g), sizeof bits);
    out.scale[g] = f16_to_f32(bits);
  }
}

constexpr RowName name_of(const AdditiveLayout& layout) {
  const AdditiveShape& shape = layout.shape;
  RowName name;
  name.add(layout.by_rows ? "aqlm-" : "additive-m");
  name.add(shape.books);
  name.add(layout.by_rows ? "x8" : "v");
  if (layout.by_rows) return name;
  name.add(shape.vector);
  name.add(shape.group == 0 ? "-row" : "-g");
  if (shape.group > 0) name.add(shape.group);
  return name;
}

template <int books, int vector, int group, bool by_rows>
constexpr AdditiveLayout layout_of{{books, vector, group}, by_rows};

template <int books, int vector, int group, bool by_rows>
constexpr RowName row_name = name_of(layout_of<books, vector, group, by_rows>);

template <int books, int vector, int group, bool by_rows = false>
constexpr Format additive() {
  return {.name = row_name<books, vector, group, by_rows>.view(),
          .block = 32,
          .spec = {.code = {.map = CodeMap::codebook, .bits = 8, .books = books, .vector = vector},
                   .scale = {.type = ScaleType::f16, .group = group == 0 ? kRowGroup : group}},
          .to_planes = planes_of_additive<books, vector, group>,
          .additive = &layout_of<books, vector, group, by_rows>};
}

constexpr int kGroups[] = {32, 64, 128, 0};

template <size_t... i>
constexpr std::array<Format, sizeof...(i) + 2> additive_rows(std::index_sequence<i...>) {
  return {additive<1 + i / 8, 4 + i / 4 % 2 * 4, kGroups[i % 4]>()..., additive<1, 8, 0, true>(),
          additive<2, 8, 0, true>()};
}

}  // namespace

namespace family {

constinit const std::array<Format, 18> additive_codebooks = additive_rows(std::make_index_sequence<16>());

}  // namespace family

const Format* find_additive_format(const AdditiveLayout& layout) {
  for (const Format* format : formats()) {
    const AdditiveLayout* own = format->additive;
    if (own != nullptr && own->shape == layout.shape && own->by_rows == layout.by_rows) return format;
  }
  return nullptr;
}

Status check_additive(const AdditiveMatrix& matrix) {
  const AdditiveShape& shape = matrix.shape;
  if (find_additive_format({shape, false}) == nullptr) {
    return fail("wanted 1 or 2 codebooks of vectors of 4 or 8 and groups of 32, 64, 128 or a row, got {} of {} and {}",
                shape.books, shape.vector, shape.group);
  }
  if (matrix.rows < 1 || matrix.cols < 1 || matrix.cols % 32 != 0) {
    return fail("wanted rows of a multiple of 32 columns, got {} x {}", matrix.rows, matrix.cols);
  }
  const auto rows = static_cast<size_t>(matrix.rows);
  const size_t codes = rows * static_cast<size_t>(shape.code_bytes(matrix.cols));
  const size_t scales = rows * static_cast<size_t>(shape.groups(matrix.cols));
  const auto values = static_cast<size_t>(shape.codebook_values());
  if (matrix.codes.size() != codes || matrix.codebooks.size() != values || matrix.scales.size() != scales) {
    return fail("{} x {}: wanted {} codes, {} values of codebooks and {} scales, got {}, {} and {}", matrix.rows,
                matrix.cols, codes, values, scales, matrix.codes.size(), matrix.codebooks.size(), matrix.scales.size());
  }
  for (const uint16_t bits : matrix.codebooks) {
    if (const float value = f16_to_f32(bits); !std::isfinite(value)) {
      return fail("codebooks: wanted finite values, got {}", value);
    }
  }
  return {};
}

std::array<std::vector<std::byte>, 3> additive_parts(const AdditiveLayout& layout, const AdditiveMatrix& matrix) {
  std::array<std::vector<std::byte>, 3> parts{std::vector<std::byte>(matrix.codes.size()),
                                              std::vector<std::byte>(2 * matrix.codebooks.size()),
                                              std::vector<std::byte>(2 * matrix.scales.size())};
  std::memcpy(parts[1].data(), matrix.codebooks.data(), parts[1].size());
  const Places places(layout, matrix.rows, matrix.cols);
  const int64_t groups = layout.shape.groups(matrix.cols);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const uint8_t* codes = matrix.codes.data() + row * layout.shape.code_bytes(matrix.cols);
    places.for_each_code(row, [&](int64_t place, int64_t index) {
      parts[0][static_cast<size_t>(place)] = static_cast<std::byte>(codes[index]);
    });
    for (int64_t g = 0; g < groups; ++g) {
      std::memcpy(parts[2].data() + 2 * places.scale(row, g), &matrix.scales[static_cast<size_t>(row * groups + g)], 2);
    }
  }
  return parts;
}

AdditiveMatrix additive_matrix(const StoredMatrix& stored, const std::function<int64_t(int64_t row)>& source) {
  const AdditiveShape& shape = stored.format->additive->shape;
  const int64_t codes = shape.code_bytes(stored.cols), groups = shape.groups(stored.cols);
  AdditiveMatrix matrix{shape, stored.rows, stored.cols, {}, {}, {}};
  matrix.codes.resize(static_cast<size_t>(stored.rows * codes));
  matrix.codebooks.resize(static_cast<size_t>(shape.codebook_values()));
  matrix.scales.resize(static_cast<size_t>(stored.rows * groups));
  std::memcpy(matrix.codebooks.data(), stored.parts[1], 2 * matrix.codebooks.size());
  std::vector<std::byte> row(static_cast<size_t>(stored.format->row_bytes(stored.cols)));
  for (int64_t r = 0; r < stored.rows; ++r) {
    stored.read_row(source ? source(r) : r, row.data());
    std::memcpy(matrix.codes.data() + r * codes, row.data(), static_cast<size_t>(codes));
    std::memcpy(matrix.scales.data() + r * groups, row.data() + codes, static_cast<size_t>(2 * groups));
  }
  return matrix;
}

void read_additive_row(const StoredMatrix& stored, int64_t row, std::byte* out) {
  const AdditiveLayout& layout = *stored.format->additive;
  const Places places(layout, stored.rows, stored.cols);
  places.for_each_code(row, [&](int64_t place, int64_t index) { out[index] = stored.parts[0][place]; });
  std::byte* scales = out + layout.shape.code_bytes(stored.cols);
  for (int64_t g = 0; g < layout.shape.groups(stored.cols); ++g) {
    std::memcpy(scales + 2 * g, stored.parts[2] + 2 * places.scale(row, g), 2);
  }
}

}  // namespace octalane
