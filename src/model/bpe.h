// Byte-level BPE: every byte is a printable character of the vocabulary's alphabet, ranked merges build tokens of them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "files/gguf.h"
#include "model/pre_tokenizer.h"
#include "model/vocabulary.h"

namespace octalane {

struct Symbol;

/// The bytes that a token's text stands for; characters outside the byte alphabet stand for themselves.
std::string decode_byte_alphabet(std::string_view text);

class BytePairEncoder {
 public:
  BytePairEncoder(BytePairEncoder&&) = default;  // no copies: other_ids_ looks into other_pieces_
  BytePairEncoder& operator=(BytePairEncoder&&) = default;

  /// Reads "tokenizer.ggml.merges" (and "tokenizer.ggml.pre"). The vocabulary outlives the encoder.
  static Expected<BytePairEncoder> load(const GgufFile& file, const Vocabulary& vocabulary);

  /// Appends the tokens of a text without special tokens. Bytes for which the vocabulary has no token are dropped.
  void encode(std::string_view text, std::vector<int32_t>& tokens) const;

  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }

 private:
  BytePairEncoder(PreTokenizer pre_tokenizer, const Vocabulary& vocabulary);
  Status read_merges(const GgufFile& file);
  int32_t piece_of(std::string_view text);
  void encode_word(std::string_view word, std::vector<Symbol>& symbols, std::vector<int32_t>& tokens) const;
  void append_piece(int32_t piece, std::vector<int32_t>& tokens) const;

  struct RankedMerge {
    int32_t rank, piece;
  };

  PreTokenizer pre_tokenizer_;
  const Vocabulary* vocabulary_;
  // Pieces are texts by number: first the tokens, then what merges speak of besides (nothing, in well-made files).
  std::deque<std::string> other_pieces_;
  std::unordered_map<std::string_view, int32_t> other_ids_;
  std::array<int32_t, 256> byte_pieces_;
  std::unordered_map<uint64_t, RankedMerge> merges_;  // by both pieces
};

}  // namespace octalane
