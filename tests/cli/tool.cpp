#include "cli/tool.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace octalane::cli_test {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path() / ("octalane-cli-test-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

std::filesystem::path scratch() {
  static const Scratch folder;
  return folder.path();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

Outcome octalane(const Arguments& arguments, const std::string& input, const std::string& before) {
  // Tests run beside each other: threads that wait should not spin on cores that others need.
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // Which kernel runs must not depend on how busy the machine is.
  ::setenv("OCTALANE_RATES", "nominal", 1);
  const std::filesystem::path in = scratch() / "stdin", out = scratch() / "stdout", err = scratch() / "stderr";
  write_file(in, input);
  std::string command = before + " exec " + quoted(OCTALANE_TOOL);
  for (const std::string& argument : arguments) command.append(" ").append(quoted(argument));
  command = fmt::format("({}) <{} >{} 2>{}", command, quoted(in), quoted(out), quoted(err));
  const int status = std::system(command.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
  return outcome;
}

Json octalane_json(Arguments arguments) {
  arguments.push_back("--json");
  const Outcome outcome = octalane(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  Json document = Json::parse(outcome.out, nullptr, false);  // of all that is on stdout
  EXPECT_FALSE(document.is_discarded()) << outcome.out;
  EXPECT_TRUE(document.is_object());
  return document;
}

void expect_error(const Outcome& outcome, int exit_code, const std::string& part) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("octalane: error: ", 0), 0u) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.err.empty() ? '\0' : outcome.err.back(), '\n');
  EXPECT_NE(outcome.err.find(part), std::string::npos) << "wanted \"" << part << "\" in: " << outcome.err;
}

std::string tiny_model(const std::string& like, const std::string& format) {
  const std::filesystem::path path = scratch() / (like + "-" + format + ".gguf");
  if (!std::filesystem::exists(path)) {
    const Outcome made = octalane({"synth", "--like", like, "--format", format, path});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  return path;
}

std::string real_model() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache == nullptr && home == nullptr) return "";
  const std::filesystem::path folder =
      cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
  const std::filesystem::path path = folder / "octalane" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace octalane::cli_test
