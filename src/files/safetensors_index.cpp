// The index of a model in shards: {"metadata": {...}, "weight_map": {"tensor": "file", ...}}.
#include "files/json_reader.h"
#include "files/quote.h"
#include "files/safetensors_state.h"

namespace octalane {
namespace {

/// Takes the weight_map and passes over everything else.
class IndexParser final : public JsonEvents {
 public:
  explicit IndexParser(const std::string& name) : name_(name) {}

  Expected<SafetensorsWeightMap> run(std::string_view text) {
    if (text.size() > kMostSafetensorsHeaderBytes)
      return fail("{}: wanted at most {} bytes, got {}", name_, kMostSafetensorsHeaderBytes, text.size());
    if (!read_json(text, *this, read_) || !unique_names()) return tl::make_unexpected(error_);
    if (!seen_) return fail("{}: it has no weight_map", name_);
    return std::move(map_);
  }

  bool open_object() override {
    if (depth_ == 1 && is_map_) in_map_ = true;
    return nested();
  }
  bool open_array() override { return nested(); }
  bool close() override {
    if (--depth_ == 1) in_map_ = is_map_ = false;
    return true;
  }
  bool key(std::string& name) override;
  bool text(std::string& value) override;
  bool natural(uint64_t) override { return scalar("a number"); }
  bool other(std::string_view what) override { return scalar(what); }
  void invalid() override { bad("not valid JSON"); }

 private:
  template <class... Args>
  bool bad(fmt::format_string<Args...> format, Args&&... args) {
    error_.message =
        fmt::format("{}: weight_map at byte {}: {}", name_, read_, fmt::format(format, std::forward<Args>(args)...));
    return false;
  }
  /// An object or array, which the text itself or the weight_map may be, but no file name.
  bool nested() {
    const bool is_value = in_map_ && depth_ >= 2;
    const bool is_other_map = depth_ == 1 && is_map_ && !in_map_;
    ++depth_;
    if (is_other_map) return bad("wanted an object, got an array");
    return !is_value || bad("tensor {}: wanted a string, got an object or array", quote(map_.back().first));
  }
  bool scalar(std::string_view what) {
    if (in_map_) return bad("tensor {}: wanted a string, got {}", quote(map_.back().first), what);
    return !(depth_ == 1 && is_map_) || bad("wanted an object, got {}", what);
  }
  bool unique_names();

  const std::string& name_;
  uint64_t read_ = 0;
  uint64_t depth_ = 0;
  bool is_map_ = false;  ///< the value of "weight_map" comes next or is being read
  bool in_map_ = false;
  bool seen_ = false;
  SafetensorsWeightMap map_;
  Error error_;
};

bool IndexParser::key(std::string& name) {
  if (in_map_) {
    map_.emplace_back(std::move(name), std::string());
    return true;
  }
  is_map_ = is_map_ || (depth_ == 1 && name == "weight_map");
  if (depth_ != 1 || !is_map_) return true;
  return !std::exchange(seen_, true) || bad("a second weight_map");
}

bool IndexParser::text(std::string& value) {
  if (!in_map_) return scalar("a string");
  // Only a plain name: an index must not reach outside its folder.
  const bool plain = !value.empty() && value != "." && value != ".." &&
                     value.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) return bad("tensor {}: {} is not the name of a file", quote(map_.back().first), quote(value));
  map_.back().second = std::move(value);
  return true;
}

bool IndexParser::unique_names() {
  std::vector<std::string_view> names;
  for (const auto& [tensor, file] : map_) names.push_back(tensor);
  const auto [first, second] = NameIndex().build(names);
  return first == second || bad("tensor {} is there twice", quote(names[second]));
}

}  // namespace

Expected<SafetensorsWeightMap> parse_safetensors_index(std::string_view text, const std::string& name) {
  return IndexParser(name).run(text);
}

}  // namespace octalane
