// Progress for people, and Ctrl-C.
#pragma once

#include <string>

namespace octalane::cli {

/// One line on stderr that replaces itself, only when stderr is a terminal; gone when its owner is.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

/// While it lives, the first SIGINT, SIGTERM or SIGHUP (unless that is ignored) only sets a flag, so that work can end
/// at a clean point; a second one ends the process.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

bool interrupted();

/// The exit code of a run that Ctrl-C ended: 128 + SIGINT, as shells have it.
inline constexpr int kInterruptedExit = 130;

/// Makes failures that would end the process without a word ordinary errors: a write beyond the file size limit fails,
/// a file that shrinks while it is mapped and an exception in a worker thread give one line and exit code 1.
void install_last_resorts();

}  // namespace octalane::cli
