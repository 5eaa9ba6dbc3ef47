# Everything here needs Go and make, the race detector a C compiler as well, and some tests
# servers, which "make servers" installs where it can. "make help" lists the targets. Each step
# of "make test" and "make check" is a target of its own, so that the one that failed can be run
# alone. To add a step: write its target, then list it here; quick ones come first, then what
# has found most.
.DEFAULT_GOAL := help
TEST_STEPS := fmt vet arch quick-race simulation quick conformance-quick system
CI_STEPS := servers modules race conformance conformance-servers faults system-long docs command proof-short analysis mutants-changed
LONG_STEPS := simulation-long conformance-more mutants follower-long divide-long effects-long locks-long traces demo-test browser demo-seeds \
	modules-test fuzz cross mod vuln

# Sizes, to be changed on the command line: make simulation SEEDS=50. FUZZTIME is a number of
# inputs: up to Go 1.27 a target may fail as its time is up (golang.org/issue/75804).
SEEDS ?= 500
SYSTEM_SEEDS ?= 2
FUZZTIME ?= 20000x
ROUNDS ?= 2
BENCH_ROUNDS ?= 5
MUTANTS_BASE ?= # a commit whose mutants all die; without one there is no telling

# Packages that are tested under the race detector, as regular expressions over the path below
# the module's; those that "make test" tests under it; those that kill, stop and cut real servers,
# for minutes; those that have a step of their own. So have the tests of SUITES and OWN.
RACED := core|core/driver|observe/tenure(http|prom|otel)|tenurefx|(backends|conformance|effect|fence|follower|lock|sharding)(/.*)?|internal/(changelog|operator|route|sidecar|trace|proof/(certify|faultproxy|history(/.*)?|system|harness|intercept|kvfault|outage|servers|sqlfault))
QUICK_RACED := core|core/driver|observe/tenurehttp|backends/memory
FAULTS := backends/(sql/(postgres|mysql)|etcd|consul|zookeeper|redis)|conformance/containers|internal/proof/servers|(effect|follower|lock|sharding)/stores
OWN_STEP := internal/proof/(archtest|doctest)|cmd/demo(/.*)?
SUITES := ^Test(Conformance|System|Control|Served|Browser)
OWN := ^Test(Simulation|OutageEvictsNobody|MassDeathOfHundreds)$$
MORE := ^TestConformance(Restart|Network|Cluster|Sentinel|Three|Ensemble|SimpleProtocol)
# Backends that need no server, and those whose tests start one; what the library is compiled for.
EMBEDDED := ./backends/memory ./backends/sql/sqlite
SERVED := ./backends/sql/postgres ./backends/sql/mysql ./backends/etcd ./backends/zookeeper ./backends/consul ./backends/redis
PLATFORMS := darwin/arm64 windows/amd64 linux/arm64
MUTATED := ./core ./internal/fsm ./internal/trace ./effect ./follower ./lock ./sharding ./tenuretest ./internal/sidecar ./internal/route ./internal/changelog ./internal/operator \
	$(EMBEDDED) $(SERVED)

# The go command turns cgo off where it finds no C compiler. SQLite's own code, C turned into
# Go, takes four times as long under the detector and is not ours to test. The step vet has vetted all.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race $(foreach p,sqlite/lib libc,-gcflags=modernc.org/$(p)=-race=false))
GOTEST := go test -vet=off -shuffle=on
LESS_GC := env GOGC=400 # takes a third off what compiles or simulates
SYSTEM = -args -system.seeds=$(SYSTEM_SEEDS) -system.parallel=2 # each seed has a server of its own
packages = $$(go list ./... | sed "s|^$$(go list -m)|.|" | grep -E '^\./($(or $(1),.*))$$' | grep -vE '^\./($(2))$$')
define say-race
	@[ -n "$(RACE)" ] || { echo "no C compiler, which the race detector needs (apt-get install gcc): running without it"; \
		[ -z "$(CI)" ] || { echo "on CI it is required"; exit 1; }; }
