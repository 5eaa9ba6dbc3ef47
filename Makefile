# Everything here needs Go and make, the race detector a C compiler as well, and some
# tests servers, which "make servers" installs where it can. "make help" lists the
# targets. Each step of "make test" and "make check" is a target of its own, so that
# the one that failed can be run alone.

.DEFAULT_GOAL := help

# --- What runs where. To add a step: write its target, then list it here. -----

# Done in this order by "make test": quick ones first. They install nothing.
TEST_STEPS := fmt vet arch quick-race simulation quick conformance-quick system
# By "make test-all".
ALL_STEPS := servers fmt vet arch unit race simulation conformance conformance-servers system demo-test browser command examples bench-test validators
# What .ci/run does after the steps of "make test": the servers that all of it needs,
# then what every change needs, what has found most first.
CI_STEPS := servers modules race-others conformance conformance-servers faults system-long docs command analysis mutants-changed
# What "make check" does after those: what takes long, or rarely breaks.
LONG_STEPS := simulation-long conformance-more mutants follower-long demo-test browser demo-seeds examples bench-test \
	validators fuzz cross mod vuln

# Packages that are tested under the race detector; the others are in "unit".
# Regular expressions over the path below the module's.
RACED := core|core/driver|observe/tenure(http|prom|otel)|tenurefx|(backends|conformance|fence|follower|sharding)(/.*)?|internal/(changelog|route|sidecar|proof/(faultproxy|history(/.*)?|system|harness|intercept|kvfault|outage|servers|sqlfault))
# Those of them that "make test" tests under it. The others' tests it runs without.
QUICK_RACED := core|core/driver|observe/tenurehttp|backends/memory
# Packages, and tests of internal/fsm, that have a step of their own.
OWN_STEP := internal/proof/(archtest|doctest)|cmd/demo(/.*)?
# Those that kill, stop and cut real servers; they take minutes.
FAULTS := backends/(sql/(postgres|mysql)|etcd|consul|zookeeper|redis)|conformance/containers|internal/proof/servers|follower/stores
CONFORMANCE_MORE := ^TestConformance(Restart|Network|Cluster|Sentinel|Three|Ensemble)
SUITES := ^Test(Conformance|System|Control|Served|Browser)
OWN_STEP_TESTS := ^Test(Simulation|OutageEvictsNobody|MassDeathOfHundreds)$$
# Backends that must pass conformance on a machine without any server, and those
# whose tests start one.
EMBEDDED := ./backends/memory ./backends/sql/sqlite
SERVED := ./backends/sql/postgres ./backends/sql/mysql ./backends/etcd ./backends/zookeeper ./backends/consul ./backends/redis
# Packages that play the system suite. Those of SERVED have to.
SYSTEM := ./internal/proof/system $(SERVED)
# Platforms that the library is compiled for, as GOOS/GOARCH.
PLATFORMS := darwin/arm64 windows/amd64 linux/arm64
# Modules that must be tidy, and those whose dependencies are only compared with their
# go.sum: it has what building them needs, while tidy asks for the tests of what they
# depend on as well. Of tools/consul the checksum database lacks some.
MODULES := . examples bench
TOOLS := tools/etcd tools/manifests

# --- Sizes, to be changed on the command line: make simulation SEEDS=50. ------

SEEDS ?= 500
SEEDS_LONG ?= 20000
SEEDS_RACE ?= 100
SYSTEM_SEEDS ?= 2
# Two seeds at a time keep two cores busy; each has a server of its own.
SYSTEM_PARALLEL ?= 2
GUARANTEE_SEEDS ?= 100
GUARANTEE_CONTROLS ?= 20
CONFORMANCE_COUNT ?= 2
QUICK_AREAS ?= Acquire
# A number of inputs: up to Go 1.27 a target may fail as its time is up (golang.org/issue/75804).
FUZZTIME ?= 20000x
DEMO_SEEDS ?= 1 2 3
ROUNDS ?= 2
KILLS ?= 10
ENTRIES ?= 100000
BLOCKED ?= 10s
BENCH ?= .
BENCH_ROUNDS ?= 5

# The go command turns cgo off where it finds no C compiler. SQLite's own code, C turned
# into Go, takes four times as long under the detector and is not ours to test.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race $(foreach p,sqlite/lib libc,-gcflags=modernc.org/$(p)=-race=false))
define say-race
	@[ -n "$(RACE)" ] || { \
		echo "no C compiler, which the race detector needs (apt-get install gcc): running without it"; \
		[ -z "$(CI)" ] || { echo "on CI it is required"; exit 1; }; }
