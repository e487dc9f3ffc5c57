// SentencePiece-style BPE: of all neighbours whose joined text is a token, the pair with the best score merges first.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "files/gguf.h"
#include "model/vocabulary.h"

namespace octalane {

/// The bytes that a normal token's text stands for: U+2581 is a space.
std::string decode_spaces(std::string_view text);
/// The byte of a token "<0x41>"; any other text stands for itself.
std::string decode_byte_token(std::string_view text);

class ScorePairEncoder {
 public:
  /// The vocabulary, which must have scores, outlives the encoder.
  static Expected<ScorePairEncoder> load(const GgufFile& file, const Vocabulary& vocabulary);

  /// Appends the tokens of a text without special tokens. Characters that are no token become byte tokens "<0x..>", or
  /// the unknown token where the vocabulary lacks those.
  /// @param starts  the text follows a special token or nothing: a space goes before it, if the file asks for that
  void encode(std::string_view text, bool starts, std::vector<int32_t>& tokens) const;

 private:
  explicit ScorePairEncoder(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {}
  void encode_piece(std::string_view text, std::vector<int32_t>& tokens) const;

  const Vocabulary* vocabulary_;
  bool add_space_prefix_ = true;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace octalane