endef

.PHONY: $(shell sed -n 's/^\([a-z][a-z -]*\):.*/\1/p' $(lastword $(MAKEFILE_LIST)))
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z -]*:.*## / { printf "%-27s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
test: ## What is quick, with the servers that are there: some 5 minutes on 2 cores
	@MAKE="$(MAKE)" .ci/steps $(TEST_STEPS)
	@internal/proof/servers/install.sh --missing
check: ## All there is, nightly and before a release: test, check-ci, check-long; over an hour on 2 cores
	@TENURE_REQUIRE_SERVERS= MAKE="$(MAKE)" .ci/steps $(TEST_STEPS)
	@$(MAKE) --no-print-directory check-ci check-long
check-ci: ## What .ci/run does after make test: all that every change needs, some 45 minutes with it
	@MAKE="$(MAKE)" .ci/steps $(CI_STEPS)
check-long: servers ## The rest of make check: long simulations, all mutants, fuzzing, other platforms
	@MAKE="$(MAKE)" .ci/steps $(LONG_STEPS)
lint: fmt vet arch analysis ## fmt, vet, arch, analysis
fmt: ## Fail if a file is not as gofmt writes it
	@bad=$$(find . -name '*.go' -not -path './.*/*' -exec "$$(go env GOROOT)/bin/gofmt" -l {} +) || exit 1; \
	[ -z "$$bad" ] || { echo "not formatted, run gofmt -w on:"; echo "$$bad"; exit 1; }
vet: ## go vet
	go vet ./...
modules: ## Vet the modules beside this one, which a change of a name breaks
	cd examples && go vet ./... && cd ../bench && go vet ./... && cd ../tools/manifests && go vet ./...
arch: ## Import rules, no hidden state, licences of dependencies
	$(GOTEST) -timeout=1m ./internal/proof/archtest
servers: ## Install the servers that tests need, where that is possible
	internal/proof/servers/install.sh
quick: ## Tests of every package that needs no server, and is not in quick-race
	$(GOTEST) -timeout=5m -p=4 -parallel=8 -skip='$(SUITES)|$(OWN)' $(call packages,,$(QUICK_RACED)|$(FAULTS)|$(OWN_STEP))
quick-race: ## The core's and the memory backend's tests under the race detector
	$(say-race)
	$(GOTEST) $(RACE) -timeout=5m -p=2 -skip='$(SUITES)' $(call packages,$(QUICK_RACED),none)
race: ## The others' tests under the race detector, and a short simulation
	$(say-race)
	$(GOTEST) $(RACE) -timeout=10m -p=2 -skip='$(SUITES)' $(call packages,$(RACED),$(FAULTS)|$(QUICK_RACED))
	.ci/named '^TestSimulation$$' $(RACE) -timeout=5m ./internal/fsm -args -seeds=100
faults: ## Tests that kill, stop and cut real servers, under the race detector
	$(say-race)
	$(GOTEST) $(RACE) -timeout=10m -p=2 -skip='$(SUITES)' $(call packages,$(FAULTS),none)
simulation: ## The state machine against a model store, SEEDS runs
	$(LESS_GC) .ci/named '^Test(Simulation|OutageEvictsNobody)$$' -timeout=8m ./internal/fsm -args -seeds=$(SEEDS)
simulation-long: ## The same, 20,000 runs, and the death of 440 members at once
	$(LESS_GC) .ci/named '$(OWN)' -timeout=15m ./internal/fsm -args -seeds=20000
mutants: ## Broken cores and backends, which the test named, or the simulation, must find
	$(LESS_GC) .ci/named '^TestMutants$$' -timeout=40m -p=2 $(MUTATED) -args -mutants
	@[ -n "$$(git status --porcelain)" ] || git rev-parse HEAD >"$$(go env GOCACHE)/tenure-mutants-died" # for .ci/run
