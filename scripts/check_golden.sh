#!/usr/bin/env bash
# check_golden.sh: makes every golden file anew with the script beside it (tests/*/make_*.py, which ask independent Python
# packages) and compares with what is committed. Works on a copy; the tree stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/python_env.sh)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R tests "$copy/"

for script in tests/*/make_*.py; do
  echo "$script"
  (cd "$copy" && PYTHONDONTWRITEBYTECODE=1 "$python" "$script" >/dev/null)
done
diff -r -q -x __pycache__ tests "$copy/tests"
