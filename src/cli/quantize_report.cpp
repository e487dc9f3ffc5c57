#include "cli/quantize_report.h"

#include <fmt/format.h>

#include "cli/table.h"
#include "files/quote.h"

namespace octalane::cli {

void print_quantized(const Json& result) {
  const bool encoded = result.contains("resumed"), calibrated = encoded && result["calibration_tokens"] > 0;
  std::vector<Table::Column> columns{{"tensor"}, {"from"}, {"to"}, {"relative error", Table::Align::right}};
  if (encoded) columns.push_back({"rounded to 2 bits", Table::Align::right});
  if (calibrated) {
    columns.push_back({"of outputs", Table::Align::right});
    columns.push_back({"rounded to 2 bits", Table::Align::right});
  }
  columns.push_back({""});
  Table table(columns);
  const auto number = [](const Json& value) {
    return value.is_number() ? fmt::format("{:.3e}", value.get<double>()) : "";
  };
  for (const Json& tensor : result["tensors"]) {
    std::vector<std::string> row{quote(tensor["name"].get<std::string>()), tensor["from"].get<std::string>(),
                                 tensor["to"].get<std::string>(), number(tensor["rel_error"])};
    const Json rounding = tensor.value("rounding", Json::object());
    if (encoded) row.push_back(number(rounding.value("rel_error", Json())));
    if (calibrated) {
      row.push_back(number(tensor.value("weighted_error", Json())));
      row.push_back(number(rounding.value("weighted_error", Json())));
    }
    row.push_back(tensor["why"].is_null() ? "" : tensor["why"].get<std::string>());
    table.add(row);
  }
  for (const Json& key : result["not_kept"]) fmt::print("not kept: {}\n", quote(key.get<std::string>()));
  fmt::print("{}\n", table.text());
  if (calibrated) fmt::print("calibrated on {} tokens\n", result["calibration_tokens"].get<int64_t>());
  fmt::print("{}: {} bytes, from {} bytes, in {:.1f} s\n", result["output"].get<std::string>(),
             result["bytes_out"].get<uint64_t>(), result["bytes_in"].get<uint64_t>(), result["seconds"].get<double>());
}

}  // namespace octalane::cli
