#!/usr/bin/env bash
# Serves the demo site (files and a few active pages), measures it, and leaves it serving until Ctrl-C.
#
# On a machine with at least two cores, server and client run on separate cores. The script first measures the cost of a
# request at full speed, compared with the bare loop, and then response times at a twentieth of that rate.
#
#   DEMO_LISTEN=ADDR:PORT   where to listen (127.0.0.1:8080)
#   DEMO_SECONDS=N          how long to measure in total (10)
#   DEMO_ONCE=1             exit after the measurements
#   FLATOUT_BIN=FILE        a binary that is already built
set -euo pipefail

# On a terminal, Ctrl-C reaches the whole foreground process group, and make would report an error. This script therefore
# runs itself again as a separate foreground job, so that only this job receives the signal.
if [ -z "${DEMO_INNER:-}" ] && [ -t 0 ]; then
  set -m
  DEMO_INNER=1 bash "${BASH_SOURCE[0]}"
  exit
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."

listen=${DEMO_LISTEN:-127.0.0.1:8080}
seconds=${DEMO_SECONDS:-10}
url=http://$listen/
server=
# Commands that pin the server to the first of this process's cores, and the client to the others.
on_server=() on_client=()
mapfile -t cores < <(taskset --cpu-list --pid $$ 2>/dev/null | sed 's/.*: *//' | tr ',' '\n' |
  while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
if [ "${#cores[@]}" -ge 2 ]; then
  on_server=(taskset --cpu-list "${cores[0]}")
  on_client=(taskset --cpu-list "$(IFS=,; echo "${cores[*]:1}")")
fi

say() { printf '\n%s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Checks whether something already listens there.
is_taken() {
  local host=${listen%:*}
  host=${host#[}
  (exec 3<>"/dev/tcp/${host%]}/${listen##*:}") 2>/dev/null
}

# Stops the server gracefully and exits with its exit code.
stop() {
  local code=$?
  trap - EXIT INT TERM
  rm -f "$result"
  if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then
    wait "$server" || { code=$?; printf 'demo: the server exited with code %s\n' "$code" >&2; }
  fi
  exit "$code"
}

if is_taken; then
  fail "$listen is in use; choose another address: DEMO_LISTEN=127.0.0.1:8081 make demo"
fi

flatout=${FLATOUT_BIN:-}
if [ -z "$flatout" ]; then
  cargo build --release --package flatout
  flatout=${CARGO_TARGET_DIR:-target}/release/flatout
fi

result=$(mktemp)
trap stop EXIT
trap 'exit 0' INT TERM

# Job control puts the server into a separate process group: Ctrl-C reaches only this script, which then stops the server.
set -m
DEMO_LISTEN=$listen DEMO_URL=http://$listen "${on_server[@]}" "$flatout" run -c demo/flatout.kdl &
server=$!
set +m
for _ in $(seq 100); do
  if is_taken; then break; fi
  kill -0 "$server" 2>/dev/null || { server=; fail "the server did not start"; }
  sleep 0.05
done
sleep 0.1 # the server listens shortly before it prints that it does

measure() {
  say "\$ flatout bench $*"
  "${on_client[@]}" "$flatout" bench "$@" --json "$result"
}

half=$(((seconds + 1) / 2))
say "1. What does a request cost? As many requests as 64 connections allow, compared with the minimum cost on this machine."
measure "$url" -d "${half}s" --limit
# Omits the decimal places.
reached=$(sed -n '/"responses_per_s"/{s/[^:]*: *\([0-9]*\).*/\1/p;q}' "$result")
# Up to 2,000 requests/s, the client does not sleep between requests, so response times do not include its wake-up time.
rate=$((${reached:-0} / 20))
rate=$((rate > 2000 ? 2000 : rate < 20 ? 20 : rate))
say "2. How long does a visitor wait? A steady $rate requests/s, at most a twentieth of the rate above."
measure "$url" --rate "$rate" -d "${half}s"

if [ "${DEMO_ONCE:-}" = 1 ]; then
  exit 0
fi
say "Still serving $url. Press Ctrl-C to stop."
wait "$server"
