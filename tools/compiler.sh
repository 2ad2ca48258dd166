#!/bin/bash
# Makes sure that there is a C++ compiler: `tools/compiler.sh CXX`. Called by the Makefile before it builds the engine.
set -euo pipefail

. "${BASH_SOURCE[0]%/*}/apt.sh"

command -v "$1" >/dev/null || apt_install g++
