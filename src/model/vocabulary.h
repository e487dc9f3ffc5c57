// The tokens of a GGUF file and what is known of each: text, score, kind.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "files/gguf.h"

namespace octalane {

/// As "tokenizer.ggml.token_type" numbers them.
enum class TokenKind : uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// Moves, but does not copy: `ids` looks into `texts`.
struct Vocabulary {
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::deque<std::string> texts;  ///< by token id; as the file spells them, "[EMPTY_<id>]" for ""
  std::vector<TokenKind> kinds;
  std::vector<float> scores;  ///< empty when the file has none
  std::unordered_map<std::string_view, int32_t> ids;
  size_t longest = 0;  ///< bytes of the longest text

  int32_t bos = -1, eos = -1, unknown = -1;  ///< -1 = none
  std::vector<int32_t> ends;                 ///< sorted; every token that ends a generation
  std::vector<int32_t> partition;            ///< unknown, control and user-defined tokens, the longest text first

  int32_t size() const { return static_cast<int32_t>(texts.size()); }
  /// -1 = no such token.
  int32_t find(std::string_view text) const {
    const auto entry = ids.find(text);
    return entry == ids.end() ? -1 : entry->second;
  }
  /// Written in a text, these are only text unless the caller asks for special tokens; decoded, they are "".
  bool is_special(int32_t token) const {
    return kinds[token] == TokenKind::control || kinds[token] == TokenKind::unknown;
  }
};

/// What special ids are when the file does not say; -1 = none.
struct DefaultIds {
  int32_t bos = -1, eos = -1, unknown = -1;
};

/// Reads tokens, types, scores and special ids. Which tokens end a generation is told by id keys and by well-known
/// texts
/// ("<|im_end|>", "<|eot_id|>", ...), as in llama.cpp. Errors name the key.
Expected<Vocabulary> load_vocabulary(const GgufFile& file, const DefaultIds& defaults);

}  // namespace octalane