endef

# Less garbage collection than by default takes a third off what compiles or simulates.
LESS_GC := env GOGC=400

# The step vet has vetted all of it.
GOTEST := go test -vet=off -shuffle=on
packages = go list ./... | sed "s|^$$(go list -m)|.|"

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "%-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test test-all check check-ci check-long
test: ## What is quick, with the servers that are there: under 3 minutes on 2 cores
	@MAKE="$(MAKE)" .ci/steps $(TEST_STEPS)
	@internal/proof/servers/install.sh --missing
test-all: ## All that is not slow, after make servers: under 10 minutes on 2 cores
	@MAKE="$(MAKE)" .ci/steps $(ALL_STEPS)
check: ## All there is, nightly and before a release: test, check-ci, check-long; over an hour on 2 cores
	@TENURE_REQUIRE_SERVERS= MAKE="$(MAKE)" .ci/steps $(TEST_STEPS)
	@$(MAKE) --no-print-directory check-ci check-long
check-ci: ## What .ci/run does after make test: all that every change needs, half an hour with it
	@MAKE="$(MAKE)" .ci/steps $(CI_STEPS)
check-long: servers ## The rest of make check: long simulations, all mutants, fuzzing, other platforms
	@MAKE="$(MAKE)" .ci/steps $(LONG_STEPS)

.PHONY: lint
lint: fmt vet arch analysis ## fmt, vet, arch, analysis

.PHONY: fmt
fmt: ## Fail if a file is not as gofmt writes it
	@bad=$$(find . -name '*.go' -not -path './.*/*' -exec "$$(go env GOROOT)/bin/gofmt" -l {} +) || exit 1; \
	[ -z "$$bad" ] || { echo "not formatted, run gofmt -w on:"; echo "$$bad"; exit 1; }

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: arch
arch: ## Import rules, no hidden state, licences of dependencies
	$(GOTEST) -timeout=1m ./internal/proof/archtest

.PHONY: servers
servers: ## Install the servers that tests need, where that is possible
	internal/proof/servers/install.sh

.PHONY: unit
unit: ## Tests of the packages that share nothing between goroutines
	$(GOTEST) -timeout=5m -skip='$(OWN_STEP_TESTS)' \
		$$($(packages) | grep -vE '^\./($(RACED)|$(OWN_STEP))$$')

# Two packages at a time: most of these tests wait, some compute.
.PHONY: race race-others
race-others: RACED_BEFORE := |$(QUICK_RACED)
race race-others: ## The others' tests under the race detector, and a short simulation; race-others leaves out those of quick-race
	$(say-race)
	$(GOTEST) $(RACE) -timeout=10m -p=2 -skip='$(SUITES)' \
		$$($(packages) | grep -E '^\./($(RACED))$$' | grep -vE '^\./($(FAULTS)$(RACED_BEFORE))$$')
	.ci/named '^TestSimulation$$' $(RACE) -timeout=5m ./internal/fsm -args -seeds=$(SEEDS_RACE)

# Four packages at a time: most of these tests wait.
.PHONY: quick quick-race
quick: ## Tests of every package that needs no server
	$(GOTEST) -timeout=5m -p=4 -parallel=8 -skip='$(SUITES)|$(OWN_STEP_TESTS)' \
		$$($(packages) | grep -vE '^\./($(QUICK_RACED)|$(FAULTS)|$(OWN_STEP))$$')
quick-race: ## The core's and the memory backend's tests under the race detector
	$(say-race)
	$(GOTEST) $(RACE) -timeout=5m -p=2 -skip='$(SUITES)' $$($(packages) | grep -E '^\./($(QUICK_RACED))$$')

# Two packages at a time: each has its own servers, and mostly waits for them.
.PHONY: faults
faults: ## Tests that kill, stop and cut real servers, under the race detector
	$(say-race)
	$(GOTEST) $(RACE) -timeout=10m -p=2 -skip='$(SUITES)' $$($(packages) | grep -E '^\./($(FAULTS))$$')

.PHONY: simulation simulation-long
simulation: ## The state machine against a model store, SEEDS runs
	$(LESS_GC) .ci/named '^Test(Simulation|OutageEvictsNobody)$$' -timeout=8m ./internal/fsm -args -seeds=$(SEEDS)
