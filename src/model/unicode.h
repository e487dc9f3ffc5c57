// UTF-8 as tokenizers read it: nothing is refused, every byte string has one meaning.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octalane {

struct DecodedCodePoint {
  char32_t value;
  size_t bytes;
};

/// The code point at `offset` < text.size(). Lenient like llama.cpp: surrogates and overlong forms count as what they
/// spell; a byte that starts no sequence of the right length, or one beyond U+10FFFF, is U+FFFD and one byte long.
DecodedCodePoint decode_utf8(std::string_view text, size_t offset);

/// Appends the shortest UTF-8 form; code_point <= 0x10FFFF.
void append_utf8(std::string& out, char32_t code_point);

/// Bytes of the sequence that a lead byte announces, 1 for bytes that lead nothing.
size_t utf8_sequence_bytes(char lead);

}  // namespace octalane