mutants-changed: ## Those of the packages that differ from MUTANTS_BASE, a commit; a quarter, which HEAD chooses, where none is given
	$(LESS_GC) .ci/named '^TestMutants$$' -timeout=40m -p=2 $(MUTATED) -args -mutants='$(MUTANTS_BASE)'
conformance: ## The conformance suite on the embedded backends, under the race detector
	$(say-race)
	.ci/named '^TestConformance' $(RACE) -timeout=5m -p=3 $(EMBEDDED)
conformance-servers: ## The suite on the backends that need a server, in each mode, with its cases of a server that is cut off or takes less
	.ci/named '^TestConformance' -skip='$(MORE)' -timeout=10m -p=2 -parallel=4 $(SERVED)
conformance-more: ## The suite on three servers, through a bad network, and its cases of restarted servers
	.ci/named '$(MORE)' -timeout=10m -p=2 $(SERVED)
conformance-quick: ## The suite on the embedded backends, and an area of it where a server is there
	.ci/named '^TestConformance' -timeout=5m -p=3 -parallel=8 $(EMBEDDED)
	.ci/named '^TestConformance$$/^Acquire$$' -timeout=5m -p=5 -parallel=8 $(SERVED)
system: ## Real processes and faults, SYSTEM_SEEDS runs, and the control that must fail
	.ci/named '^Test(System|Control)$$' -timeout=10m -p=1 ./internal/proof/system $(SYSTEM)
system-long: ## The same on every backend, and on three servers where there can be so many
	.ci/named '^Test(System|Control)' -timeout=15m -p=1 $(SERVED) $(SYSTEM)
command: ## The command tenure: each subcommand on every store, a short tenure certify too, and ROUNDS faults of each kind to tenure run, and some to serve
	.ci/named '^Test(Commands|Served|Run|ServedRun|KilledTool)$$' -timeout=9m -parallel=12 ./cmd/tenure -args -rounds=$(ROUNDS)
	.ci/named '^TestServe(dSidecars)?$$' -timeout=5m -parallel=8 ./cmd/tenure
	.ci/named '^TestServed$$' -timeout=5m -parallel=6 ./internal/proof/certify
docs: ## Compile and run the programs of README.md and docs, and compare the pages with the code
	.ci/named '^Test(Readme|Report)$$' -timeout=2m ./cmd/demo
	$(GOTEST) -timeout=10m ./internal/proof/doctest
analysis: ## actionlint, and golangci-lint as .golangci.yml says, where they can be had; on CI they are required
	.ci/analysis
follower-long: ## Followers killed 10 times, over 100,000 entries, blocked for a minute; on every store
	$(GOTEST) -v -timeout=15m ./follower/stores -args -all -kills=10 -entries=100000 -lagfor=5s -blocked=60s
divide-long: ## Ranges split and merged 145 times on each store, under kill -9 and stops
	.ci/named '^TestDivide$$' -timeout=20m ./sharding/stores -args -changes=145
effects-long: ## 20,000 effects in each mode on each store, under 12 faults; the figure for 100,000: -effects=100000
	.ci/named '^TestEffects$$' -timeout=40m ./effect/stores -args -full -effects=20000 -faults=12 -latency=20ms
locks-long: ## Locks under the system suite's faults, 50 runs on each store, 20 without the fence; 100,000 names used once
	.ci/named '^TestLocks$$' -timeout=60m -parallel=4 ./lock/stores -args -seeds=50
	.ci/named '^TestUnfenced$$' -timeout=30m -parallel=4 ./lock/stores -args -seeds=20
	.ci/named '^TestNames$$' -timeout=15m ./lock/stores -args -names=100000
traces: ## Traces of 1,000 runs of the simulation and 200 of members are accepted, and none of those with a fault in the code
	.ci/named '^TestTraces$$' -timeout=20m ./internal/fsm -args -traced=1000
	.ci/named '^TestMutantsLeaveTraces$$' -timeout=60m ./internal/fsm -args -mutants
	.ci/named '^TestPlay$$' -timeout=20m ./internal/proof/planted -args -plays=200
	.ci/named '^TestPlantedInCode$$' -timeout=60m ./internal/proof/planted -args -mutants
