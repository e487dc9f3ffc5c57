// Names of the rows of families that have many, put together while compiling.
#pragma once

#include <cstddef>
#include <string_view>

namespace octalane {

struct RowName {
  char text[24] = {};
  size_t size = 0;

  constexpr void add(std::string_view piece) {
    for (const char c : piece) text[size++] = c;
  }
  constexpr void add(int number) {
    if (number >= 10) add(number / 10);
    text[size++] = static_cast<char>('0' + number % 10);
  }
  constexpr std::string_view view() const { return {text, size}; }
};

}  // namespace octalane
