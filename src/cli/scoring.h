// Texts as ppl and gate score them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/tokenizer.h"

namespace octalane::cli {

struct TextOptions {
  int64_t context = 512;  ///< tokens per window
  int64_t tokens = 0;     ///< use only the first ones; 0 = all
};

struct ScoredText {
  std::string hash;             ///< 64-bit FNV-1a of the bytes
  std::vector<int32_t> tokens;  ///< whole windows, each with the begin token in first place where the model wants one
};

/// Reads and tokenizes a text; "-" is standard input. Fails when it has no whole window, or a window is longer than
/// what the model was trained for.
Expected<ScoredText> read_scored_text(const std::string& path, const TextOptions& options, const Tokenizer& tokenizer,
                                      int64_t model_context);

}  // namespace octalane::cli
