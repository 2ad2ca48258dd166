#!/bin/bash
# Runs Bazel, installing Debian's first if there is none: `tools/bazel.sh test //:engine_test`. Called by the Makefile.
set -euo pipefail

. "${BASH_SOURCE[0]%/*}/apt.sh"

command -v bazel >/dev/null || apt_install bazel-bootstrap g++
cd "${BASH_SOURCE[0]%/*}/.."
# Without a server that stays behind.
exec bazel --batch "$@"
