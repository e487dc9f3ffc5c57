#undef _FORTIFY_SOURCE  // its longjmp does not leave a stack for another
#include "cuda/software/block.h"

#include <setjmp.h>
#include <ucontext.h>

#include <memory>
#include <vector>

namespace octalane::cuda {

ThreadIndex threadIdx, blockIdx;
alignas(128) uint8_t shared[test::kSoftwareShared];

}  // namespace octalane::cuda

namespace octalane::test {
namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr uint8_t kPoison = 0xE7;

struct Meeting {
  int arrived = 0;
  unsigned past = 0;
};

struct Copy {
  uint32_t to;
  const void* from;
};

struct Thread {
  ucontext_t start;
  jmp_buf place;  ///< once it has begun
  bool begun = false;
  std::vector<std::vector<Copy>> copies{{}};  ///< groups; the last is not committed
  unsigned shown = 0;
  bool done = false;
};

struct Warp {
  Meeting meeting;
  WarpWords words[2];  ///< in turns: who is a turn ahead waits for the others
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Meeting meeting;
  jmp_buf host;
  const std::function<void()>* body = nullptr;
  uint32_t shared_bytes = 0;
  const Readable* readable = nullptr;
  std::string fault;
};
Block* running = nullptr;

/// That of thread i, of every block.
char* stack_of(int i) {
  static std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() <= static_cast<size_t>(i)) stacks.push_back(std::make_unique<char[]>(kStackBytes));
  return stacks[static_cast<size_t>(i)].get();
}

Thread& self() { return running->threads[cuda::threadIdx.x]; }

void enter() {
  (*running->body)();
  self().done = true;
  _longjmp(running->host, 1);
}

// Turns are millions: by jumps, as swapcontext would ask the kernel for the signal mask at each.
void let_others_run() {
  if (_setjmp(self().place) == 0) _longjmp(running->host, 1);
}
void run_self() {
  if (_setjmp(running->host) != 0) return;
  if (self().begun) _longjmp(self().place, 1);
  self().begun = true;
  setcontext(&self().start);
}

void prepare(ucontext_t& context, char* stack) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
}

void meet(Meeting& meeting, int members) {
  const unsigned past = meeting.past;
  if (++meeting.arrived == members) {
    meeting.arrived = 0;
    ++meeting.past;
  }
  while (meeting.past == past) let_others_run();
}

std::string name_of_thread() { return std::to_string(cuda::threadIdx.x); }

Warp& warp() { return running->warps[cuda::threadIdx.x / 32]; }

}  // namespace

std::string run_block(int block, int threads, int shared_bytes, const Readable& readable,
                      const std::function<void()>& body) {
  Block now;
  running = &now;
  now.body = &body;
  now.readable = &readable;
  now.shared_bytes = static_cast<uint32_t>(shared_bytes);
  now.threads.resize(static_cast<size_t>(threads));
  now.warps.resize(static_cast<size_t>(threads / 32));
  std::memset(cuda::shared, kPoison, sizeof cuda::shared);
  cuda::blockIdx.x = static_cast<unsigned>(block);
  for (int i = 0; i < threads; ++i) prepare(now.threads[static_cast<size_t>(i)].start, stack_of(i));
  // First thread first and last thread first in turns: no order is relied on.
  for (bool forward = true, left = true; left; forward = !forward) {
    left = false;
    for (int i = 0; i < threads; ++i) {
      cuda::threadIdx.x = static_cast<unsigned>(forward ? i : threads - 1 - i);
      if (self().done) continue;
      run_self();
      left = true;
    }
  }
  running = nullptr;
  return now.fault;
}

void sync_threads() { meet(running->meeting, static_cast<int>(running->threads.size())); }
void sync_warp() { meet(warp().meeting, 32); }

const WarpWords& show_warp(const LaneWords& words) {
  WarpWords& all = warp().words[self().shown++ % 2];
  all[cuda::threadIdx.x % 32] = words;
  sync_warp();
  return all;
}

uint8_t* block_memory(uint32_t at, uint32_t bytes) {
  static uint8_t elsewhere[16];
  if (at % bytes == 0 && at < running->shared_bytes && bytes <= running->shared_bytes - at) return cuda::shared + at;
  if (running->fault.empty()) {
    running->fault = std::to_string(bytes) + " bytes at " + std::to_string(at) + " of " +
                     std::to_string(running->shared_bytes) + ", by thread " + name_of_thread();
  }
  return elsewhere;
}

void begin_copy(uint32_t to, const void* from) {
  std::memset(block_memory(to, 16), kPoison, 16);
  const auto at = reinterpret_cast<uintptr_t>(from);
  const bool lies = std::ranges::any_of(*running->readable, [&](std::span<const std::byte> part) {
    const auto begin = reinterpret_cast<uintptr_t>(part.data());
    return at >= begin && at + 16 <= begin + part.size();
  });
  if (!lies || at % 16 != 0) {
    if (running->fault.empty()) running->fault = "a copy of what is not there, by thread " + name_of_thread();
    return;
  }
  self().copies.back().push_back({to, from});
}

void commit_copies() { self().copies.emplace_back(); }

void wait_for_copies(int pending) {
  std::vector<std::vector<Copy>>& groups = self().copies;
  while (groups.size() > static_cast<size_t>(pending) + 1) {
    for (const Copy& copy : groups.front()) std::memcpy(block_memory(copy.to, 16), copy.from, 16);
    groups.erase(groups.begin());
  }
}

}  // namespace octalane::test
