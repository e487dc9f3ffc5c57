// Text <-> tokens for the vocabularies that GGUF files of the llama, qwen2 and qwen3 families carry: byte-level BPE
// ("gpt2" with its pre-tokenizer) and SentencePiece-style BPE by scores ("llama"). Token for token as llama.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/status.h"

namespace octalane {

class Tokenizer {
 public:
  /// Copies what it needs; the error names the key that is missing or of an unknown kind.
  static Expected<Tokenizer> load(const Checkpoint& checkpoint);

  struct EncodeOptions {
    bool add_special = true;     ///< begin/end tokens as the model's metadata asks
    bool parse_special = false;  ///< control tokens written in the text ("<|im_start|>") become those tokens
  };
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  std::vector<int32_t> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }

  /// The bytes of one token (a token may end inside a UTF-8 sequence); control tokens give "" unless `special`.
  std::string decode(int32_t token, bool special = false) const;

  int32_t size() const;
  int32_t bos() const;  ///< -1 = none
  int32_t eos() const;
  /// True for every token that ends a generation (eos, eot, "<|im_end|>", ...).
  bool ends_generation(int32_t token) const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace octalane
