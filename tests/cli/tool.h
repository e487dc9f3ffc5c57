// Runs the built tool as a user would, and looks at what it did.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace octalane::cli_test {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when a signal ended it
  std::string out, err;
};

/// The tool with these arguments. `input` is its standard input, `before` shell text such as "ulimit -f 1;".
Outcome octalane(const Arguments& arguments, const std::string& input = "", const std::string& before = "");

/// The one JSON document of a run that must succeed; fails the test otherwise.
Json octalane_json(Arguments arguments);

/// Expects the contract of a failure: this exit code, nothing on stdout, one line on stderr that says `part`.
void expect_error(const Outcome& outcome, int exit_code, const std::string& part);

/// A folder of this test process, removed at its end.
std::filesystem::path scratch();
/// Names of the files in a folder.
std::vector<std::string> files_in(const std::filesystem::path& folder);

/// A file of random weights made by `synth`, once per process.
std::string tiny_model(const std::string& like = "tiny-llama", const std::string& format = "q4_0");

/// The model that scripts/fetch_model.sh brings; "" when it is not there.
std::string real_model();

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);

/// True in builds with AddressSanitizer, where memory figures mean nothing.
constexpr bool sanitized() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer);
#else
  return false;
#endif
}

}  // namespace octalane::cli_test
