// The house stays as drawn: every source file keeps the include rules of ARCHITECTURE.md, and each rule can be broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "include_rules/rules.h"

namespace octalane::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(IncludeRules, every_file_of_the_house_keeps_them) {
  const fs::path root = fs::path(OCTALANE_TEST_DATA).parent_path();
  int files = 0;
  for (const char* folder : {"src", "include"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp" &&
          entry.path().extension() != ".hpp" && entry.path().extension() != ".cu" &&
          entry.path().extension() != ".cuh") {
        continue;
      }
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      EXPECT_THAT(violations(entry.path().lexically_relative(root).generic_string(), text), IsEmpty());
      ++files;
    }
  }
  EXPECT_GT(files, 60);
}

TEST(IncludeRules, a_planted_include_against_the_arrows_is_found) {
  const std::pair<const char*, const char*> planted[] = {
      {"src/core/half.h", "files/gguf.h"},
      {"src/files/gguf.h", "formats/format.h"},
      {"src/formats/table.cpp", "weights/pack.h"},
      {"src/additive/encode.cpp", "files/npy.h"},
      {"src/weights/pack.cpp", "kernels/kernel.h"},
      {"src/kernels/registry.cpp", "plan/plan.h"},
      {"src/plan/plan.cpp", "linear/linear.h"},
      {"src/linear/linear.cpp", "model/model.h"},
      {"src/linear/linear.cpp", "files/gguf.h"},
      {"src/linear/linear.cpp", "probe/instructions.h"},
      {"src/model/load.cpp", "plan/plan.h"},
      {"src/model/load.cpp", "cli/table.h"},
      {"src/api/c_api.cpp", "model/model.h"},
      {"src/cuda/probe.cpp", "kernels/kernel.h"},
      {"src/cuda/device/probe.cu", "kernels/kernel.h"},
      {"src/linear/linear.cpp", "cuda/driver.h"},
      {"src/attic/old.cpp", "core/half.h"},
      {"src/model/forward.cpp", "kernels/avx2/kernels.h"},
  };
  for (const auto& [path, header] : planted) {
    const std::string text = "#pragma once\n  #  include \"" + std::string(header) + "\"\n";
    EXPECT_THAT(violations(path, text), ElementsAre(HasSubstr(header))) << path;
  }
}

TEST(IncludeRules, allowed_includes_are_not_reported) {
  EXPECT_THAT(violations("src/core/half.h", "#include <bit>\n#include \"core/inline.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/model/forward.cpp", "#include \"kernels/registry.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/cli/main.cpp", "#include \"plan/plan.h\"\n\"q4_k\""), IsEmpty());
  EXPECT_THAT(violations("src/kernels/registry.cpp", "#include \"isa_list.inc\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/core/half.h", "// #include \"files/gguf.h\"\n/* q4_k */"), IsEmpty());
}

TEST(IncludeRules, device_headers_outside_an_instruction_set_are_found) {
  for (const char* header : {"immintrin.h", "arm_neon.h", "cuda_runtime.h", "vulkan/vulkan.h"}) {
    const std::string text = "#include <" + std::string(header) + ">\n";
    EXPECT_THAT(violations("src/core/half.h", text), ElementsAre(HasSubstr("device headers")));
    EXPECT_THAT(violations("src/kernels/registry.cpp", text), ElementsAre(HasSubstr("device headers")));
    EXPECT_THAT(violations("src/kernels/avx2/simd.h", text), IsEmpty());
  }
}

TEST(IncludeRules, flagged_code_that_looks_beyond_core_and_its_folder_is_found) {
  const char* flagged = "src/kernels/avx2/gemv.cpp";
  EXPECT_THAT(violations(flagged, "#include \"kernels/scalar/kernels.h\"\n"), ElementsAre(HasSubstr("own folder")));
  EXPECT_THAT(violations(flagged, "#include \"kernels/registry.h\"\n"), ElementsAre(HasSubstr("own folder")));
  EXPECT_THAT(violations(flagged, "#include <algorithm>\n"), ElementsAre(HasSubstr("standard templates")));
  EXPECT_THAT(violations(flagged, "#include \"core/packed_view.h\"\n#include \"kernels/avx2/simd.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/kernels/amx/gemm.h", "#include \"kernels/vnni/unpack.h\"\n"), IsEmpty()) << "extended";
  EXPECT_THAT(violations("src/kernels/vnni/gemm.h", "#include \"kernels/amx/tiles.h\"\n"),
              ElementsAre(HasSubstr("own folder")));
  EXPECT_THAT(violations("src/kernels/avx2/probe.cpp", "#include \"kernels/probe_loops.h\"\n"), IsEmpty());
  EXPECT_THAT(violations(flagged, "#include \"kernels/tiles/gemm.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/kernels/tiles/gemm.h", "#include \"kernels/vnni/unpack.h\"\n"),
              ElementsAre(HasSubstr("own folder")));
  EXPECT_THAT(violations("src/kernels/avxvnni/vectors.h", "#include \"kernels/avx2/unpack.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/kernels/avx2/unpack.h", "#include \"kernels/avxvnni/vectors.h\"\n"),
              ElementsAre(HasSubstr("own folder")));
  EXPECT_THAT(violations("src/kernels/avx2/table.cpp", "#include \"kernels/weight_support.h\"\n"), IsEmpty());
  EXPECT_THAT(violations("src/kernels/registry.cpp", "#include \"kernels/avx2/kernels.h\"\n"),
              ElementsAre(HasSubstr("names an instruction set")));
}

TEST(IncludeRules, a_format_named_outside_files_formats_and_cli_is_found) {
  EXPECT_THAT(violations("src/kernels/avx2/gemv.cpp", "if (format == \"q4_k\") {}"), ElementsAre(HasSubstr("q4_k")));
  EXPECT_THAT(violations("src/linear/linear.cpp", "block_q6_K* blocks;"), ElementsAre(HasSubstr("block_q6_K")));
  EXPECT_THAT(violations("src/weights/pack.cpp", "int MXFP4 = 1;"), ElementsAre(HasSubstr("MXFP4")));
  EXPECT_THAT(violations("src/weights/pack.cpp", "int block_bytes = f16 + bf16;"), IsEmpty());
}

TEST(IncludeRules, public_headers_show_nothing_of_the_house) {
  EXPECT_THAT(violations("include/octalane/octalane.hpp", "#include \"core/status.h\"\n"), testing::SizeIs(1));
  EXPECT_THAT(violations("include/octalane/octalane.hpp", "#include \"octalane/octalane.h\"\n#include <vector>\n"),
              IsEmpty());
}

}  // namespace
}  // namespace octalane::test
