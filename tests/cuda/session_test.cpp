// Launches, streams, graphs and modules, on a made-up driver.
#include "cuda/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/fake_driver.h"

namespace octalane::test {
namespace {

using cuda::Session;
using testing::HasSubstr;

constexpr std::byte kImage[64] = {};

Expected<Session> open(const cuda::DriverApi& api) {
  return Session::open(api, {.name = "Fake H200", .capability = 90});
}

/// Everything that a session can do, once.
Status do_everything(const cuda::DriverApi& api) {
  const Expected<Session> session = open(api);
  if (!session) return fail_with(session);
  const Expected<cuda::Module> module = session->load_module(kImage);
  if (!module) return fail_with(module);
  const Expected<cuda::FunctionHandle> kernel = module->find("kernel", 100'000);
  if (!kernel) return fail_with(kernel);
  if (const auto registers = session->attribute(*kernel, cuda::FunctionAttribute::registers); !registers)
    return fail_with(registers);
  const Expected<cuda::Stream> stream = session->stream();
  if (!stream) return fail_with(stream);
  const Expected<cuda::Event> begin = session->event(), end = session->event();
  if (!begin || !end) return fail_with(begin);
  const Expected<cuda::Buffer> from = session->allocate(64), to = session->allocate(64);
  if (!from || !to) return fail_with(from);
  const std::byte three[64] = {std::byte{3}};
  if (const Status s = session->copy_in(*to, three); !s) return s;
  if (const Status s = stream->fill(from->address(), 7, 64); !s) return s;
  if (const Status s = stream->copy(to->address(), from->address(), 64); !s) return s;
  std::byte host[64] = {};
  if (const Status s = stream->copy_out(host, to->address()); !s) return s;
  if (const Status s = stream->copy_in(to->address(), host); !s) return s;
  if (const Status s = begin->record(*stream); !s) return s;
  if (const Status s = session->enqueue(*kernel, {.cluster = 2}, *stream); !s) return s;
  const auto graph = cuda::Graph::capture(*stream, [&] { return session->enqueue(*kernel, {}, *stream); });
  if (!graph) return fail_with(graph);
  if (const Status s = graph->launch(*stream); !s) return s;
  if (const Status s = end->record(*stream); !s) return s;
  if (const auto seconds = cuda::Event::seconds_between(*begin, *end); !seconds) return fail_with(seconds);
  if (host[63] != std::byte{7}) return fail("copies: wanted 7, got {}", static_cast<int>(host[63]));
  return stream->synchronize();
}

TEST(CudaSession, gives_everything_back) {
  const cuda::DriverApi api = fake_driver();
  const Status done = do_everything(api);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(fake_work().live, 0);
}

TEST(CudaSession, every_call_that_fails_is_named_and_what_was_made_before_is_given_back) {
  for (const char* call : {"cuDeviceGet",        "cuDevicePrimaryCtxRetain",
                           "cuCtxSetCurrent",    "cuEventCreate",
                           "cuModuleLoadData",   "cuModuleGetFunction",
                           "cuFuncSetAttribute", "cuFuncGetAttribute",
                           "cuStreamCreate",     "cuMemAlloc",
                           "cuMemcpyHtoD",       "cuCtxSynchronize",
                           "cuMemsetD8Async",    "cuMemcpyDtoDAsync",
                           "cuMemcpyDtoHAsync",  "cuMemcpyHtoDAsync",
                           "cuEventRecord",      "cuLaunchKernel",
                           "cuLaunchKernelEx",   "cuStreamBeginCapture",
                           "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                           "cuGraphLaunch",      "cuEventSynchronize",
                           "cuEventElapsedTime", "cuStreamSynchronize"}) {
    const cuda::DriverApi api = fake_driver(call);
    const Status done = do_everything(api);
    ASSERT_FALSE(done) << call;
    EXPECT_THAT(done.error().message, testing::ContainsRegex(std::string("^cuda: ") + call + "[: ]"));
    EXPECT_THAT(done.error().message, HasSubstr("CUDA_ERROR_UNKNOWN"));
    EXPECT_EQ(fake_work().live, 0) << call;
  }
}

struct Arguments {
  uint64_t words[5];
};

TEST(CudaSession, launches_with_structs_addresses_and_numbers_in_their_order) {
  const cuda::DriverApi api = fake_driver();
  Expected<Session> session = open(api);
  ASSERT_TRUE(session);
  const auto module = session->load_module(kImage);
  const auto kernel = module->find("multiply");
  const auto stream = session->stream();
  Arguments seen{};
  int32_t number = 0;
  fake_work().kernel = [&](const std::string&, void** arguments) {
    std::memcpy(&seen, arguments[0], sizeof seen);
    std::memcpy(&number, arguments[1], sizeof number);
    return 1e-3;
  };
  const Arguments wanted{{1, 2, 3, 4, 5}};
  ASSERT_TRUE(session->enqueue(*kernel, {.blocks = 132, .threads = 384, .shared_bytes = 1000}, *stream, wanted, -7));
  EXPECT_EQ(seen.words[4], 5u);
  EXPECT_EQ(number, -7);
  ASSERT_TRUE(session->enqueue(*kernel, {.blocks = 8, .threads = 32, .cluster = 4, .blocks_y = 3}, *stream, wanted, 0));
  ASSERT_TRUE(session->enqueue(*kernel, {.blocks_y = 5}, *stream, wanted, 0));
  const auto& launches = fake_work().launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[0].function, "multiply");
  EXPECT_EQ(launches[0].blocks, 132u);
  EXPECT_EQ(launches[0].threads, 384u);
  EXPECT_EQ(launches[0].shared_bytes, 1000u);
  EXPECT_EQ(launches[0].cluster, 1u);
  EXPECT_EQ(launches[0].blocks_y, 1u);
  EXPECT_EQ(launches[1].cluster, 4u);
  EXPECT_EQ(launches[1].blocks_y, 3u);
  EXPECT_EQ(launches[2].blocks_y, 5u);
}

TEST(CudaSession, keeps_several_modules_apart_and_unloads_one_alone) {
  const cuda::DriverApi api = fake_driver();
  Expected<Session> session = open(api);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->find("kernel").error().message, "cuda: kernel: wanted a loaded image, got none");
  ASSERT_TRUE(session->load(kImage));
  const int before = fake_work().live;
  {
    Expected<cuda::Module> first = session->load_module(kImage);
    const cuda::Module second = std::move(*session->load_module(kImage));
    EXPECT_EQ(fake_work().live, before + 2);
    EXPECT_TRUE(first->find("a") && second.find("b"));
  }
  EXPECT_EQ(fake_work().live, before);
  EXPECT_TRUE(session->find("kernel"));
}

TEST(CudaGraph, runs_what_was_captured_once_for_each_launch) {
  const cuda::DriverApi api = fake_driver();
  Expected<Session> session = open(api);
  ASSERT_TRUE(session);
  const auto module = session->load_module(kImage);
  const auto kernel = module->find("kernel");
  const auto stream = session->stream();
  const auto begin = session->event(), end = session->event();
  fake_work().kernel = [](const std::string&, void**) { return 2e-3; };
  const auto graph = cuda::Graph::capture(*stream, [&]() -> Status {
    for (int i = 0; i < 3; ++i) {
      if (const Status s = session->enqueue(*kernel, {}, *stream); !s) return s;
    }
    return {};
  });
  ASSERT_TRUE(graph);
  EXPECT_TRUE(fake_work().launches.empty());
  ASSERT_TRUE(begin->record(*stream) && graph->launch(*stream) && graph->launch(*stream) && end->record(*stream));
  EXPECT_EQ(fake_work().launches.size(), 6u);
  EXPECT_NEAR(*cuda::Event::seconds_between(*begin, *end), 12e-3, 1e-6);
}

TEST(CudaGraph, of_work_that_failed_is_its_error_and_leaves_the_stream_usable) {
  const cuda::DriverApi api = fake_driver();
  Expected<Session> session = open(api);
  ASSERT_TRUE(session);
  const auto stream = session->stream();
  const auto graph = cuda::Graph::capture(*stream, []() -> Status { return fail("work: wanted 1, got 2"); });
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "work: wanted 1, got 2");
  const auto module = session->load_module(kImage);
  ASSERT_TRUE(session->enqueue(*module->find("kernel"), {}, *stream));
  EXPECT_EQ(fake_work().launches.size(), 1u) << "the stream is no longer captured";
}

}  // namespace
}  // namespace octalane::test
