#!/bin/bash
# The whole way in one run: make a corpus and a vocabulary, train, measure, export, serve, and ask the server.
#
# Run by `make demo`; needs `gnmt` and `python` on PATH. Everything it writes is under ./demo. It may be stopped at
# any point and started again: finished steps are not repeated and training resumes from its last checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly config=configs/demo_en_fr.yaml
readonly start_timeout_seconds=${DEMO_SERVER_TIMEOUT_SECONDS:-300}
server_pid=
current_step=preparation

stop_server() {
  [ -n "$server_pid" ] || return 0
  kill -TERM "$server_pid" 2>/dev/null || true
  for _ in $(seq 150); do
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
  server_pid=
}

on_exit() {
  local status=$?
  trap '' INT TERM HUP
  stop_server
  case $status in
    0) ;;
    129 | 130 | 143)
      echo "demo: stopped during: $current_step. Run \`make demo\` again to go on from there." >&2
      ;;
    *)
      echo "demo: FAILED (status $status) during: $current_step. The lines above say why;" \
        "what was finished before is kept." >&2
      ;;
  esac
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

announce() {
  current_step=$1
  shift
  printf '\n== %s\n$ %s\n' "$current_step" "$*"
}

step() {
  announce "$@"
  "${@:2}"
}

# Runs a step unless it has already succeeded with the same command and the same inputs:
# `step_once STAMP INPUTS_CHECKSUM TITLE COMMAND...`.
step_once() {
  local stamp=demo/.done/$1 key="$2 ${*:4}"
  shift 2
  if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$key" ]; then
    announce "$@"
    echo "(done before; remove ./demo to start afresh)"
    return
  fi
  step "$@"
  printf '%s\n' "$key" >"$stamp"
}

# TensorBoard's event files grow even when a run has nothing left to do.
model_checksum() {
  find demo/model -type f ! -name 'events.*' -exec cksum {} + | sort | cksum
}

start_server() {
  local log=demo/server.log
  : >"$log"
  announce "Serve the exported model" gnmt serve --model_base_path demo/export --port 0 "2>$log" "&"
  gnmt serve --model_base_path demo/export --port 0 >>"$log" 2>&1 &
  server_pid=$!
  local deadline=$((SECONDS + start_timeout_seconds))
  while address=$(sed -n 's/^Serving .* on \([^ ]*:[0-9]*\)$/\1/p' "$log") && [ -z "$address" ]; do
    if ! kill -0 "$server_pid" 2>/dev/null; then
      tail -n 20 "$log" >&2
      echo "demo: the server ended before it was ready" >&2
      return 1
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 20 "$log" >&2
      echo "demo: the server was not ready after $start_timeout_seconds s" >&2
      return 1
    fi
    sleep 0.2
  done
  echo "ready on $address"
}

# Five lines from all over the file, the same ones for source and reference.
sample_lines() {
  local stride=$(($(wc -l <"$1") / 5))
  awk -v stride="$((stride > 0 ? stride : 1))" '(NR - 1) % stride == 0 && ++taken <= 5' "$1"
}

if [ ! -r "$config" ]; then
  echo "demo: $config is missing" >&2
  exit 1
fi
mkdir -p demo/.done
step_once data - "Make a corpus" \
  gnmt demo-data --output_dir demo/data --target_language fr
step_once vocabulary "$(cat "$config" demo/data/train.* | cksum)" "Make a vocabulary" \
  gnmt vocab --config "$config" --output demo/vocabulary.json
step "Train" \
  gnmt train --config "$config" --model_dir demo/model
step_once evaluation "$(model_checksum)" "Measure on text it has not seen" \
  gnmt evaluate --model_dir demo/model --source demo/data/test.en --reference demo/data/test.fr \
  --json demo/evaluation.json
step_once export "$(model_checksum)" "Export for serving" \
  gnmt export --model_dir demo/model --export_dir demo/export
start_server
sample_lines demo/data/test.en >demo/sample.en
sample_lines demo/data/test.fr >demo/sample.reference.fr
step "Translate five lines through the server" \
  gnmt client --server "$address" --input demo/sample.en --output demo/sample.translated.fr
stop_server
current_step="Summary"
printf '\n== Summary\n'
python examples/demo_summary.py demo "$SECONDS"
