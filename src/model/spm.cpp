#include "model/spm.h"

#include <algorithm>
#include <optional>

#include "model/merge.h"
#include "model/unicode.h"

namespace octalane {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

std::string encode_spaces(std::string_view text) {
  std::string encoded;
  for (const char byte : text) {
    if (byte == ' ') {
      encoded += kSpace;
    } else {
      encoded += byte;
    }
  }
  return encoded;
}

}  // namespace

std::string decode_spaces(std::string_view text) {
  std::string decoded;
  for (size_t offset = 0; offset < text.size();) {
    const bool space = text.substr(offset, kSpace.size()) == kSpace;
    decoded += space ? ' ' : text[offset];
    offset += space ? kSpace.size() : 1;
  }
  return decoded;
}

std::string decode_byte_token(std::string_view text) {
  const auto digit = [](char hex) {
    return hex >= '0' && hex <= '9' ? hex - '0' : hex >= 'A' && hex <= 'F' ? hex - 'A' + 10 : -1;
  };
  const bool has_form = text.size() == 6 && text.substr(0, 3) == "<0x" && text[5] == '>';
  if (!has_form || digit(text[3]) < 0 || digit(text[4]) < 0) return std::string(text);
  return std::string(1, static_cast<char>(digit(text[3]) << 4 | digit(text[4])));
}

Expected<ScorePairEncoder> ScorePairEncoder::load(const GgufFile& file, const Vocabulary& vocabulary) {
  if (vocabulary.scores.empty()) return fail("{}: key \"tokenizer.ggml.scores\" is missing", file.path());
  ScorePairEncoder encoder(vocabulary);
  const auto prefix = file.get_or<bool>("tokenizer.ggml.add_space_prefix", true);
  if (!prefix) return fail_with(prefix);
  encoder.add_space_prefix_ = *prefix;
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto self = static_cast<char>(byte);
    int32_t token = vocabulary.find(fmt::format("<0x{:02X}>", byte));
    if (token < 0) token = vocabulary.find({&self, 1});
    encoder.byte_tokens_[byte] = token < 0 ? vocabulary.unknown : token;
  }
  return encoder;
}

void ScorePairEncoder::encode(std::string_view text, bool starts, std::vector<int32_t>& tokens) const {
  const std::string encoded = (add_space_prefix_ && starts ? std::string(kSpace) : "") + encode_spaces(text);
  for (size_t begin = 0; begin < encoded.size(); begin += kLongestText)
    encode_piece(std::string_view(encoded).substr(begin, kLongestText), tokens);
}

void ScorePairEncoder::encode_piece(std::string_view text, std::vector<int32_t>& tokens) const {
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = std::min(utf8_sequence_bytes(text[begin]), text.size() - begin);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({.previous = index - 1,
                       .next = begin + length < text.size() ? index + 1 : -1,
                       .begin = static_cast<uint32_t>(begin),
                       .length = static_cast<uint32_t>(length),
                       .piece = vocabulary_->find(text.substr(begin, length))});
    begin += length;
  }
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const size_t length = size_t{left.length} + right.length;
    const int32_t token = length > vocabulary_->longest ? -1 : vocabulary_->find(text.substr(left.begin, length));
    if (token < 0) return std::nullopt;
    return Merge{-static_cast<double>(vocabulary_->scores[token]), token};
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.length > 0 && symbol.piece >= 0) {
      tokens.push_back(symbol.piece);
    } else {
      for (const char byte : text.substr(symbol.begin, symbol.length)) {
        const int32_t token = byte_tokens_[static_cast<unsigned char>(byte)];
        if (token >= 0) tokens.push_back(token);
      }
    }
  }
}

}  // namespace octalane
