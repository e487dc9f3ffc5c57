// tokenizer.json and tokenizer_config.json of a model folder <-> the tokenizer keys of GGUF. Byte-level BPE only.
// https://huggingface.co/docs/tokenizers/
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/json.h"
#include "files/gguf.h"

namespace octalane {

/// Sets the tokenizer.* keys of a folder with `vocabulary` embedding rows; ids that no token has become unused tokens.
/// Errors name the file and what in it is not a byte-level BPE tokenizer of a kind that octalane runs. A folder without
/// tokenizer.json sets nothing: its weights can be multiplied, but no text be run.
Status set_tokenizer_keys(const std::string& folder, const Json& config, int64_t vocabulary, GgufWriter& out);

/// The two files for metadata of a GGUF file, and the ids that config.json repeats.
struct TokenizerFiles {
  Json tokenizer, config;
  Json bos_token_id, eos_token_id;  ///< null when there is none
};
Expected<TokenizerFiles> tokenizer_files(const GgufFile& metadata);

}  // namespace octalane
