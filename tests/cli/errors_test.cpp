// The contract of exit codes and errors.
#include <signal.h>

#include "cli/tool.h"
#include "files/npy.h"

namespace octalane::cli_test {
namespace {

const std::vector<Arguments> kCommands{{"run"}, {"inspect"}, {"plan"},  {"matmul"},        {"quantize"},      {"synth"},
                                       {"ppl"}, {"kernels"}, {"probe"}, {"bench", "gemm"}, {"bench", "model"}};

TEST(CliErrors, every_command_explains_itself) {
  for (Arguments command : kCommands) {
    command.push_back("--help");
    const Outcome outcome = octalane(command);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    for (const char* flag : {"--json", "--threads", "--device", "--isa", "--lane", "Usage: octalane"}) {
      EXPECT_NE(outcome.out.find(flag), std::string::npos) << command.front() << ": " << flag;
    }
  }
}

TEST(CliErrors, unknown_words_are_usage_errors) {
  const std::string model = tiny_model();
  const std::string out = scratch() / "unknown.gguf";
  expect_error(octalane({}), 2, "wanted a command");
  expect_error(octalane({"bench"}), 2, "wanted a command");
  expect_error(octalane({"walk"}), 2, "walk is not a command");
  expect_error(octalane({"bench", "walk"}), 2, "walk is not a command");
  expect_error(octalane({"inspect"}), 2, "MODEL is required");
  expect_error(octalane({"inspect", model, "--fast"}), 2, "--fast");
  expect_error(octalane({"inspect", model, "more"}), 2, "more");
  expect_error(octalane({"inspect", model, "--lane", "s8.wide"}), 2, "s8.wide");
  expect_error(octalane({"inspect", model, "--isa", "mmx"}), 2, "mmx");
  expect_error(octalane({"inspect", model, "--device", "cuda:0"}), 2, "cuda:0");
  expect_error(octalane({"inspect", model, "--threads", "0"}), 2, "--threads");
  expect_error(octalane({"inspect", model, "--threads", "two"}), 2, "--threads");
  expect_error(octalane({"quantize", model, out, "--format", "q9_9"}), 2, "q9_9");
  expect_error(octalane({"synth", "--like", "gpt-5", "--format", "q4_0", out}), 2, "gpt-5");
  expect_error(octalane({"plan", "-m", model, "--tokens", "1,,2"}), 2, "--tokens");
  expect_error(octalane({"plan", "-m", model, "--tokens", "-3"}), 2, "--tokens");
  expect_error(octalane({"bench", "gemm", "--format", "q4_0,q9", "--rows", "8", "--cols", "32"}), 2, "q9");
  expect_error(octalane({"run", "-m", model}), 2, "--prompt");
  expect_error(octalane({"run", "-m", model, "-p", "a", "-f", "b"}), 2, "--prompt");
  expect_error(octalane({"run", "-m", model, "-p", "a", "--temp", "-1"}), 2, "--temp");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(CliErrors, files_that_are_no_models_are_named) {
  const std::string text = scratch() / "text.txt";
  write_file(text, "not a model at all, but long enough to hold a header");
  for (const Arguments& command :
       {Arguments{"inspect"}, {"plan", "-m"}, {"run", "-p", "a", "-m"}, {"bench", "model", "-m"}}) {
    const auto with = [&](const std::string& path) {
      Arguments all = command;
      all.push_back(path);
      return octalane(all);
    };
    expect_error(with("/no/such/file.gguf"), 1, "/no/such/file.gguf");
    expect_error(with(text), 1, text);
    expect_error(with(scratch()), 1, scratch());
  }
}

TEST(CliErrors, truncated_models_are_refused_wherever_they_end) {
  const std::string whole = read_file(tiny_model());
  const std::string path = scratch() / "truncated.gguf";
  for (const size_t size :
       {size_t{0}, size_t{3}, size_t{20}, size_t{200}, size_t{5000}, whole.size() / 2, whole.size() - 1}) {
    write_file(path, whole.substr(0, size));
    expect_error(octalane({"inspect", path}), 1, path);
    expect_error(octalane({"run", "-m", path, "-p", "a"}), 1, path);
  }
}

TEST(CliErrors, a_forced_lane_that_cannot_serve_says_why) {
  const std::string model = tiny_model();
  expect_error(octalane({"run", "-m", model, "-p", "a", "--lane", "f8.row"}), 1, "lane f8.row was asked for");
  expect_error(octalane({"plan", "-m", model, "--lane", "f8.group"}), 1, "lane f8.group was asked for");
  expect_error(octalane({"bench", "gemm", "--format", "q4_0", "--rows", "8", "--cols", "32", "--lane", "f16"}), 1,
               "lane f16 was asked for");
  // Float weights have no integer codes.
  expect_error(octalane({"run", "-m", tiny_model("tiny-llama", "f16"), "-p", "a", "--lane", "s8.group"}), 1,
               "s8.group");
}

TEST(CliErrors, activations_of_a_wrong_shape_leave_no_output) {
  const std::string model = tiny_model(), x = scratch() / "wrong.npy", y = scratch() / "wrong-out.npy";
  const Matrix wrong{std::vector<float>(3 * 7), 3, 7};
  ASSERT_TRUE(write_npy(x, wrong.view()));
  const Arguments command{"matmul", "-w", model, "-t", "blk.0.attn_q.weight", "-x", x, "-o", y};
  expect_error(octalane(command), 1, "wanted 256 columns");
  write_file(x, "not npy");
  expect_error(octalane(command), 1, x);
  expect_error(octalane({"matmul", "-w", model, "-t", "blk.9.attn_q.weight", "-x", x, "-o", y}), 1,
               "blk.9.attn_q.weight");
  EXPECT_FALSE(std::filesystem::exists(y));
}

TEST(CliErrors, unwritable_outputs_are_named) {
  const std::string model = tiny_model(), nowhere = "/no/such/folder/out";
  expect_error(octalane({"quantize", model, nowhere, "--format", "q8_0"}), 1, nowhere);
  expect_error(octalane({"synth", "--like", "tiny-llama", "--format", "q8_0", nowhere}), 1, nowhere);
  expect_error(octalane({"quantize", model, model, "--format", "q8_0"}), 1, "another file");
  const std::string link = scratch() / "link.gguf";
  std::filesystem::create_symlink(model, link);
  expect_error(octalane({"quantize", model, link, "--format", "q8_0"}), 1, "another file");
}

TEST(CliErrors, a_full_disk_leaves_nothing_behind) {
  const std::string model = tiny_model("tiny-llama", "f32");
  const std::filesystem::path folder = scratch() / "full";
  std::filesystem::create_directories(folder);
  const std::string limit = "ulimit -f 64;";  // blocks of 512 bytes: fewer than any output has
  const std::string x = scratch() / "many.npy";
  const Matrix many{std::vector<float>(200 * 256), 200, 256};
  ASSERT_TRUE(write_npy(x, many.view()));
  expect_error(octalane({"quantize", model, folder / "a", "--format", "q8_0"}, "", limit), 1, "cannot write");
  expect_error(octalane({"synth", "--like", "tiny-llama", "--format", "q8_0", folder / "b"}, "", limit), 1,
               "cannot write");
  expect_error(octalane({"matmul", "-w", model, "-t", "output.weight", "-x", x, "-o", folder / "c"}, "", limit), 1,
               "cannot write");
  EXPECT_EQ(files_in(folder), std::vector<std::string>());
}

TEST(CliErrors, a_failed_replacement_keeps_the_old_file) {
  const std::filesystem::path out = scratch() / "kept.gguf";
  write_file(out, "old");
  octalane({"synth", "--like", "tiny-llama", "--format", "q8_0", out}, "", "ulimit -f 64;");
  EXPECT_EQ(read_file(out), "old");
}

TEST(CliErrors, output_that_cannot_be_written_is_an_error) {
  const Outcome outcome = octalane({"kernels"}, "", "exec >/dev/full;");
  expect_error(outcome, 1, "No space left on device");
}

TEST(CliErrors, memory_that_is_not_there_is_one_line) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer ends the process itself when an allocation fails";
  expect_error(
      octalane({"bench", "gemm", "--format", "f32", "--rows", "100000000", "--cols", "16000000", "--tokens", "1"}), 1,
      "out of memory");
}

TEST(CliErrors, names_with_control_characters_stay_on_one_line) {
  expect_error(octalane({"inspect", "/no/such\nfile\x1b[31m"}), 1, "/no/such file");
}

}  // namespace
}  // namespace octalane::cli_test
