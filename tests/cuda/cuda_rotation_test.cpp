// How arms are ordered, rotated and timed, on a made-up driver whose clock the test sets.
#include "cli/cuda_rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cuda/fake_driver.h"

namespace octalane::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

TEST(Rotation, copies_are_more_than_three_times_the_l2_and_no_more_than_needed) {
  for (const int64_t bytes : {1, 1000, 4096, 90 << 20, 180 << 20, 181 << 20}) {
    const int64_t l2 = 60 << 20, copies = cli::copies_beyond_l2(bytes, l2);
    EXPECT_GT(copies * bytes, 3 * l2) << bytes;
    EXPECT_TRUE(copies == 1 || (copies - 1) * bytes <= 3 * l2) << bytes;
  }
}

TEST(Rotation, a_graph_goes_through_all_copies_the_same_number_of_times) {
  EXPECT_EQ(cli::launches_of_graph(1, 10), 10);
  EXPECT_EQ(cli::launches_of_graph(4, 10), 12);
  EXPECT_EQ(cli::launches_of_graph(23, 10), 23);
  EXPECT_EQ(cli::launches_of_graph(5, 0), 5);
}

TEST(Rotation, orders_have_every_arm_once_differ_and_come_back_with_the_seed) {
  const auto orders = cli::random_orders(6, 40, 1);
  ASSERT_THAT(orders, SizeIs(40));
  std::set<std::vector<size_t>> distinct;
  std::set<size_t> first;
  for (std::vector<size_t> order : orders) {
    distinct.insert(order);
    first.insert(order.front());
    std::ranges::sort(order);
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5));
  }
  EXPECT_GT(distinct.size(), 30u);
  EXPECT_THAT(first, SizeIs(6)) << "every arm begins a round some time";
  EXPECT_EQ(cli::random_orders(6, 40, 1), orders);
  EXPECT_NE(cli::random_orders(6, 40, 2), orders);
}

constexpr std::byte kImage[8] = {};

/// Two kernels on the made-up device: "fast" takes 1 ms, "slow" 3 ms.
struct Bench {
  cuda::DriverApi api;
  Expected<cuda::Session> session;
  Expected<cuda::Module> module;
  Expected<cuda::Stream> stream;
  std::map<std::string, cuda::FunctionHandle> functions;
  std::map<std::string, std::vector<int64_t>> copies;

  explicit Bench(const char* failing = "")
      : api(fake_driver(failing)),
        session(cuda::Session::open(api, {})),
        module(session->load_module(kImage)),
        stream(session->stream()) {
    fake_work().kernel = [](const std::string& name, void**) { return name == "fast" ? 1e-3 : 3e-3; };
    for (const char* name : {"fast", "slow"}) functions[name] = *module->find(name);
  }

  cli::Arm arm(const std::string& name, int64_t count = 1) {
    return {.name = name, .copies = count, .enqueue = [this, name, count](const cuda::Stream& to, int64_t i) {
              copies[name].push_back(i % count);
              return session->enqueue(functions[name], {}, to);
            }};
  }
  auto time(const std::vector<cli::Arm>& arms, const cli::RotationOptions& options) {
    return cli::time_arms(*session, *stream, arms, options);
  }
};

TEST(Rotation, times_every_arm_in_every_round_per_launch) {
  Bench device;
  const auto result = device.time({device.arm("fast"), device.arm("slow", 4)}, {.rounds = 3, .batches = 5});
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_THAT(result->arms, SizeIs(2));
  EXPECT_EQ(result->arms[1].name, "slow");
  EXPECT_EQ(result->arms[1].launches, 12);
  EXPECT_THAT(result->arms[0].batches, Each(SizeIs(5)));
  ASSERT_THAT(result->arms[0].seconds, SizeIs(3));
  for (const double seconds : result->arms[0].seconds) EXPECT_NEAR(seconds, 1e-3, 1e-6);
  for (const double seconds : result->arms[1].seconds) EXPECT_NEAR(seconds, 3e-3, 1e-6);
  EXPECT_NEAR(cli::median_speedup(result->arms[0], result->arms[1]), 3, 1e-3);
  EXPECT_TRUE(result->arms[0].burst.empty());
  EXPECT_THAT(device.copies["slow"], ElementsAre(0, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3)) << "once, then captured";
}

