#!/usr/bin/env bash
# Runs the fuzzers coverage-guided: each for FUZZ_SECONDS (60), or the one that FUZZER names.
# `make test` runs the same fuzzers for a moment, without the nightly compiler that this needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-60}
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo 'fuzz: needs a nightly toolchain, cargo-fuzz and a C++ compiler:' >&2
  echo '  rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz --locked' >&2
  exit 1
fi

# Every fuzzer that the smoke run names, save the canary, which must fail. So shortly run, the smoke run itself may not
# find the canary's defect, and then fails; only its words matter here.
all_fuzzers() { (cargo run --quiet --package flatout-fuzz --bin smoke -- 1 || true) | awk '/no failure/ { print $1 }'; }

# The release profile's whole-program optimisation drops symbols that the coverage instrumentation refers to.
export CARGO_PROFILE_RELEASE_LTO=off

for name in ${FUZZER:-$(all_fuzzers)}; do
  printf '━━━ %s, %s s\n' "$name" "$seconds"
  mkdir -p "fuzz/corpus/$name"
  flags=()
  # One of the h2 crate's debug assertions does not hold: Cargo.toml.
  [ "$name" != http2_oracle ] || flags=(--release)
  FUZZER=$name cargo +nightly fuzz run "${flags[@]}" --features libfuzzer any "fuzz/corpus/$name" -- "-max_total_time=$seconds"
done
