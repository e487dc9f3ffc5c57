// Kernel rates: measured, saved, read back; and nothing believed of a file that is not what was written.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/registry.h"
#include "probe/kernel_rates.h"
#include "probe/rates_file.h"

namespace octalane {
namespace {

/// A folder of this test, removed at its end.
class RatesFile : public testing::Test {
 protected:
  RatesFile() : folder_(std::filesystem::temp_directory_path() / ("octalane-rates-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~RatesFile() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string written() const {
    EXPECT_TRUE(write_rates(path("written.json"), kKey, some_rates()));
    std::ifstream file(path("written.json"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  static Rates some_rates() {
    Rates rates;
    rates.set({&kernel(), find_format("q4_k")->spec, {{1, 1.25e-10}, {2, 2e-10}, {512, 1.0 / 3 * 1e-8}}});
    rates.set({&kernel(), find_format("q8_0")->spec, {{1, 1e-9}}});
    return rates;
  }
  static const Kernel& kernel() { return find_isa("scalar")->kernels[0]; }
  inline static const MachineKey kKey{"a processor", "flags of it", "0123"};

 private:
  std::filesystem::path folder_;
};

TEST_F(RatesFile, comes_back_as_it_was_written_to_the_bit) {
  ASSERT_TRUE(write_rates(path("new/folder/rates.json"), kKey, some_rates()));
  const Expected<SavedRates> saved = read_rates(path("new/folder/rates.json"));
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->key, kKey);
  const Rates wanted = some_rates();
  ASSERT_EQ(saved->rates.all().size(), wanted.all().size());
  for (const KernelRate& rate : wanted.all()) {
    const KernelRate* got = saved->rates.find(*rate.kernel, rate.weights);
    ASSERT_NE(got, nullptr);
    ASSERT_EQ(got->points.size(), rate.points.size());
    for (size_t i = 0; i < rate.points.size(); ++i) {
      EXPECT_EQ(got->points[i].tokens, rate.points[i].tokens);
      EXPECT_EQ(got->points[i].seconds_per_weight, rate.points[i].seconds_per_weight);
    }
  }
}

TEST_F(RatesFile, that_is_anything_else_is_an_error_that_names_it) {
  const std::string good = written();
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  const std::string first = name(kernel());
  const std::pair<const char*, std::string> hostile[] = {
      {"empty", ""},
      {"no JSON", "rates"},
      {"cut off", good.substr(0, good.size() / 2)},
      {"a list", "[]"},
      {"another version", changed("\"octalane_rates\":1", "\"octalane_rates\":2")},
      {"no machine", changed("\"machine\"", "\"engine\"")},
      {"machine is a number", changed("\"machine\":{", "\"machine\":7,\"other\":{")},
      {"build is a number", changed("\"build\":\"0123\"", "\"build\":123")},
      {"kernels is no list", changed("\"kernels\":[", "\"kernels\":7,\"other\":[")},
      {"a row is no object", changed("\"kernels\":[", "\"kernels\":[7,")},
      {"unknown kernel", changed(first, "abacus")},
      {"unknown format", changed("\"q4_k\"", "\"q4_z\"")},
      {"kernel is a list", changed("\"" + first + "\"", "[]")},
      {"no points", changed("\"points\":[[1,1.25e-10],[2,2e-10],", "\"points\":[],\"other\":[")},
      {"tokens do not ascend", changed("[2,2e-10]", "[1,2e-10]")},
      {"tokens do not start at 1", changed("[1,1.25e-10]", "[2,1.25e-10]")},
      {"negative tokens", changed("[2,2e-10]", "[-2,2e-10]")},
      {"tokens beyond all bounds", changed("[2,2e-10]", "[18446744073709551615,2e-10]")},
      {"no cost", changed("2e-10", "0.0")},
      {"negative cost", changed("2e-10", "-2e-10")},
      {"infinite cost", changed("2e-10", "1e999")},
      {"a cost beyond all bounds", changed("2e-10", "1e300")},
      {"cost is text", changed("2e-10", "\"2e-10\"")},
      {"a pair of three", changed("[2,2e-10]", "[2,2e-10,3]")},
      {"deep nesting", std::string(100'000, '[')},
      {"too long", good + std::string(5 << 20, ' ')},
  };
  for (const auto& [what, text] : hostile) {
    std::ofstream(path("hostile.json"), std::ios::binary) << text;
    const Expected<SavedRates> saved = read_rates(path("hostile.json"));
    ASSERT_FALSE(saved) << what;
    EXPECT_TRUE(saved.error().message.starts_with(path("hostile.json"))) << what << ": " << saved.error().message;
    EXPECT_EQ(saved.error().message.find('\n'), std::string::npos) << what;
  }
  EXPECT_FALSE(read_rates(path("absent.json")));
  EXPECT_FALSE(read_rates(path(".")));
}

TEST_F(RatesFile, is_replaced_as_a_whole_and_leaves_nothing_beside_it) {
  ASSERT_TRUE(write_rates(path("r.json"), kKey, some_rates()));
  ASSERT_TRUE(write_rates(path("r.json"), kKey, Rates()));
  EXPECT_TRUE(read_rates(path("r.json"))->rates.all().empty());
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path("."))) ++files;
  EXPECT_EQ(files, 1);
  EXPECT_FALSE(write_rates("/proc/octalane/rates.json", kKey, Rates()));
}

TEST_F(RatesFile, lies_in_the_users_cache_under_a_name_of_this_machine) {
  const MachineKey key = machine_key();
  EXPECT_EQ(key, machine_key());
  EXPECT_EQ(key.build.size(), 16u);
  ::setenv("XDG_CACHE_HOME", path("").c_str(), 1);
  const std::string here = default_rates_path(key);
  EXPECT_TRUE(here.starts_with(path("octalane/rates-"))) << here;
  MachineKey other = key;
  other.cpu += "!";
  EXPECT_NE(default_rates_path(other), here);
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/somebody", 1);
  EXPECT_TRUE(default_rates_path(key).starts_with("/home/somebody/.cache/octalane/rates-"));
  ::unsetenv("HOME");
  EXPECT_EQ(default_rates_path(key), "");
}

/// One instruction set, the fastest here that has kernels of the stock lane; scalar would take its time.
const IsaTable& one_isa() {
  const IsaTable* best = isa_tables()[0];
  for (const IsaTable* isa : isa_tables()) {
    if (std::string_view(isa->name) == "avx2" && isa->unavailable().empty()) best = isa;
  }
  return *best;
}

TEST(KernelRates, missing_are_all_kernels_of_the_lane_once_for_each_kind_of_weights) {
  const IsaTable* const isas[] = {&one_isa()};
  const RatesWanted wanted{isas, {}, {find_format("q4_k"), find_format("q8_0"), find_format("q4_k")}};
  Rates rates;
  const std::vector<MissingRates> missing = missing_rates(rates, wanted);
  ASSERT_EQ(missing.size(), 2u);
  for (const MissingRates& group : missing) {
    EXPECT_EQ(group.kernels.size(), 2u) << "gemm and gemv of the stock lane";
    for (const Kernel* kernel : group.kernels) EXPECT_TRUE(info(kernel->staged).stock);
  }
  // All but one of the first format: they are compared with each other, so all are missing.
  for (size_t i = 1; i < missing[0].kernels.size(); ++i) {
    rates.set({missing[0].kernels[i], missing[0].format->spec, {{1, 1e-9}}});
  }
  EXPECT_EQ(missing_rates(rates, wanted)[0].kernels.size(), 2u);
  rates.set({missing[0].kernels[0], missing[0].format->spec, {{1, 1e-9}}});
  EXPECT_EQ(missing_rates(rates, wanted).size(), 1u);
  const RatesWanted floats{isas, StagedType::s8_group, {find_format("bf16")}};
  EXPECT_TRUE(missing_rates(rates, floats).empty()) << "no kernel serves them";
}

TEST(KernelRates, measured_are_positive_and_ascend_to_what_the_kernel_serves) {
  const IsaTable* const isas[] = {&one_isa()};
  const RatesWanted wanted{isas, {}, {find_format("q4_0")}};
  Rates rates;
  measure_missing(wanted, rates, [](int, int) { return false; });
  EXPECT_TRUE(rates.all().empty()) << "told to stop";
  measure_missing(wanted, rates);
  EXPECT_TRUE(missing_rates(rates, wanted).empty());
  ASSERT_EQ(rates.all().size(), 2u);
  for (const KernelRate& rate : rates.all()) {
    SCOPED_TRACE(name(*rate.kernel));
    EXPECT_EQ(rate.points.front().tokens, 1);
    EXPECT_LE(rate.points.back().tokens, rate.kernel->max_tokens);
    for (size_t i = 0; i < rate.points.size(); ++i) {
      EXPECT_GT(rate.points[i].seconds_per_weight, 0);
      EXPECT_LT(rate.points[i].seconds_per_weight, 1);
      EXPECT_GT(rate.points[i].tokens, i > 0 ? rate.points[i - 1].tokens : 0);
    }
  }
}

}  // namespace
}  // namespace octalane
