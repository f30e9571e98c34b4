#!/usr/bin/env bash
# Make the virtual environment DIR with PYTHON, after checking what a build needs.
# Usage: make_venv.sh PYTHON DIR
set -euo pipefail
python=$1 dir=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "Mooncake needs Python 3.10 or newer; $python is $("$python" -V 2>&1). Try: make PYTHON=python3.11" >&2
  exit 1
}

missing=()
command -v c++ >/dev/null || missing+=(g++)
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
"$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' \
  || missing+=(python3-dev)
if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]}" >&2
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q "${missing[@]}" >&2
  else
    echo "missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

rm -rf "$dir"
"$python" -m venv "$dir"
