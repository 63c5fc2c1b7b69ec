#!/usr/bin/env bash
# Runs each fuzz target under libFuzzer for FUZZ_SECONDS (60). `make test` runs the same targets shortly without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-60}
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo 'fuzz: needs a nightly toolchain and cargo-fuzz:' >&2
  echo '  rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz --locked' >&2
  exit 1
fi
for target in $(cargo +nightly fuzz list); do
  printf '━━━ %s, %s s\n' "$target" "$seconds"
  cargo +nightly fuzz run "$target" -- "-max_total_time=$seconds"
done
