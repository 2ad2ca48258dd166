#!/bin/bash
# Creates the virtual environment and installs the locked dependencies in it: `tools/install.sh VENV LOCK_FILE`.
#
# Called by the Makefile, once per change of the lock file. The lock is for Python 3.11; with another version the
# ranges of pyproject.toml are installed, and a line says so. Set PYTHON to choose an interpreter.
set -euo pipefail

readonly venv=$1 lock_file=$2
readonly locked_version=3.11

# shellcheck source=tools/apt.sh
. "${BASH_SOURCE[0]%/*}/apt.sh"

# A name on PATH may be a stub that does not run, so each candidate is tried.
find_python() {
  local candidate
  for candidate in ${PYTHON:-"python$locked_version" python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

create_venv() {
  local python version
  if ! python=$(find_python); then
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python >= 3.10."
    apt_install python3 python3-venv
    python=$(find_python) || fail "python3 is older than 3.10: set PYTHON to a newer one."
  fi
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "python$version-venv"
  fi
  say "creating $venv with $python (Python $version)"
  "$python" -m venv --clear "$venv"
}

install_dependencies() {
  local version started=$SECONDS
  version=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  if [ "$version" = "$locked_version" ]; then
    say "installing the $(grep -c '==' "$lock_file") packages of $lock_file (TensorFlow is large: minutes)"
    "$venv/bin/python" -m pip install --quiet --requirement "$lock_file"
  else
    say "Python $version: $lock_file is for $locked_version, so the ranges of pyproject.toml are installed instead"
    "$venv/bin/python" -m pip install --quiet '.[serve,dev]'
    "$venv/bin/python" -m pip uninstall --quiet --yes gnmt_tf
  fi
  say "dependencies installed in $((SECONDS - started)) s"
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  create_venv
fi
install_dependencies
