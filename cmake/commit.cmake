# Writes OUTPUT, a C++ file that holds the commit of SOURCE, when its content changes. Run with every build:
#   cmake -D GIT=... -D SOURCE=... -D OUTPUT=... -P commit.cmake
set(commit "")
set(changes "")
if(GIT)
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse --show-toplevel HEAD
                  OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" answer "${answer}")
  file(REAL_PATH "${SOURCE}" here)
  list(LENGTH answer count)
  if(count EQUAL 2)
    list(GET answer 0 top)
    # An unpacked archive may lie inside a checkout of something else.
    if(top STREQUAL here)
      list(GET answer 1 commit)
      execute_process(COMMAND "${GIT}" --no-optional-locks -C "${SOURCE}" status --porcelain --untracked-files=no --
                              CMakeLists.txt CMakePresets.json cmake include src bench
                      OUTPUT_VARIABLE changes ERROR_QUIET)
    endif()
  endif()
endif()
set(dirty false)
if(changes)
  set(dirty true)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT
"#include \"cli/commit.h\"

namespace octalane::cli {
const char* const kCommit = \"${commit}\";
const bool kUncommittedChanges = ${dirty};
}  // namespace octalane::cli
" @ONLY)
