#!/usr/bin/env bash
# Make a virtual environment with the pinned versions. Usage: bootstrap.sh VENV [PIP ARGUMENTS]
set -euo pipefail
venv=$1; shift
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
echo "Installing Specpilot into $venv (about a minute the first time) ..."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  -c constraints.txt -e '.[dev]' "$@"
touch "$venv/.installed"
