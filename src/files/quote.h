#pragma once

#include <string>
#include <string_view>

namespace octalane {

/// A name out of a file, fit for one line of an error: in double quotes, bytes outside printable ASCII as \xNN, cut
/// after 80 bytes.
std::string quote(std::string_view name);

}  // namespace octalane
