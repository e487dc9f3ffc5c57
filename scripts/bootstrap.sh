#!/usr/bin/env bash
# bootstrap.sh run|test: installs, from Debian packages, the tools and libraries that this machine lacks.
# `run` is what building and running needs, `test` is that and what the tests need. Nothing missing: nothing done.
set -euo pipefail

level=${1:-run}
case $level in run | test) ;; *)
  echo "usage: bootstrap.sh run|test" >&2
  exit 2
  ;;
esac

missing=()
need_command() { # package command
  command -v "$2" >/dev/null 2>&1 || missing+=("$1")
}
# Packages whose header the compiler does not see, in one question; without a compiler, all of them.
need_headers() { # package header, repeated
  local text="" package
  while [ $# -gt 0 ]; do
    text+="#if !__has_include(<$2>)"$'\n'"package: $1"$'\n'"#endif"$'\n'
    shift 2
  done
  if command -v g++ >/dev/null 2>&1; then
    text=$(g++ -E -P -x c++ - <<<"$text")
  fi
  for package in $(sed -n 's/^package: //p' <<<"$text"); do missing+=("$package"); done
}

need_command g++ g++
need_command cmake cmake
need_command ninja-build ninja
need_command pkg-config pkg-config
# GoogleTest is here because CMake looks for it whenever it configures with tests, built or not.
need_headers libfmt-dev fmt/format.h libexpected-dev tl/expected.hpp libpcre2-dev pcre2.h libcli11-dev CLI/CLI.hpp \
  nlohmann-json3-dev nlohmann/json.hpp libgtest-dev gtest/gtest.h libgmock-dev gmock/gmock.h
need_command python3 python3
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
[ -s /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)

if [ "$level" = test ]; then
  need_command git git
  need_command binutils objdump
  need_command clang-format-14 clang-format-14
  need_command clang-14 clang++-14
  # Clang's sanitizers and libFuzzer come as a package of their own: see whether it can link with them.
  clang++-14 -x c++ -fsanitize=fuzzer,address -o /dev/null - >/dev/null 2>&1 \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' || missing+=(libclang-rt-14-dev)
fi

[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if ! command -v apt-get >/dev/null 2>&1; then
  echo "bootstrap: no apt-get here; install what these Debian packages hold: ${missing[*]}" >&2
  exit 1
elif [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  else
    echo "bootstrap: needs root or sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

echo "bootstrap: installing ${missing[*]}" >&2
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >&2; }
# A list that cannot be refreshed matters only if the installation then fails.
apt update || true
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  echo "bootstrap: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
