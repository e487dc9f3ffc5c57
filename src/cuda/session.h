// A device at work: its context, memory, modules and timed launches. Everything is freed with its owner, which must not
// outlive the session.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "cuda/devices.h"

namespace octalane::cuda {

/// Device memory.
class Buffer {
 public:
  Buffer(const DriverApi& api, Address address, int64_t bytes)
      : address_(new Address(address), {&api}), bytes_(bytes) {}
  Address address() const { return *address_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    const DriverApi* api;
    void operator()(Address* address) const;
  };
  std::unique_ptr<Address, Free> address_;
  int64_t bytes_;
};

/// Blocks and threads of a launch.
struct Grid {
  int blocks = 1, threads = 1;
  int shared_bytes = 0;  ///< dynamic
};

/// One device, current on the thread that opened it. The driver table must outlive it.
class Session {
 public:
  static Expected<Session> open(const DriverApi& api, const DeviceInfo& device);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  const DeviceInfo& device() const;
  Expected<Buffer> allocate(int64_t bytes) const;
  Status copy_in(const Buffer& to, std::span<const std::byte> from) const;
  Status copy_out(std::span<std::byte> to, const Buffer& from) const;

  /// Loads a cubin or fatbin for this device, whose functions find() then has. One a session.
  Status load(std::span<const std::byte> image);
  /// A kernel of the loaded image that may use this much dynamic shared memory.
  Expected<FunctionHandle> find(const char* name, int shared_bytes = 0) const;

  /// Launches and waits; seconds from the start of the kernel to its end, by events. Arguments are addresses and
  /// integers.
  template <class... Arguments>
  Expected<double> run(FunctionHandle function, const Grid& grid, Arguments... arguments) const {
    std::array<void*, sizeof...(Arguments)> pointers{&arguments...};
    return launch(function, grid, pointers.data());
  }

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  Expected<double> launch(FunctionHandle function, const Grid& grid, void** arguments) const;

  std::unique_ptr<State> state_;
};

}  // namespace octalane::cuda
