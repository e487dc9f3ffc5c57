// The rooms of ARCHITECTURE.md as rules that a source file can break.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octalane::test {

/// Every rule that a file of src/ or include/ breaks, one line each. `path` is relative to the repository root.
std::vector<std::string> violations(std::string_view path, std::string_view text);

}  // namespace octalane::test
