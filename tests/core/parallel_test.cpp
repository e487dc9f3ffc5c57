#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace octalane {
namespace {

TEST(ParallelFor, every_index_is_visited_once_whatever_the_counts) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t count : {0, 1, 5, 64, 1001}) {
      for (const int64_t grain : {1, 2, 16}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
        parallel_for(threads, count, grain, [&](int thread, int64_t begin, int64_t end) {
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& visit : visits) ASSERT_EQ(visit, 1) << threads << " " << count << " " << grain;
      }
    }
  }
}

TEST(ParallelFor, threads_have_numbers_of_their_own) {
  std::mutex mutex;
  std::set<std::pair<int, std::thread::id>> seen;
  parallel_for(3, 3, 1, [&](int thread, int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert({thread, std::this_thread::get_id()});
  });
  EXPECT_EQ(seen.size(), 3u);
}

TEST(ParallelFor, a_part_may_ask_for_threads_itself) {
  std::atomic<int> visits = 0;
  parallel_for(2, 2, 1, [&](int, int64_t, int64_t) {
    parallel_for(2, 10, 1, [&](int, int64_t begin, int64_t end) { visits += static_cast<int>(end - begin); });
  });
  EXPECT_EQ(visits, 20);
}

TEST(ParallelFor, callers_do_not_meet) {
  std::atomic<int> visits = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        parallel_for(2, 8, 1, [&](int, int64_t begin, int64_t end) { visits += static_cast<int>(end - begin); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(visits, 4 * 200 * 8);
}

TEST(UsableCores, is_at_least_one_and_no_more_than_there_are) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace octalane
