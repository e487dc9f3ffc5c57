#!/usr/bin/env bash
# python_env.sh: prints the path of a Python that has the packages of tests/requirements.txt. It lives in the user's
# cache, made once per content of that file and Python by pip, set up as the user has set it up.
set -euo pipefail
requirements=$(dirname "$0")/../tests/requirements.txt
cache=${XDG_CACHE_HOME:-$HOME/.cache}/octalane
env=$cache/python-$({ python3 --version; cat "$requirements"; } | sha256sum | cut -c1-12)

if [ ! -e "$env/complete" ]; then
  echo "python_env: installing the packages of tests/requirements.txt" >&2
  mkdir -p "$cache"
  python3 -m venv --clear "$env" >&2
  "$env/bin/python" -m pip install --quiet --only-binary :all: -r "$requirements" >&2
  touch "$env/complete"
fi
echo "$env/bin/python"
