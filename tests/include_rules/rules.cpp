#include "include_rules/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <span>
#include <sstream>

#include "formats/format.h"
#include "kernels/registry.h"

namespace octalane::test {
namespace {

/// A room and the rooms whose headers it may include beside its own.
struct Room {
  std::string_view name;
  std::vector<std::string_view> may_include;
};

const std::vector<Room>& rooms() {
  static const std::vector<Room> all = {
      {"core", {}},
      {"files", {"core"}},
      {"formats", {"core"}},
      {"additive", {"core", "formats"}},
      {"checkpoint", {"core", "files", "formats"}},
      {"weights", {"core"}},
      {"kernels", {"core"}},
      {"plan", {"core", "kernels"}},
      {"linear", {"core", "formats", "weights", "plan", "kernels"}},
      {"probe", {"core", "files", "formats", "weights", "kernels", "plan", "linear", "cuda"}},
      {"cuda", {"core", "weights"}},
      {"model", {"core", "files", "formats", "checkpoint", "linear", "kernels"}},
      {"gate", {"core", "files", "formats", "checkpoint", "linear", "model", "kernels"}},
      {"api", {"core", "files", "formats", "checkpoint", "linear", "probe", "gate", "kernels", "octalane"}},
      {"cli",
       {"core", "files", "formats", "additive", "checkpoint", "weights", "kernels", "plan", "linear", "probe", "cuda",
        "model", "gate", "octalane"}},
  };
  return all;
}

/// What other rooms may know of kernels/.
constexpr std::string_view kContract[] = {"kernels/kernel.h", "kernels/registry.h"};

/// Loops that the flagged sources of several instruction sets share: inline or local, every line of it.
constexpr std::string_view kSharedLoops[] = {"kernels/probe_loops.h", "kernels/tiles/"};

/// Standard headers of code that is built for one instruction set: none that brings templates or inline functions, for
/// the linker may keep that code's copy of them for everyone.
constexpr std::string_view kPlainHeaders[] = {"cstddef", "cstdint"};

bool contains(std::span<const std::string_view> list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string_view first_folder(std::string_view path) { return path.substr(0, path.find('/')); }

std::string without_comments(std::string_view text) {
  static const std::regex comments(R"(//[^\n]*|/\*[\s\S]*?\*/)");
  return std::regex_replace(std::string(text), comments, "");
}

bool is_device_header(const std::string& header) {
  static const std::regex device(R"(.*intrin\.h|arm_.*\.h|cuda.*|hip/.*|vulkan/.*|cpuid\.h|nvml\.h)");
  return std::regex_match(header, device);
}

/// Names of formats, but those that are also names of number types, and block structs named after formats.
const std::regex& format_names() {
  static const std::regex names = [] {
    std::string any;
    for (const Format* format : formats()) {
      if (!format->spec.code.is_float()) any += fmt::format("{}{}", any.empty() ? "" : "|", format->name);
    }
    return std::regex(fmt::format(R"(\b({0}|block_({0}))\b)", any), std::regex::icase);
  }();
  return names;
}

/// Where one file of src/ stands: room, and in kernels/ the instruction set and whether it is built for that alone.
struct Place {
  std::string_view room;
  std::string_view isa;
  bool flagged = false;
};

Place place_of(std::string_view path_in_src) {
  Place place{.room = first_folder(path_in_src), .isa = {}};
  if (place.room != "kernels") return place;
  const std::string_view rest = path_in_src.substr(place.room.size() + 1);
  if (rest.find('/') == std::string_view::npos) return place;
  place.isa = first_folder(rest);
  const std::string_view file = rest.substr(place.isa.size() + 1);
  place.flagged = place.isa != "scalar" && file != "table.cpp" && file != "device.cpp";
  return place;
}

std::string why_not_quoted(const Place& place, std::string_view header) {
  const std::string_view to = first_folder(header);
  const std::string own_isa = fmt::format("kernels/{}/", place.isa);
  if (!place.isa.empty() && to == "kernels") {
    const auto begins = [&](std::string_view start) { return header.starts_with(start); };
    if (begins(own_isa) || header == kContract[0] || std::ranges::any_of(kSharedLoops, begins)) return {};
    // An instruction set is built with the flags of what it extends.
    for (const IsaTable* isa = find_isa(place.isa); isa != nullptr && isa->extends != nullptr;) {
      if (begins(fmt::format("kernels/{}/", isa->extends))) return {};
      isa = find_isa(isa->extends);
    }
    if (!place.flagged && header.substr(to.size() + 1).find('/') == std::string_view::npos) return {};
    return "an instruction set includes core/, the contract, shared loops, its own folder and those of what it extends";
  }
  if (to == place.room) {
    if (to == "kernels" && header.substr(8).find('/') != std::string_view::npos)
      return "kernels/ names an instruction set";
    return {};
  }
  const auto room = std::find_if(rooms().begin(), rooms().end(), [&](const Room& r) { return r.name == place.room; });
  if (room == rooms().end()) return fmt::format("{}/ is no room", place.room);
  if (!contains(room->may_include, to)) return fmt::format("{}/ may not include {}/", place.room, to);
  if (to == "kernels" && !contains(kContract, header)) return "only the contract of kernels/ may be included";
  return {};
}

std::string why_not_angled(const Place& place, const std::string& header) {
  if (is_device_header(header)) return place.isa.empty() ? "device headers belong in kernels/<isa>/" : "";
  if (place.flagged && !contains(kPlainHeaders, header))
    return "standard templates in code built for one instruction set";
  return {};
}

}  // namespace

std::vector<std::string> violations(std::string_view path, std::string_view text) {
  std::vector<std::string> found;
  const std::string code = without_comments(text);
  const bool is_public = path.starts_with("include/");
  const Place place = is_public ? Place{.room = "octalane", .isa = {}} : place_of(path.substr(path.find('/') + 1));
  const auto report = [&](std::string_view what, std::string_view why) {
    if (!why.empty()) found.push_back(fmt::format("{}: {}: {}", path, what, why));
  };

  static const std::regex include(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string header = match[2];
    if (match[1] == "<") {
      report(header, why_not_angled(place, header));
    } else if (is_public) {
      report(header, first_folder(header) == "octalane" ? "" : "public headers include only their own");
    } else if (header.find('/') != std::string::npos) {  // others are generated into the build folder
      report(header, why_not_quoted(place, header));
    }
  }

  const bool names_formats =
      place.room == "files" || place.room == "formats" || place.room == "checkpoint" || place.room == "cli";
  std::smatch match;
  if (!names_formats && !is_public && std::regex_search(code, match, format_names())) {
    report(match.str(), "file formats are named in files/, formats/, checkpoint/ and cli/ only");
  }
  return found;
}

}  // namespace octalane::test
