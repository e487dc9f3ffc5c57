#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

namespace octalane::cli {
namespace {

volatile std::sig_atomic_t signal_seen = 0;

void note_signal(int) { signal_seen = 1; }

/// Only what a signal handler may do.
[[noreturn]] void die(const char* message) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message, std::strlen(message));
  ::_exit(1);
}

void on_lost_mapping(int) { die("octalane: error: a file became shorter, or unreadable, while it was being read\n"); }

[[noreturn]] void on_terminate() { die("octalane: error: out of memory in a worker thread\n"); }

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

namespace {

/// Under nohup a lost terminal must not end the work.
bool ignored(int signal) {
  struct sigaction now = {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

InterruptScope::InterruptScope() {
  signal_seen = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  if (!ignored(SIGHUP)) ::sigaction(SIGHUP, &action, nullptr);
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (!ignored(SIGHUP)) std::signal(SIGHUP, SIG_DFL);
}

bool interrupted() { return signal_seen != 0; }

void install_last_resorts() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGBUS, on_lost_mapping);
  std::set_terminate(on_terminate);
}

}  // namespace octalane::cli
