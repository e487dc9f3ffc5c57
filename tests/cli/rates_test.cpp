// --rates: measured once, saved, obeyed. Which kernel is faster here is not judged: files with made-up rates decide.
#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

namespace fs = std::filesystem;

/// A cache folder of its own for each test.
class RatesFlag : public testing::Test {
 protected:
  RatesFlag() { fs::create_directories(cache_); }
  ~RatesFlag() override { fs::remove_all(cache_); }

  /// `plan` for one token of the tiny model, from this cache.
  Outcome plan(Arguments more = {}) const {
    Arguments arguments{"plan", "-m", tiny_model(), "--tokens", "1", "--isa", "scalar", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return octalane(arguments, "", "export OCTALANE_RATES=auto XDG_CACHE_HOME=" + cache_.string() + ";");
  }
  fs::path saved() const {
    const std::vector<std::string> files = files_in(cache_ / "octalane");
    EXPECT_EQ(files.size(), 1u);
    return cache_ / "octalane" / (files.empty() ? "none" : files[0]);
  }
  const fs::path cache_ = scratch() / "cache";
};

std::string reasons(const Outcome& outcome) {
  std::string all;
  const Json document = Json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << outcome.out;
  for (const Json& plan : document["plans"]) all += plan["reason"].get<std::string>() + "\n";
  return all;
}

TEST_F(RatesFlag, measures_once_with_a_word_and_saves) {
  const Outcome first = plan();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.err, "octalane: measuring the kernels of 1 weight format, once for this machine and build\n");
  EXPECT_NE(reasons(first).find("measured"), std::string::npos);
  const std::string kept = read_file(saved());
  const Outcome second = plan();
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(second.out, first.out) << "the same rates, the same plan";
  EXPECT_EQ(read_file(saved()), kept);
}

TEST_F(RatesFlag, a_corrupt_file_is_one_line_and_measured_again) {
  plan();
  for (const std::string& text : {std::string("{"), std::string("\0\xFF", 2), read_file(saved()).substr(0, 300)}) {
    write_file(saved(), text);
    const Outcome outcome = plan();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("; measuring again\noctalane: measuring the kernels"), std::string::npos) << outcome.err;
    EXPECT_NE(reasons(outcome).find("measured"), std::string::npos);
    EXPECT_EQ(plan().err, "") << "and saved";
  }
}

TEST_F(RatesFlag, rates_of_another_build_or_processor_are_measured_again) {
  plan();
  for (const char* key : {"build", "flags"}) {
    Json document = Json::parse(read_file(saved()));
    document["machine"][key] = "other";
    write_file(saved(), document.dump());
    EXPECT_EQ(plan().err, "octalane: measuring the kernels of 1 weight format, once for this machine and build\n");
    EXPECT_EQ(plan().err, "");
  }
}

TEST_F(RatesFlag, a_cache_that_cannot_be_written_is_said_and_does_no_harm) {
  const Outcome outcome = octalane({"plan", "-m", tiny_model(), "--tokens", "1", "--isa", "scalar", "--json"}, "",
                                   "export OCTALANE_RATES=auto XDG_CACHE_HOME=/proc;");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot write"), std::string::npos) << outcome.err;
  EXPECT_NE(reasons(outcome).find("measured"), std::string::npos);
}

TEST_F(RatesFlag, nominal_measures_nothing) {
  const Outcome outcome = plan({"--rates", "nominal"});
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(reasons(outcome).find("nominal"), std::string::npos);
  EXPECT_TRUE(files_in(cache_).empty());
}

TEST_F(RatesFlag, inspect_reads_what_is_saved_and_measures_nothing) {
  const std::string with_cache = "export OCTALANE_RATES=auto XDG_CACHE_HOME=" + cache_.string() + ";";
  const Arguments inspect{"inspect", tiny_model(), "--isa", "scalar", "--json"};
  const Outcome before = octalane(inspect, "", with_cache);
  EXPECT_EQ(before.err, "");
  EXPECT_NE(before.out.find("from nominal rates"), std::string::npos);
  plan();
  EXPECT_NE(octalane(inspect, "", with_cache).out.find("from measured rates"), std::string::npos);
}

/// The plan obeys a file, whichever kernel it favours, and the run says that this kernel ran.
TEST_F(RatesFlag, a_file_of_rates_decides) {
  plan();
  Json document = Json::parse(read_file(saved()));
  for (const std::string favoured : {"bf16_gemm_1x1x32_scalar", "bf16_gemv_1x1x32_scalar"}) {
    for (Json& row : document["kernels"]) {
      row["points"] = Json::array({Json::array({1, row["kernel"] == favoured ? 1e-10 : 2e-10})});
    }
    const fs::path file = scratch() / "made_up.json";
    write_file(file, document.dump());
    const Json made = octalane_json(
        {"run", "-m", tiny_model(), "-p", "a", "-n", "2", "--batch", "1", "--isa", "scalar", "--rates", file.string()});
    ASSERT_EQ(made["kernels"].size(), 1u);
    EXPECT_EQ(made["kernels"][0]["kernel"], favoured);
    const Json plans = Json::parse(plan({"--rates", file.string()}).out)["plans"];
    EXPECT_EQ(plans[0]["kernel"], favoured);
    EXPECT_EQ(plans[0]["estimated_seconds"].get<double>(),
              plans[0]["rows"].get<double>() * plans[0]["cols"].get<double>() * 1e-10);
    EXPECT_NE(plans[0]["refused"].dump().find("estimated 2.00x the time of the winner"), std::string::npos);
  }
}

TEST_F(RatesFlag, a_file_that_is_none_is_an_error) {
  write_file(scratch() / "none.json", "{}");
  expect_error(plan({"--rates", (scratch() / "none.json").string()}), 1, "none.json: wanted JSON with octalane_rates");
  expect_error(plan({"--rates", (scratch() / "absent.json").string()}), 1, "absent.json: wanted a file of rates");
}

}  // namespace
}  // namespace octalane::cli_test
