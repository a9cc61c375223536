#!/bin/sh
# Prints the newest Python >= 3.11 of this machine that can make a virtual environment: of the names on PATH, and of the
# versions that pyenv has installed. A name may be a shim that does not run, so each candidate is asked.
best="" best_version=0
for python in $(
  for name in python3.14 python3.13 python3.12 python3.11 python3 python; do command -v "$name"; done
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python 2>/dev/null
); do
  version=$("$python" -c '
import sys, ensurepip, venv
print(sys.version_info[0] * 1000 + sys.version_info[1] if sys.version_info[:2] <= (3, 14) else 0)
' 2>/dev/null) || continue
  if [ "${version:-0}" -ge 3011 ] && [ "$version" -gt "$best_version" ]; then
    best=$python best_version=$version
  fi
done
if [ -z "$best" ]; then
  echo "No Python >= 3.11 with venv and ensurepip was found. Install one, or put it on PATH." >&2
  exit 1
fi
echo "$best"
