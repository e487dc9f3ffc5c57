// The vocabularies of golden/tokenizer and what llama.cpp makes of them (record_tokenizer.py).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octalane::golden {

using nlohmann::json;

inline const std::string kFolder = OCTALANE_TEST_DATA "/model/golden/";
inline const std::string kTokenizers = kFolder + "tokenizer/";

inline json read_json(const std::string& path) { return json::parse(std::ifstream(path)); }

/// The real model; its file may be absent.
inline std::string smollm2_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache ? cache : std::string(home ? home : "") + "/.cache";
  return folder + "/octalane/SmolLM2-135M-Instruct.Q4_1.gguf";
}

inline std::string path_of(const std::string& vocabulary) {
  return vocabulary == "smollm2" ? smollm2_path() : kTokenizers + vocabulary + ".gguf";
}

struct HardString {
  std::string name, text;
};

inline std::vector<HardString> hard_strings() {
  std::vector<HardString> strings;
  for (const json& entry : read_json(kTokenizers + "hard_strings.json")) {
    HardString string{entry["name"], ""};
    if (entry.contains("hex")) {
      const std::string hex = entry["hex"];
      for (size_t i = 0; i < hex.size(); i += 2)
        string.text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    } else {
      for (int i = entry.value("repeat", 1); i > 0; --i) string.text += entry["text"].get<std::string>();
    }
    strings.push_back(std::move(string));
  }
  return strings;
}

/// FNV-1a, 64 bits, in hexadecimal.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  }
  void add(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      const char byte = static_cast<char>(value >> shift);
      add(std::string_view(&byte, 1));
    }
  }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

inline std::string hash_ids(std::span<const int32_t> ids) {
  Hash hash;
  for (const int32_t id : ids) hash.add(static_cast<uint32_t>(id));
  return hash.hex();
}

/// Ids as the recording keeps them: many are count and hash.
inline json kept(std::span<const int32_t> ids) {
  if (ids.size() <= 64) return json(std::vector<int32_t>(ids.begin(), ids.end()));
  return json{{"count", ids.size()}, {"hash", hash_ids(ids)}};
}

/// The 2,000 lines of the recording, empty where the corpus folder is absent.
inline std::vector<std::string> corpus_lines() {
  const std::string folder = OCTALANE_TEST_DATA "/../../shared/corpus/";
  std::vector<std::string> chosen;
  for (const char* name : {"wikitext2-test.txt", "shakespeare.txt"}) {
    std::ifstream file(folder + name);
    if (!file) return {};
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);)
      if (line.find_first_not_of(' ') != std::string::npos) lines.push_back(std::move(line));
    for (size_t i = 0; i < 1000; ++i) chosen.push_back(lines[i * lines.size() / 1000]);
  }
  return chosen;
}

}  // namespace octalane::golden
