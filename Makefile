# Every habit is a target. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help demo test bench-admission control-plane build fmt lint tidy crds

CARGO ?= cargo

help: ## Lists the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: tools control-plane ## Shows thirty Jobs of two teams on a real control plane; KEEP=1 leaves it up
	@echo "demo: building Sluice" >&2
	@$(CARGO) build --workspace --bins
	@SLUICE_TESTKIT_BUILT=1 KEEP=$(KEEP) target/debug/demo

test: tools ## Everything: format, lints, tidy, CRDs, unit, property and end-to-end tests
	@tests/run

bench-admission: tools control-plane ## Admission against the bare API server; appends to target/bench/results.jsonl
	@echo "bench-admission: building Sluice" >&2
	@$(CARGO) build --workspace --release --bins
	@SLUICE_TESTKIT_BUILT=1 target/release/bench-admission

control-plane: tools ## Builds etcd, Kubernetes, kwok and helm under target/, once
	@tests/control-plane/build.sh target/control-plane

build: ## Builds all binaries
	$(CARGO) build --workspace --bins

fmt: ## Formats all Rust code
	$(CARGO) fmt --all

lint: ## Clippy, as CI runs it
	$(CARGO) clippy --workspace --all-targets -- -D warnings

tidy: ## The repository's own rules: dependencies, purity, licences, file sizes
	$(CARGO) xtask tidy

crds: ## Writes the CRDs of the chart from crates/api
	$(CARGO) xtask crds

.PHONY: tools
tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.89 or later, https://rustup.rs" >&2; exit 1; }
	@command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later, https://go.dev/dl (it builds the control plane for demo and tests)" >&2; exit 1; }
