// run: what it prints, and what must not change it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

Arguments run(const Arguments& more) {
  Arguments all{"run", "-m", tiny_model(), "-p", "Once upon a time"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Run, reports_text_speed_and_kernels) {
  const Json result = octalane_json(run({"-n", "12"}));
  EXPECT_EQ(result["tokens"], 12);
  EXPECT_EQ(result["token_ids"].size(), 12u);
  EXPECT_EQ(result["finish"], "length");
  EXPECT_EQ(result["prefill"]["tokens"], 16) << "one token per byte";
  EXPECT_EQ(result["decode"]["tokens"], 11) << "the first comes out of the prefill";
  for (const char* phase : {"prefill", "decode"}) EXPECT_GT(result[phase]["tokens_per_second"].get<double>(), 0);
  // 2 layers of q, k, v, output, gate, up and down, and the head, for every token but: the head and what follows the
  // last layer's keys and values only for the prompt's last token.
  const double qkv = 256 * (256 + 128 + 128), rest = 256 * 256 + 3 * 256 * 512, head = 256 * 320;
  const double prompt = 16 * (2 * qkv + rest) + rest + head, token = 2 * (qkv + rest) + head;
  EXPECT_EQ(result["lanes"]["bf16"].get<double>(), 2 * (prompt + 11 * token));
  double share = 0;
  for (const Json& kernel : result["kernels"]) share += kernel["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_EQ(result["logits_hash"].get<std::string>().size(), 16u);
}

TEST(Run, prints_the_text_and_nothing_else_on_stdout) {
  const Outcome outcome = octalane(run({"-n", "12"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, octalane_json(run({"-n", "12"}))["text"].get<std::string>() + "\n");
  for (const char* part : {"prefill: 16 tokens", "decode:  11 tokens", "bf16_gemv", "% of the operations"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in: " << outcome.err;
  }
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << "progress is for terminals";
}

TEST(Run, threads_and_batches_do_not_change_the_logits) {
  for (const std::string lane : {"auto", "s8.group"}) {
    const Json wanted = octalane_json(run({"-n", "8", "--lane", lane, "--threads", "1"}));
    for (const Arguments& change :
         {Arguments{"--threads", "2"}, {"--threads", "3"}, {"--batch", "1"}, {"--batch", "5"}, {"--context", "300"}}) {
      Arguments all = run({"-n", "8", "--lane", lane});
      all.insert(all.end(), change.begin(), change.end());
      const Json got = octalane_json(all);
      EXPECT_EQ(got["logits_hash"], wanted["logits_hash"]) << lane << " " << change[0] << " " << change[1];
      EXPECT_EQ(got["token_ids"], wanted["token_ids"]);
    }
  }
  EXPECT_NE(octalane_json(run({"-n", "8"}))["logits_hash"], octalane_json(run({"-n", "9"}))["logits_hash"]);
}

TEST(Run, seeds_choose_the_draws) {
  const auto drawn = [](const std::string& seed) {
    return octalane_json(
        run({"-n", "24", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", seed}))["token_ids"];
  };
  EXPECT_EQ(drawn("5"), drawn("5"));
  EXPECT_NE(drawn("5"), drawn("6"));
}

TEST(Run, reads_prompts_from_files_and_standard_input) {
  const std::string path = scratch() / "prompt.txt";
  write_file(path, "Once upon a time");
  const Json wanted = octalane_json(run({"-n", "4"}));
  EXPECT_EQ(octalane_json({"run", "-m", tiny_model(), "-f", path, "-n", "4"})["token_ids"], wanted["token_ids"]);
  const Outcome piped = octalane({"run", "-m", tiny_model(), "-f", "-", "-n", "4", "--json"}, "Once upon a time");
  EXPECT_EQ(Json::parse(piped.out)["token_ids"], wanted["token_ids"]);
  expect_error(octalane({"run", "-m", tiny_model(), "-f", "/no/such/prompt"}), 1, "/no/such/prompt");
}

TEST(Run, chat_wraps_the_prompt_in_the_models_template) {
  const Json chat = octalane_json(run({"-n", "4", "--chat", "--system", "Be brief."}));
  Arguments spelt{"run",
                  "-m",
                  tiny_model(),
                  "-n",
                  "4",
                  "--special",
                  "-p",
                  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOnce upon a time<|im_end|>\n"
                  "<|im_start|>assistant\n"};
  EXPECT_EQ(octalane_json(spelt)["logits_hash"], chat["logits_hash"]);
}

TEST(Run, stops_at_the_end_of_its_context) {
  const Json result = octalane_json(run({"-n", "100", "-c", "20"}));
  EXPECT_EQ(result["finish"], "context");
  EXPECT_EQ(result["tokens"], 20 - 16 + 1) << "the last token made needs no position";
  expect_error(octalane(run({"-c", "10"})), 1, "wanted at most 10 tokens");
  expect_error(octalane(run({"-c", "513"})), 1, "wanted at most 512");
  expect_error(octalane({"run", "-m", tiny_model(), "-p", ""}), 1, "at least one token");
}

TEST(Run, makes_no_token_when_asked_for_none) {
  const Json result = octalane_json(run({"-n", "0"}));
  EXPECT_EQ(result["tokens"], 0);
  EXPECT_EQ(result["text"], "");
  EXPECT_EQ(result["decode"]["tokens_per_second"], nullptr);
}

/// Runs the tool, sends it SIGINT when `ready`, and waits for its end.
Outcome interrupt(Arguments arguments, const std::function<bool(pid_t)>& ready) {
  const std::filesystem::path out = scratch() / "interrupted-out", err = scratch() / "interrupted-err";
  write_file(out, "");
  arguments.insert(arguments.begin(), OCTALANE_TOOL);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    ::execv(OCTALANE_TOOL, argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (!ready(child) && ::waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGINT);
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

bool handles_interrupts(pid_t child) {
  const std::string status = read_file("/proc/" + std::to_string(child) + "/status");
  const size_t at = status.find("SigCgt:");
  return at != std::string::npos && (std::stoull(status.substr(at + 7), nullptr, 16) & (1u << (SIGINT - 1))) != 0;
}

TEST(Run, interrupted_json_is_whole) {
  const Outcome outcome = interrupt(run({"-n", "-1", "--json", "--threads", "1"}), handles_interrupts);
  EXPECT_EQ(outcome.exit_code, 130);
  const Json result = Json::parse(outcome.out, nullptr, false);
  ASSERT_FALSE(result.is_discarded()) << outcome.out;
  EXPECT_EQ(result["finish"], "interrupted");
  EXPECT_EQ(result["tokens"], result["token_ids"].size());
}

TEST(Run, interrupted_text_ends_with_a_summary) {
  const auto streaming = [](pid_t) { return !read_file(scratch() / "interrupted-out").empty(); };
  const Outcome outcome = interrupt(run({"-n", "-1", "--threads", "1"}), streaming);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos);
  EXPECT_NE(outcome.err.find("decode:"), std::string::npos);
}

}  // namespace
}  // namespace octalane::cli_test
