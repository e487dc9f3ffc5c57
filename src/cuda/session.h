// A device at work: its context, memory, modules and launches. Everything is freed with its owner, which must not
// outlive the session.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <type_traits>

#include "cuda/devices.h"
#include "cuda/stream.h"

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
  int cluster = 1;       ///< blocks of a cluster, of which `blocks` is a multiple
  int blocks_y = 1;      ///< rows of as many blocks
  bool early = false;    ///< may begin before what is ahead of it in the stream has ended; it waits for that by itself
};

/// A cubin or fatbin on the device, unloaded with its owner; no kernel of it may then be running.
class Module {
 public:
  static Expected<Module> load(const DriverApi& api, std::span<const std::byte> image, const DeviceInfo& device);
  /// A kernel of it that may use this much dynamic shared memory.
  Expected<FunctionHandle> find(const char* name, int shared_bytes = 0) const;

 private:
  using Handle = Owned<ModuleHandle, &DriverApi::module_unload>;
  explicit Module(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
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
  /// The bytes have arrived for every stream when it returns.
  Status copy_in(const Buffer& to, std::span<const std::byte> from) const;
  Status copy_out(std::span<std::byte> to, const Buffer& from) const;
  /// Memory of its own that holds these bytes; at least 16, so that it has an address.
  Expected<Buffer> upload(std::span<const std::byte> bytes) const;

  /// Loads a cubin or fatbin for this device; as many as are wanted.
  Expected<Module> load_module(std::span<const std::byte> image) const;
  /// The session's own image, for who needs one only: its functions are those of find().
  Status load(std::span<const std::byte> image);
  Expected<FunctionHandle> find(const char* name, int shared_bytes = 0) const;
  /// What the compiler has made of a kernel.
  Expected<int> attribute(FunctionHandle function, FunctionAttribute which) const;

  Expected<Stream> stream() const;
  Expected<Event> event() const;

  /// Launches and waits; seconds from the start of the kernel to its end, by events. Arguments are addresses and
  /// integers.
  template <class... Arguments>
  Expected<double> run(FunctionHandle function, const Grid& grid, Arguments... arguments) const {
    std::array<void*, sizeof...(Arguments)> pointers{&arguments...};
    return launch(function, grid, pointers.data());
  }

  /// Launches on a stream and does not wait; may be captured. Arguments must have the types that the kernel declares:
  /// addresses, numbers, structs.
  template <class... Arguments>
  Status enqueue(FunctionHandle function, const Grid& grid, const Stream& stream, const Arguments&... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...));
    std::array<void*, sizeof...(Arguments)> pointers{const_cast<void*>(static_cast<const void*>(&arguments))...};
    return enqueue_pointers(function, grid, stream, pointers.data());
  }

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  Expected<double> launch(FunctionHandle function, const Grid& grid, void** arguments) const;
  Status enqueue_pointers(FunctionHandle function, const Grid& grid, const Stream& stream, void** arguments) const;

  std::unique_ptr<State> state_;
};

}  // namespace octalane::cuda
