# Two commands do everything: `make demo` shows it, `make test` checks it. Both install what is missing first.

SHELL := /bin/bash
# A toolchain that tools/setup.sh has just installed is not yet in anybody's PATH.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@printf 'make …\n'
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s%s\n", $$1, $$2 }'

.PHONY: demo
demo: ## build, serve the demo, bench it for ten seconds, leave it serving until Ctrl-C
	@tools/setup.sh demo
	@tools/demo.sh

.PHONY: test
test: ## the tests and checks for every change, on the development build
	@tools/setup.sh test
	@cargo xtask ci

.PHONY: test-apps
test-apps: ## applications behind the accelerator: WordPress, MediaWiki, Django, Express, gRPC, apt, pip, git, …
	@tools/setup.sh apps
	@cargo xtask ci apps

.PHONY: soak
soak: ## the release build and its end-to-end tests, property tests with new cases, cargo-deny
	@tools/setup.sh soak
	@cargo xtask ci e2e-release new-cases deny

.PHONY: build
build: ## the release binary, target/release/flatout
	@tools/setup.sh demo
	@cargo build --release --package flatout

.PHONY: bench-peers
bench-peers: ## the cost of flatout beside other servers, caches and load generators: suites/peers.kdl (ARGS=--quick)
	@tools/setup.sh bench
	@cargo build --release --package flatout
	@PATH=$$PWD/target/tools/bin:$$PATH target/release/flatout suite run suites/peers.kdl suites/query.kdl suites/php.kdl $(ARGS)

.PHONY: bench-overload
bench-overload: ## goodput under overload, and requests beside waiting ones, compared with other servers (ARGS=--quick)
	@tools/setup.sh bench
	@cargo build --release --package flatout
	@PATH=$$PWD/target/tools/bin:$$PATH target/release/flatout suite run suites/overload.kdl suites/waits.kdl $(ARGS)

.PHONY: bench-long-link
bench-long-link: ## a download over a long link, with and without the limit of unsent data (as root) (ARGS=--quick)
	@tools/setup.sh bench
	@cargo build --release --package flatout
	@target/release/flatout suite run suites/long-link.kdl $(ARGS)

.PHONY: fmt
fmt: ## format every source file
	@cargo fmt --all

.PHONY: fuzz
fuzz: ## a minute of each fuzzer, or of FUZZER=NAME (needs a nightly toolchain and cargo-fuzz)
	@tools/fuzz.sh
