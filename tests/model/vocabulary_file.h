// A GGUF file of nothing but metadata, as a test needs it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "files/gguf.h"

namespace octalane {

inline Expected<GgufFile> metadata_file(const std::function<void(GgufWriter&)>& write) {
  // A name for this test alone: ctest runs many at once.
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string name = fmt::format("octalane_{}_{}.gguf", test.test_suite_name(), test.name());
  for (char& c : name) c = c == '/' ? '_' : c;
  const std::string path = testing::TempDir() + name;
  {
    auto writer = GgufWriter::create(path);
    if (!writer) return fail_with(writer);
    write(*writer);
    if (const Status done = writer->finish(); !done) return fail_with(done);
  }
  auto file = GgufFile::open(path);
  std::filesystem::remove(path);  // the mapping stays
  return file;
}

}  // namespace octalane
