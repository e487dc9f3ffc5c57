// Errors at the edges: a failed call returns one line that says what, where, wanted and got.
#pragma once

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace octalane {

struct Error {
  std::string message;
};

template <class T>
using Expected = tl::expected<T, Error>;
using Status = Expected<void>;

/// Builds the error arm of any Expected: `return fail("{}: wanted {}, got {}", name, a, b);`
template <class... Args>
tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return tl::make_unexpected(Error{fmt::format(format, std::forward<Args>(args)...)});
}

/// Passes the error of one Expected on as the error arm of another.
template <class T>
tl::unexpected<Error> fail_with(const Expected<T>& failed) {
  return tl::make_unexpected(failed.error());
}

}  // namespace octalane
