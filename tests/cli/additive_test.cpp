// quantize to additive codebooks: what is written, what is said of it, and runs that are interrupted.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string new_folder(const std::string& name) {
  const std::string out = scratch() / name;
  fs::remove_all(out);
  fs::remove_all(out + ".parts");
  return out;
}

/// Text of some 30,000 tokens for tokenizers of bytes.
std::string text_file() {
  const std::string path = scratch() / "calibration.txt";
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i) + ";\n";
  write_file(path, text);
  return path;
}

std::vector<float> values(const Checkpoint& file, const std::string& role) {
  const CheckpointTensor& tensor = *file.find_role(role);
  std::vector<float> out(static_cast<size_t>(tensor.rows() * tensor.cols()));
  for (int64_t n = 0; n < tensor.rows(); ++n) tensor.matrix().decode_row(n, out.data() + n * tensor.cols());
  return out;
}

TEST(AdditiveQuantize, matrices_are_encoded_and_the_errors_are_those_of_what_was_written) {
  const std::string in = tiny_model("tiny-qwen3", "f16"), out = new_folder("errors");
  const Json result = octalane_json({"quantize", in, out, "--format", "additive-m2v8-g64", "--threads", "2"});
  EXPECT_EQ(result["container"], "safetensors");
  const Checkpoint before = *Checkpoint::open(in), after = *Checkpoint::open(out);
  int encoded = 0;
  for (const Json& row : result["tensors"]) {
    const std::string name = row["name"];
    if (name == "token_embd.weight" || name == "output.weight") {
      EXPECT_EQ(row["to"], "f16");
      EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("stay f16"));
    }
    if (row["to"] != "additive-m2v8-g64") continue;
    ++encoded;
    EXPECT_EQ(after.find_role(name)->type, "additive-m2v8-g64");
    const std::vector<float> a = values(before, name), b = values(after, name);
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += std::pow(double{b[i]} - double{a[i]}, 2);
      norm += double{a[i]} * double{a[i]};
    }
    EXPECT_NEAR(row["rel_error"].get<double>(), std::sqrt(error / norm), 1e-9) << name;
    EXPECT_LT(row["rel_error"], row["rounding"]["rel_error"]) << name;
    EXPECT_THAT(row["rounding"]["format"].get<std::string>(), HasSubstr("mlx-affine-2-g"));
    EXPECT_TRUE(row["weighted_error"].is_null());
  }
  EXPECT_EQ(encoded, 14);
  EXPECT_FALSE(fs::exists(out + ".parts"));
  EXPECT_EQ(octalane({"run", "-m", out, "-p", "a", "-n", "2"}).exit_code, 0);
}

TEST(AdditiveQuantize, rows_of_llama_heads_are_encoded_in_the_order_of_folders) {
  const std::string in = tiny_model("tiny-llama", "f16"), dense = new_folder("dense"), out = new_folder("heads");
  octalane_json({"quantize", in, dense, "--format", "f16", "--container", "folder"});
  octalane_json({"quantize", in, out, "--format", "additive-m2v4-g32"});
  const std::vector<float> a = values(*Checkpoint::open(dense), "blk.0.attn_q.weight"),
                           b = values(*Checkpoint::open(out), "blk.0.attn_q.weight");
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(double{b[i]} - double{a[i]}, 2);
    norm += double{a[i]} * double{a[i]};
  }
  EXPECT_LT(error, 0.02 * norm);
}

TEST(AdditiveQuantize, calibration_lowers_the_error_of_outputs) {
  const std::string in = tiny_model("tiny-llama", "f16"), out = new_folder("calibrated");
  const Json result = octalane_json(
      {"quantize", in, out, "--format", "additive-m2v8-g64", "--calibrate", text_file(), "--calibrate-tokens", "2048"});
  EXPECT_EQ(result["calibration_tokens"], 2048);
  for (const Json& row : result["tensors"]) {
    if (row["to"] != "additive-m2v8-g64") continue;
    EXPECT_LT(row["weighted_error"].get<double>(), 0.6 * row["rounding"]["weighted_error"].get<double>());
  }
  EXPECT_EQ(octalane({"run", "-m", out, "-p", "a", "-n", "2"}).exit_code, 0);
}

TEST(AdditiveQuantize, what_cannot_be_done_is_refused) {
  const std::string in = tiny_model("tiny-llama", "f16"), text = scratch() / "short.txt";
  write_file(text, "too short");
  expect_error(octalane({"quantize", in, scratch() / "no.gguf", "--format", "q4_k", "--calibrate", text}), 1,
               "--calibrate: wanted a format of additive codebooks");
  expect_error(octalane({"quantize", in, new_folder("no"), "--format", "additive-m2v8-g64", "--calibrate", text}), 1,
               "wanted at least 512 tokens");
  expect_error(octalane({"quantize", in, scratch() / "no.gguf", "--format", "additive-m2v8-g64"}), 1,
               "has no place in a GGUF file");
}

/// Runs quantize and sends it SIGINT when the first part is there.
Outcome interrupt(const std::string& in, const std::string& out) {
  const std::string log = scratch() / "interrupted.txt";
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(log.c_str(), "w", stderr) == nullptr) ::_exit(99);
    ::execl(OCTALANE_TOOL, OCTALANE_TOOL, "quantize", in.c_str(), out.c_str(), "--format", "additive-m1v8-g64",
            "--threads", "1", nullptr);
    ::_exit(99);
  }
  for (int i = 0; i < 6000 && (!fs::exists(out + ".parts") || fs::is_empty(out + ".parts")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_file(log)};
}

TEST(AdditiveQuantize, an_interrupted_run_goes_on_where_it_was_to_the_same_bytes) {
  const std::string in = tiny_model("tiny-llama", "f16"), out = new_folder("interrupted"), whole = new_folder("whole");
  const Outcome stopped = interrupt(in, out);
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.err, HasSubstr("of 14 matrices are kept in " + out + ".parts"));
  EXPECT_FALSE(fs::exists(out));
  // A part that is damaged is made again.
  const std::vector<std::string> parts = files_in(out + ".parts");
  ASSERT_FALSE(parts.empty());
  std::string bytes = read_file(out + ".parts/" + parts[0]);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  write_file(out + ".parts/" + parts[0], bytes);

  const Json other = octalane_json({"quantize", in, whole, "--format", "additive-m1v8-g64", "--seed", "0"});
  EXPECT_EQ(other["resumed"], 0);
  const Json result = octalane_json({"quantize", in, out, "--format", "additive-m1v8-g64"});
  EXPECT_EQ(result["resumed"], parts.size() - 1);
  EXPECT_FALSE(fs::exists(out + ".parts"));
  for (const std::string& file : files_in(whole)) EXPECT_EQ(read_file(out + "/" + file), read_file(whole + "/" + file));
  EXPECT_EQ(result["tensors"], other["tensors"]);
}

}  // namespace
}  // namespace octalane::cli_test