simulation-long: ## The same, SEEDS_LONG runs, and the death of 440 members at once
	$(LESS_GC) .ci/named '^Test(Simulation|OutageEvictsNobody|MassDeathOfHundreds)$$' -timeout=15m ./internal/fsm -args -seeds=$(SEEDS_LONG)

# MUTANTS_BASE is a commit whose mutants all die; without one there is no telling.
MUTANTS_BASE ?=
MUTATED := ./core ./internal/fsm ./follower ./sharding ./tenuretest ./internal/sidecar ./backends/memory ./internal/route \
	./internal/changelog \
	./backends/sql/sqlite ./backends/sql/postgres ./backends/sql/mysql ./backends/etcd ./backends/zookeeper ./backends/consul \
	./backends/redis
.PHONY: mutants mutants-changed
mutants: ## Broken cores and backends, which the test named, or the simulation, must find
	$(LESS_GC) .ci/named '^TestMutants$$' -timeout=40m -p=2 $(MUTATED) -args -mutants
mutants-changed: ## Those of the packages that differ from MUTANTS_BASE, a commit; all where none is given
	$(LESS_GC) .ci/named '^TestMutants$$' -timeout=40m -p=2 $(MUTATED) -args -mutants='$(MUTANTS_BASE)'

# Two or three backends at a time: their cases mostly wait.
.PHONY: conformance conformance-long conformance-quick conformance-servers conformance-more
conformance: ## The conformance suite on the embedded backends
	$(say-race)
	.ci/named '^TestConformance' $(RACE) -timeout=5m -p=3 $(EMBEDDED)
conformance-servers: ## The suite on the backends that need a server, in each mode, with its cases of a server that is cut off or takes less
	.ci/named '^TestConformance' -skip='$(CONFORMANCE_MORE)' -timeout=10m -p=2 -parallel=4 $(SERVED)
conformance-more: ## The suite on three servers, through a bad network, and its cases of restarted servers
	.ci/named '$(CONFORMANCE_MORE)' -timeout=10m -p=2 $(SERVED)
conformance-quick: ## The suite on the embedded backends, and QUICK_AREAS of it where a server is there
	.ci/named '^TestConformance' -timeout=5m -p=3 -parallel=8 $(EMBEDDED)
	.ci/named '^TestConformance$$/^($(QUICK_AREAS))$$' -timeout=5m -p=5 -parallel=8 $(SERVED)
conformance-long: ## The embedded ones CONFORMANCE_COUNT times; 20 before a release
	$(say-race)
	.ci/named '^TestConformance' $(RACE) -timeout=20m -p=1 -count=$(CONFORMANCE_COUNT) $(EMBEDDED)

.PHONY: demo demo-test demo-seeds
demo: ## Run the demonstration, with SEED=n the run of that seed
	go run ./cmd/demo $(if $(SEED),-seed $(SEED))
demo-test: ## Tests of the demonstration
	$(GOTEST) -timeout=5m -p=1 ./cmd/demo/...
demo-seeds: ## The demonstration with each of DEMO_SEEDS, and without the fence
	.ci/demo $(DEMO_SEEDS)

# The tests of Prometheus mostly wait, so they go on beside it.
.PHONY: browser
browser: ## The board in a real Chromium, and the alerts in a real Prometheus
	.ci/named '^Test(Browser|Scrape)' -timeout=5m -p=2 ./observe/tenurehttp ./deploy/prometheus

.PHONY: command
command: ## The command tenure: each subcommand on every store, and ROUNDS faults of each kind to tenure run, and some to serve
	.ci/named '^Test(Commands|Served|Run|ServedRun|KilledTool)$$' -timeout=9m -parallel=12 ./cmd/tenure -args -rounds=$(ROUNDS)
	.ci/named '^TestServe(dSidecars)?$$' -timeout=5m -parallel=8 ./cmd/tenure

.PHONY: system system-long
system: ## Real processes and faults, SYSTEM_SEEDS runs, and the control that must fail
	.ci/named '^Test(System|Control)$$' -timeout=10m -p=1 ./internal/proof/system -args -system.seeds=$(SYSTEM_SEEDS) -system.parallel=$(SYSTEM_PARALLEL)
system-long: ## The same on every backend, and on three servers where there can be so many
	.ci/named '^Test(System|Control)' -timeout=15m -p=1 $(SERVED) -args -system.seeds=$(SYSTEM_SEEDS) -system.parallel=$(SYSTEM_PARALLEL)

