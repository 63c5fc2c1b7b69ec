#!/usr/bin/env bash
# Serves the demo, which is files and a few active pages, benches it with the machine's limit beside it, and leaves it serving until Ctrl-C.
#
#   DEMO_LISTEN=ADDR:PORT   where to listen (127.0.0.1:8080)
#   DEMO_SECONDS=N          how long to bench (10)
#   DEMO_ONCE=1             end by itself after the bench
#   FLATOUT_BIN=FILE        a binary that is already built
set -euo pipefail

# On a terminal, Ctrl-C reaches the whole foreground process group, and make would report its own death. So this
# script runs itself once more as a foreground job of its own, which alone sees the key.
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

say() { printf '\n%s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Whether something answers there already.
is_taken() {
  local host=${listen%:*}
  host=${host#[}
  (exec 3<>"/dev/tcp/${host%]}/${listen##*:}") 2>/dev/null
}

# Asks the server to finish what is under way, and ends with its own verdict of that.
stop() {
  local code=$?
  trap - EXIT INT TERM
  if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then
    wait "$server" || { code=$?; printf 'demo: the server ended with %s\n' "$code" >&2; }
  fi
  exit "$code"
}

if is_taken; then
  fail "$listen is taken; choose another place: DEMO_LISTEN=127.0.0.1:8081 make demo"
fi

flatout=${FLATOUT_BIN:-}
if [ -z "$flatout" ]; then
  cargo build --release --package flatout
  flatout=${CARGO_TARGET_DIR:-target}/release/flatout
fi

trap stop EXIT
trap 'exit 0' INT TERM

# Job control gives the server a process group of its own: Ctrl-C reaches this script alone, which then stops it.
set -m
DEMO_LISTEN=$listen DEMO_URL=http://$listen "$flatout" run -c demo/flatout.kdl &
server=$!
set +m
for _ in $(seq 100); do
  if is_taken; then break; fi
  kill -0 "$server" 2>/dev/null || { server=; fail "the server did not start"; }
  sleep 0.05
done
sleep 0.1 # it listens a moment before it says so

say "\$ flatout bench $url -d ${seconds}s --limit"
verdict=0
"$flatout" bench "$url" -d "${seconds}s" --limit || verdict=$?
case $verdict in
  0) ;;
  # Server and client share this machine here, so the lab may well find that its client was the limit: a demo of it as well.
  5) say "The lab does not believe this run, and says above why: server and client share the cores of one machine." ;;
  *) exit "$verdict" ;;
esac

if [ "${DEMO_ONCE:-}" = 1 ]; then
  exit 0
fi
say "Still serving $url – Ctrl-C ends it."
wait "$server"
