// The commit that this build was made of; cmake/commit.cmake writes the values with every build.
#pragma once

namespace octalane::cli {

extern const char* const kCommit;       ///< 40 hexadecimal digits; "" when the source was no git checkout
extern const bool kUncommittedChanges;  ///< in the files that a build or a measurement depends on

}  // namespace octalane::cli