demo-test: ## Tests of the demonstration
	$(GOTEST) -timeout=5m -p=1 ./cmd/demo/...
demo-seeds: ## The demonstration with seeds 1 to 3; demo-test has the control without the fence
	go build -o .cache/bin/demo ./cmd/demo
	@for s in 1 2 3; do timeout --kill-after=10s 5m .cache/bin/demo -seed "$$s" || exit 1; done
browser: ## The board in a real Chromium, and the alerts in a real Prometheus
	.ci/named '^Test(Browser|Scrape)' -timeout=5m -p=2 ./observe/tenurehttp ./deploy/prometheus
modules-test: ## Tests of the modules beside this one: example applications, a quick bench-peers, validators of manifests and OpenAPI
	$(say-race)
	cd examples && $(GOTEST) $(RACE) -timeout=5m ./...
	cd bench && $(GOTEST) -timeout=5m -parallel=8 ./...
	cd tools/manifests && $(GOTEST) -timeout=5m ./...
fuzz: ## Every fuzz target for FUZZTIME, such as 1m, or 20000x inputs
	.ci/fuzz $(FUZZTIME)
vuln: ## Known vulnerabilities, where the database can be reached
	.ci/vuln
mod: ## Modules are as they were published, and tidy; the tools' are not, as tidy asks for the tests of what they use
	@for m in . examples bench tools/etcd tools/manifests; do echo "$$m"; (cd "$$m" && go mod verify) || exit 1; done
	@for m in . examples bench; do (cd "$$m" && go mod tidy -diff) || exit 1; done
cross: ## Compile the library for other platforms; test files are for Unix
	@for p in $(PLATFORMS); do echo "$$p"; export GOOS="$${p%/*}" GOARCH="$${p#*/}" CGO_ENABLED=0; \
		libs=$$(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/(cmd|internal)/'); \
		go build $$libs && { [ "$$GOOS" = windows ] || go vet $$libs; } || exit 1; done

# proof-short is a step. They need SPIN and Z3 (apt-get install spin z3).
proof: ## Check the models of the protocol, with each rule and without it, in full: some 10 minutes
	proof/induction.sh
	proof/check.sh full
proof-pictures: ## Write docs/proof, a picture of each counterexample
	proof/check.sh pictures
proof-short: ## The same in its small configurations: some 4 minutes
	proof/induction.sh
	proof/check.sh short

# Not steps: they write files, or their figures want a quiet machine.
guarantees: export TENURE_CONFORMANCE_REPORT := $(CURDIR)/docs/reports
guarantees: servers ## Measure every backend, for an hour; writes docs/reports and docs/guarantees.md
	.ci/named '^TestConformance(Restart)?$$' -shuffle=off -count=1 -timeout=20m -p=1 $(EMBEDDED) $(SERVED)
	$(MAKE) system-guaranteed SYSTEM_SEEDS=100 WHICH=System
	$(MAKE) system-guaranteed SYSTEM_SEEDS=20 WHICH=Control
	go test -count=1 ./conformance -run '^TestGuarantees$$' -args -update
system-guaranteed:
	.ci/named '^Test$(WHICH)$$' -count=1 -timeout=60m -p=1 ./internal/proof/system $(SERVED) $(SYSTEM)
bench-peers: servers ## Measure beside what else a user would pick; writes docs/benchmarks.md
	cd bench && go run . -rounds $(BENCH_ROUNDS) -update ../docs/benchmarks.md
api: ## Write docs/api.txt, for a release or a change of the API that CHANGELOG.md names
	go test -count=1 ./internal/proof/doctest -run '^TestAPI$$' -args -update
generated: ## Write the parts of docs that are made from the code
	go test -count=1 ./internal/proof/doctest -run '^Test(RuleIndex|Configuration|MutantList)$$' -args -update
	go test -count=1 ./conformance -run '^TestDocumentedCases$$' -args -update
