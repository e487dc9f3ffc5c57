#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace octalane::cli {
namespace {

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](auto cell) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string spaces(widths[c] - cell(c).size(), ' ');
      const bool right = columns_[c].align == Align::right;
      text += fmt::format("{}{}{}{}", c == 0 ? "" : "  ", right ? spaces : "", cell(c), right ? "" : spaces);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) line([&](size_t c) { return row[c]; });
  return out;
}

std::string Table::markdown() const {
  std::string out;
  const auto line = [&](auto cell) {
    for (size_t c = 0; c < columns_.size(); ++c) out += fmt::format("| {} ", cell(c));
    out += "|\n";
  };
  line([&](size_t c) { return columns_[c].title; });
  line([&](size_t c) { return columns_[c].align == Align::right ? "---:" : "---"; });
  for (const auto& row : rows_) line([&](size_t c) { return row[c]; });
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto line = [&](auto cell) {
    for (size_t c = 0; c < columns_.size(); ++c) out += fmt::format("{}{}", c == 0 ? "" : ",", csv_cell(cell(c)));
    out += "\n";
  };
  line([&](size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) line([&](size_t c) { return row[c]; });
  return out;
}

}  // namespace octalane::cli