TEST(Rotation, holds_the_load_before_it_times) {
  Bench device;
  const cli::RotationOptions options{.rounds = 1, .batches = 2, .settle_seconds = 0.1};
  const auto result = device.time({device.arm("fast")}, options);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->arms[0].settle_launches, ElementsAre(100));
  // Once alone, two batches to know how long one takes, 10 of settling, 2 timed.
  EXPECT_THAT(fake_work().launches, SizeIs(1 + 20 + 100 + 20));
  EXPECT_EQ(fake_work().graph_launches, 14);
}

TEST(Rotation, keeps_rounds_apart_and_tells_their_median) {
  Bench device;
  // The device's clock falls: the n-th batch takes n ms.
  device.api.graph_launch = [](cuda::GraphExecHandle, cuda::StreamHandle) {
    fake_work().seconds += 1e-3 * ++fake_work().graph_launches;
    return 0;
  };
  const auto result =
      device.time({device.arm("fast")}, {.rounds = 2, .batches = 3, .launches = 1, .settle_seconds = 0});
  ASSERT_TRUE(result);
  ASSERT_THAT(result->arms[0].batches, SizeIs(2));
  const auto& first = result->arms[0].batches[0];
  ASSERT_THAT(first, SizeIs(3));
  EXPECT_NEAR(first[0], 3e-3, 1e-6) << "batches 1 and 2 came before";
  EXPECT_NEAR(first[2], 5e-3, 1e-6);
  EXPECT_NEAR(result->arms[0].seconds[0], 4e-3, 1e-6);
  EXPECT_NEAR(result->arms[0].seconds[1], 9e-3, 1e-6);
}

TEST(Rotation, bursts_come_after_idle_time) {
  Bench device;
  std::vector<double> slept;
  const auto result = device.time(
      {device.arm("slow")}, {.rounds = 2, .burst = true, .sleep = [&](double seconds) { slept.push_back(seconds); }});
  ASSERT_TRUE(result);
  EXPECT_THAT(slept, ElementsAre(0.4, 0.4));
  ASSERT_THAT(result->arms[0].burst, SizeIs(2));
  EXPECT_NEAR(result->arms[0].burst[0], 3e-3, 1e-6);
}

TEST(Rotation, an_arm_that_fails_is_named_and_an_interruption_too) {
  Bench device;
  cli::Arm broken{.name = "broken", .enqueue = [](const cuda::Stream&, int64_t i) -> Status {
                    if (i < 3) return {};
                    return fail("launch {}", i);
                  }};
  EXPECT_EQ(device.time({device.arm("fast"), broken}, {}).error().message, "broken: launch 3");
  const auto stopped = device.time({device.arm("fast")}, {.progress = [](int done, int all) {
                                     EXPECT_EQ(all, 5);
                                     return done < 2;
                                   }});
  EXPECT_EQ(stopped.error().message, "interrupted");
  EXPECT_FALSE(device.time({}, {.rounds = 0}));
  Bench refusing("cuGraphLaunch");
  EXPECT_EQ(refusing.time({refusing.arm("fast")}, {}).error().message, "fast: cuda: cuGraphLaunch: CUDA_ERROR_UNKNOWN");
}

TEST(Rotation, a_receipt_has_every_sample) {
  Bench device;
  const auto result = device.time({device.arm("fast")}, {.rounds = 2, .batches = 3});
  ASSERT_TRUE(result);
  const cli::Json json = cli::samples_json(result->arms[0]);
  EXPECT_NEAR(json["ms"]["median"].get<double>(), 1, 1e-3);
  EXPECT_EQ(json["samples_ms"].size(), 2u);
  EXPECT_EQ(json["batches_ms"][1].size(), 3u);
  EXPECT_EQ(json["states"].size(), 2u);
  EXPECT_TRUE(json["burst_ms"].is_null());
}

}  // namespace
}  // namespace octalane::test
