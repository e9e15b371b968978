#!/usr/bin/env bash
# Make a virtual environment with the pinned versions.
# Usage: bootstrap.sh VENV [EXTRAS]     (EXTRAS: dev for the tests, nothing for the product alone)
set -euo pipefail
venv=$1
extras=${2:-}
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Specpilot needs Python 3.11 or newer; $python is $("$python" -V 2>&1 || echo missing)." >&2
  echo "Name another one: make PYTHON=python3.12 ..." >&2
  exit 1
fi
if [ ! -x "$venv/bin/python" ] && ! "$python" -m venv "$venv"; then
  rm -rf "$venv"
  echo "$python has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2
  exit 1
fi
printf 'Installing Specpilot%s into %s ' "${extras:+ with what its tests need}" "$venv"
# A dot a package: with cold caches and a slow line this takes minutes.
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
  -c constraints.txt -e ".${extras:+[$extras]}" |
  awk '/^(Collecting|Downloading|Installing)/ { printf "."; fflush() } END { print " done" }'
