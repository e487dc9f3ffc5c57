#include "model/bpe.h"

#include <optional>

#include "files/quote.h"
#include "model/merge.h"
#include "model/unicode.h"

namespace octalane {

namespace {

constexpr std::string_view kMerges = "tokenizer.ggml.merges";

/// GPT-2's alphabet: printable bytes of Latin-1 are themselves, the other 68 are U+0100, U+0101, ... in order.
std::array<std::string, 256> make_byte_alphabet() {
  std::array<std::string, 256> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    append_utf8(alphabet[byte], printable ? byte : next++);
  }
  return alphabet;
}

const std::array<std::string, 256>& byte_alphabet() {
  static const std::array<std::string, 256> alphabet = make_byte_alphabet();
  return alphabet;
}

std::string encode_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += byte_alphabet()[static_cast<unsigned char>(byte)];
  return text;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

std::string decode_byte_alphabet(std::string_view text) {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> map;
    for (size_t byte = 0; byte < 256; ++byte) map.emplace(byte_alphabet()[byte], static_cast<char>(byte));
    return map;
  }();
  std::string decoded;
  for (size_t offset = 0; offset < text.size();) {
    const std::string_view character = text.substr(offset, decode_utf8(text, offset).bytes);
    const auto byte = bytes.find(character);
    if (byte == bytes.end()) {
      decoded += character;
    } else {
      decoded += byte->second;
    }
    offset += character.size();
  }
  return decoded;
}

BytePairEncoder::BytePairEncoder(PreTokenizer pre_tokenizer, const Vocabulary& vocabulary)
    : pre_tokenizer_(std::move(pre_tokenizer)), vocabulary_(&vocabulary) {}

Expected<BytePairEncoder> BytePairEncoder::load(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto name = file.get_or<std::string_view>("tokenizer.ggml.pre", "default");
  if (!name) return fail_with(name);
  auto pre_tokenizer = PreTokenizer::find(*name);
  if (!pre_tokenizer) return fail("{}: {}", file.path(), pre_tokenizer.error().message);

  BytePairEncoder encoder(std::move(*pre_tokenizer), vocabulary);
  if (const Status done = encoder.read_merges(file); !done) return fail_with(done);
  for (size_t byte = 0; byte < 256; ++byte) encoder.byte_pieces_[byte] = encoder.piece_of(byte_alphabet()[byte]);
  return encoder;
}

int32_t BytePairEncoder::piece_of(std::string_view text) {
  if (const int32_t token = vocabulary_->find(text); token >= 0) return token;
  if (const auto other = other_ids_.find(text); other != other_ids_.end()) return other->second;
  const int32_t piece = vocabulary_->size() + static_cast<int32_t>(other_pieces_.size());
  other_ids_.emplace(other_pieces_.emplace_back(text), piece);
  return piece;
}

Status BytePairEncoder::read_merges(const GgufFile& file) {
  const auto lines = file.get_array<std::string_view>(kMerges);
  if (!lines) return fail_with(lines);
  // Each line can name three new pieces, and pieces are numbered with 31 bits.
  if (lines->size() > (size_t{1} << 28))
    return fail("{}: key {}: wanted at most 2^28 merges, got {}", file.path(), quote(kMerges), lines->size());
  merges_.reserve(lines->size());
  std::string merged;
  for (size_t rank = 0; rank < lines->size(); ++rank) {
    const std::string_view line = (*lines)[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size())
      return fail("{}: key {}: element {}: wanted two pieces with a space between, got {}", file.path(), quote(kMerges),
                  rank, quote(line));
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    merged.assign(left).append(right);
    const uint64_t key = pair_key(piece_of(left), piece_of(right));
    merges_.emplace(key, RankedMerge{static_cast<int32_t>(rank), piece_of(merged)});  // the first of equals counts
  }
  return {};
}

void BytePairEncoder::encode(std::string_view text, std::vector<int32_t>& tokens) const {
  const PreTokenizer::Words words = pre_tokenizer_.split(text);
  std::vector<Symbol> symbols;
  size_t begin = 0;
  for (const size_t end : words.ends) {
    for (; begin < end; begin += std::min(end - begin, kLongestText))
      encode_word(std::string_view(words.text).substr(begin, std::min(end - begin, kLongestText)), symbols, tokens);
  }
}

void BytePairEncoder::encode_word(std::string_view word, std::vector<Symbol>& symbols,
                                  std::vector<int32_t>& tokens) const {
  if (pre_tokenizer_.ignore_merges() && word.size() <= vocabulary_->longest) {
    const int32_t whole = vocabulary_->find(encode_byte_alphabet(word));
    if (whole >= 0) {
      tokens.push_back(whole);
      return;
    }
  }

  const auto count = static_cast<int32_t>(word.size());
  symbols.clear();
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({.previous = i - 1,
                       .next = i + 1 < count ? i + 1 : -1,
                       .begin = static_cast<uint32_t>(i),
                       .length = 1,
                       .piece = byte_pieces_[static_cast<unsigned char>(word[i])]});
  merge_symbols(symbols, [this](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto merge = merges_.find(pair_key(left.piece, right.piece));
    if (merge == merges_.end()) return std::nullopt;
    return Merge{static_cast<double>(merge->second.rank), merge->second.piece};
  });
  for (const Symbol& symbol : symbols)
    if (symbol.length > 0) append_piece(symbol.piece, tokens);
}

void BytePairEncoder::append_piece(int32_t piece, std::vector<int32_t>& tokens) const {
  if (piece < vocabulary_->size()) {
    tokens.push_back(piece);
    return;
  }
  // A merge built what is no token: its characters, as far as they are tokens of one byte each.
  for (const char& byte : other_pieces_[piece - vocabulary_->size()])
    if (const int32_t token = vocabulary_->find({&byte, 1}); token >= 0) tokens.push_back(token);
}

}  // namespace octalane
