#!/usr/bin/env bash
# format.sh format|format-check: clang-format over every C++ file that git knows or would add.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.c' '*.cpp' '*.cu' '*.cuh')
case ${1:-} in
  format) clang-format-14 -i "${files[@]}" ;;
  format-check) clang-format-14 --dry-run -Werror "${files[@]}" ;;
  *)
    echo "usage: format.sh format|format-check" >&2
    exit 2
    ;;
esac
