#!/bin/bash
# Renews the lock file from the ranges of pyproject.toml, in a clean environment that is removed afterwards:
# `tools/lock.sh LOCK_FILE`.
set -euo pipefail

readonly lock_file=$1
readonly python=${PYTHON:-python3.11}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "lock: resolving the runtime and the extras serve and dev with $("$python" --version)"
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check '.[serve,dev]'
{
  echo "# Python 3.11 on Linux x86-64: the runtime and the extras \`serve\` and \`dev\`. Made by \`make lock\`."
  "$scratch/venv/bin/python" -m pip freeze --all --exclude gnmt_tf --exclude pip
} >"$scratch/lock"
cp "$scratch/lock" "$lock_file"
echo "lock: $(grep -c '==' "$lock_file") packages in $lock_file"
