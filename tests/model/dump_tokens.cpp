// dump_tokens MODEL TEXT: the tokens of a text file, one number a line. What compare_mlx.py compares.
#include <fmt/core.h>

#include <fstream>
#include <iterator>

#include "model/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: dump_tokens MODEL TEXT\n");
    return 2;
  }
  const auto checkpoint = octalane::Checkpoint::open(argv[1]);
  if (!checkpoint) {
    fmt::print(stderr, "dump_tokens: error: {}\n", checkpoint.error().message);
    return 1;
  }
  const auto tokenizer = octalane::Tokenizer::load(*checkpoint);
  if (!tokenizer) {
    fmt::print(stderr, "dump_tokens: error: {}\n", tokenizer.error().message);
    return 1;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const int32_t token : tokenizer->encode(text)) fmt::print("{}\n", token);
  return 0;
}
