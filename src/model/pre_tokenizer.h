// How byte-level BPE families cut text into words before merging: regular expressions over Unicode classes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace octalane {

class PreTokenizer {
 public:
  /// By the name that "tokenizer.ggml.pre" gives ("smollm", "llama-bpe", "qwen2", "gpt-2", "default", and the names
  /// that llama.cpp treats alike). The error lists the kinds known.
  static Expected<PreTokenizer> find(std::string_view name);

  /// A text cut into words: word i is the bytes [ends[i-1], ends[i]) of `text`, which is the input with invalid UTF-8
  /// replaced by U+FFFD. Words are not empty and cover the text.
  struct Words {
    std::string text;
    std::vector<size_t> ends;
  };
  Words split(std::string_view text) const;

  /// A word that is a token stays whole, whatever the merges say.
  bool ignore_merges() const { return ignore_merges_; }
  /// The family begins a text with its begin token unless the file says otherwise.
  bool add_bos() const { return add_bos_; }

 private:
  struct Expression;
  PreTokenizer() = default;
  std::vector<std::shared_ptr<const Expression>> stages_;
  bool ignore_merges_ = false, add_bos_ = false;
};

}  // namespace octalane