# Not a step: it takes about an hour, and its numbers want a quiet machine.
.PHONY: guarantees
guarantees: export TENURE_CONFORMANCE_REPORT := $(CURDIR)/docs/reports
guarantees: servers ## Measure every backend; writes docs/reports and docs/guarantees.md
	.ci/named '^TestConformance(Restart)?$$' -shuffle=off -count=1 -timeout=20m -p=1 $(EMBEDDED) $(SERVED)
	.ci/named '^TestSystem$$' -count=1 -timeout=60m -p=1 $(SYSTEM) -args -system.seeds=$(GUARANTEE_SEEDS) -system.parallel=$(SYSTEM_PARALLEL)
	.ci/named '^TestControl$$' -count=1 -timeout=60m -p=1 $(SYSTEM) -args -system.seeds=$(GUARANTEE_CONTROLS) -system.parallel=$(SYSTEM_PARALLEL)
	go test -count=1 ./conformance -run '^TestGuarantees$$' -args -update

.PHONY: follower-long
follower-long: ## Followers killed KILLS times, over ENTRIES entries, BLOCKED for a while; on every store
	$(GOTEST) -v -timeout=15m ./follower/stores -args -all -kills=$(KILLS) -entries=$(ENTRIES) -lagfor=5s -blocked=60s

.PHONY: modules examples
modules: ## Vet the modules beside this one, which a change of a name breaks
	cd examples && go vet ./...
	cd bench && go vet ./...
examples: ## The example applications and their tests, in a module of their own
	$(say-race)
	cd examples && go vet ./... && $(GOTEST) $(RACE) -timeout=5m ./...

.PHONY: validators
validators: ## Manifests and the OpenAPI file against validators, in a module of their own
	cd tools/manifests && go vet ./... && $(GOTEST) -timeout=5m ./...

.PHONY: api
api: ## Write docs/api.txt, for a release or a change of the API that CHANGELOG.md names
	go test -count=1 ./internal/proof/doctest -run '^TestAPI$$' -args -update

.PHONY: generated
generated: ## Write the parts of docs that are made from the code; measurements are made by guarantees and bench-peers
	go test -count=1 ./internal/proof/doctest -run '^Test(RuleIndex|Configuration|MutantList)$$' -args -update
	go test -count=1 ./conformance -run '^TestDocumentedCases$$' -args -update

.PHONY: docs
docs: ## Compile and run the programs of README.md and docs, and compare the pages with the code
	$(GOTEST) -timeout=10m ./internal/proof/doctest

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME, such as 1m, or 20000x inputs
	.ci/fuzz $(FUZZTIME)

.PHONY: analysis
analysis: ## actionlint, and golangci-lint as .golangci.yml says, where they can be had; on CI they are required
	.ci/analysis

.PHONY: vuln
vuln: ## Known vulnerabilities, where the database can be reached
	.ci/vuln

.PHONY: mod
mod: ## Modules are tidy and as they were published
	@for m in $(MODULES) $(TOOLS); do echo "$$m/go.mod"; (cd "$$m" && go mod verify) || exit 1; done
	@for m in $(MODULES); do (cd "$$m" && go mod tidy -diff) || exit 1; done

# Test files are compiled for Unix only: some of them stop and kill processes.
.PHONY: cross
cross: ## Compile the library for other platforms
	@for p in $(PLATFORMS); do \
		echo "$$p"; export GOOS="$${p%/*}" GOARCH="$${p#*/}" CGO_ENABLED=0; \
		libs=$$(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/(cmd|internal)/'); \
		go build $$libs || exit 1; \
		[ "$$GOOS" = windows ] || go vet $$libs || exit 1; \
	done

.PHONY: bench
bench: ## Benchmarks, BENCH=regexp for some of them
	go test -run='^$$' -bench='$(BENCH)' -benchmem -p=1 ./...

# Not a step: the figures want a quiet machine.
.PHONY: bench-peers bench-test
bench-peers: servers ## Measure beside what else a user would pick; writes docs/benchmarks.md
	cd bench && go run . -rounds $(BENCH_ROUNDS) -update ../docs/benchmarks.md
bench-test: ## A quick run of it on the servers that are there, in a module of its own
	cd bench && go vet ./... && $(GOTEST) -timeout=5m -parallel=8 ./...

.PHONY: clean
clean: ## Remove what was built and cached in this folder
	rm -rf .cache
	find . -name '*.test' -type f -not -path './.git/*' -delete
