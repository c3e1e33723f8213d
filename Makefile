# Every habit is a target. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help demo test bench-admission control-plane build fmt lint tidy crds bench soak mutants

CARGO ?= cargo
# The tool of `make mutants`.
MUTANTS_VERSION := 27.1.0

help: ## Lists the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: tools port control-plane ## Shows thirty Jobs of two teams on a real control plane; KEEP=1 leaves it up
	@echo "demo: building Sluice" >&2
	@$(CARGO) build --workspace --bins
	@SLUICE_TESTKIT_BUILT=1 RUST_LIB_BACKTRACE=0 KEEP=$(KEEP) target/debug/demo

test: tools port ## Everything: format, lints, tidy, CRDs, unit, property and end-to-end tests
	@tests/run

bench-admission: tools port control-plane ## Admission against the bare API server; appends to target/bench/results.jsonl
	@echo "bench-admission: building Sluice" >&2
	@$(CARGO) build --workspace --release --bins
	@SLUICE_TESTKIT_BUILT=1 RUST_LIB_BACKTRACE=0 target/release/bench-admission

bench: tools ## The engine's benchmarks; append to target/bench/results.jsonl
	@$(CARGO) bench -p sluice-engine --benches

soak: tools ## Compares the engine with its naive twin in random worlds for hours: make soak [SEED=n] [WORLDS=n]
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "soak: seed=$$seed"; \
	PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=$${WORLDS:-500000} $(CARGO) test -p sluice-engine --test engine random

# Few and fixed worlds, so that two runs agree: not shrunk and not written down, or a mutant would meet those that
# killed one before it. The limit of memory is for mutants that never stop gathering.
mutants: tools target/tools/bin/cargo-mutants ## Changes the rules' code and looks which tests notice: make mutants [SHARD=k/n] [JOBS=n]
	@mkdir -p target/mutants
	@ulimit -v 4194304; \
	PATH="$(CURDIR)/target/tools/bin:$$PATH" PROPTEST_CASES=16 PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 \
	PROPTEST_DISABLE_FAILURE_PERSISTENCE=true env -u CARGO_TARGET_DIR \
	$(CARGO) mutants --package sluice-engine --shard $${SHARD:-0/10} --sharding round-robin --no-shuffle \
	--jobs $${JOBS:-2} --timeout $${TIMEOUT:-120}

target/tools/bin/cargo-mutants:
	$(CARGO) install cargo-mutants --version $(MUTANTS_VERSION) --locked --root target/tools

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

.PHONY: tools port
tools:
	@[ "$$(uname -s)" = Linux ] || { echo "Sluice is built and tried on Linux alone" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler (cc) is missing: install gcc or clang with your system's packages" >&2; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.89 or later, https://rustup.rs" >&2; exit 1; }
	@command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later, https://go.dev/dl (it builds the control plane for demo and tests)" >&2; exit 1; }

# The API server calls webhooks at port 443. Told here, before minutes of building; the programs try it themselves too.
# Bit 10 of the effective capabilities is CAP_NET_BIND_SERVICE: root has it, as a rule.
port:
	@[ "$$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start 2>/dev/null || echo 1024)" -le 443 ] || \
	[ "$$(( 0x$$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status) >> 10 & 1 ))" = 1 ] || \
	{ echo 'port 443 needs root or `sysctl net.ipv4.ip_unprivileged_port_start=443`' >&2; exit 1; }
