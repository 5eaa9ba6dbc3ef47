# Each step of "make test", ".ci/run" and "make check" is a target. To add one, write and list it here.
.DEFAULT_GOAL := help
TEST_STEPS := fmt vet arch quick-race quick
CI_STEPS := servers modules race explore stores system programs analysis
CHECK_STEPS := servers modules everything explore system-long simulation-long mutants follower-long divide-long effects-long locks-long \
	traces demo-seeds command proof modules-test fuzz cross mod vuln analysis

# Sizes, to be changed on the command line: make command ROUNDS=50. FUZZTIME is a number of inputs: up to
# Go 1.27 a target may fail as its time is up (golang.org/issue/75804).
SYSTEM_SEEDS ?= 2
FUZZTIME ?= 20000x
ROUNDS ?= 2
BENCH_ROUNDS ?= 5
COUNT ?= 100
LOAD ?= 8

# Folders whose tests start servers.
SERVED := ./backends/sql/postgres ./backends/sql/mysql ./backends/etcd ./backends/zookeeper ./backends/consul ./backends/redis
STORES ?= $(SERVED) ./.../stores ./conformance/containers ./internal/proof/servers ./internal/proof/rotate
PROGRAMS := ./cmd/tenure ./deploy/... ./internal/proof/certify ./internal/proof/doctest
EMBEDDED := ./backends/memory ./backends/sql/sqlite
MUTATED = $(patsubst %/,./%,$(dir $(shell git grep -l mutate.Flag -- '*/mutants_test.go')))
CUT = $(filter-out $(shell go list $(STORES) $(PROGRAMS) ./cmd/... ./internal/proof/...),$(addprefix github.com/tenure-go/tenure/,$(sort \
	$(patsubst %/,%,$(dir $(shell git grep -lE 'share.Of|testing.Short' -- '*_test.go' $(MEMBERS:%=':!%')))))))
MEMBERS := quorum backends/bucket
MODULES := examples bench $(MEMBERS)
PLATFORMS := darwin/arm64 windows/amd64 linux/arm64

# The go command turns cgo off where it finds no C compiler. SQLite's own code, C turned into
# Go, takes four times as long under the detector and is not ours to test. The step vet has vetted all.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race $(foreach p,sqlite/lib libc,-gcflags=modernc.org/$(p)=-race=false))
GOTEST := go test -vet=off -shuffle=on
STRIPPED := -ldflags='-s -w' # halves the time of linking, which is not cached
LESS_GC := env GOGC=400 # takes a third off what compiles or simulates
but = $(filter-out $(shell go list $(1)),$(shell go list ./...)) # every package but these
say-race = @[ -n "$(RACE)" ] || { echo "no C compiler, which the race detector needs: running without it"; [ -z "$(CI)" ]; }

.PHONY: $(shell sed -n 's/^\([a-z][a-z -]*\):.*/\1/p' $(lastword $(MAKEFILE_LIST)))
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z -]*:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
test: ## What to run at each save: needs no server, 3 minutes on 2 cores
	@TENURE_REQUIRE_SERVERS= MAKE="$(MAKE)" .ci/steps $(TEST_STEPS)
	@echo "tests that need servers, and large sizes, are in .ci/run and make check"
ci: ## What .ci/run runs after make test, but for mutants and proofs
	@MAKE="$(MAKE)" .ci/steps $(CI_STEPS)
check: ## All there is, nightly and before a release: hours
	@MAKE="$(MAKE)" .ci/steps fmt vet arch $(CHECK_STEPS)
lint: fmt vet arch analysis ## fmt, vet, arch, analysis
fmt: ## Fail if a file is not as gofmt writes it
	@bad=$$(find . -name '*.go' -not -path './.*/*' -exec "$$(go env GOROOT)/bin/gofmt" -l {} +) || exit 1; \
	[ -z "$$bad" ] || { echo "not formatted, run gofmt -w on:"; echo "$$bad"; exit 1; }
vet: ## go vet
	go vet ./...
modules: ## Vet the modules beside this one, which a change of a name breaks, and test those of the library at their short size
	@for m in $(MODULES) tools/manifests; do (cd "$$m" && go vet ./...) || exit 1; done; for m in $(MEMBERS); do (cd "$$m" && $(GOTEST) -short -timeout=10m ./...) || exit 1; done
arch: ## Rules of imports, state and tests; licences of dependencies; mutants name code that is there
	$(GOTEST) -timeout=5m ./internal/proof/archtest
servers: ## Install the servers that tests need, where that is possible
	internal/proof/servers/install.sh
quick: ## Tests of packages that start no server, at their short sizes
	$(GOTEST) $(STRIPPED) -short -timeout=30m -p=3 -parallel=4 $(call but,./core ./core/driver ./internal/proof/archtest $(STORES) ./cmd/demo/... ./deploy/... ./internal/proof/certify)
quick-race: ## Tests of the core under the race detector
	$(say-race)
	$(GOTEST) $(STRIPPED) $(RACE) -short -timeout=30m -p=2 ./core ./core/driver
race: ## The other packages that start no server, at their short size, under the race detector, but for the longest simulations
	$(say-race)
	$(GOTEST) $(RACE) -short -timeout=30m -p=3 -parallel=4 -skip='^Test(Bombs|DayFindsFaults|Quarantine|SameSeedSameDay)$$' \
		$(call but,./core ./core/driver ./internal/fsm ./internal/proof/archtest ./cmd/demo/... $(STORES) $(PROGRAMS))
explore: ## The packages that -short cuts, whole, without the race detector; the suite cuts nothing
	$(LESS_GC) $(GOTEST) -timeout=30m -p=3 -parallel=4 -skip='^Test(Conformance|MassDeathOfHundreds|Browser|System|Control)' $(CUT)
stores: ## The conformance suite and faults on real servers, at their short sizes
	$(GOTEST) -short -timeout=30m -p=3 -parallel=4 -skip='^Test(System|Control)' $(STORES)
system: ## Real processes and faults: a seed on each store, and the control that must fail
	.ci/named '^Test(System|Control)$$' -timeout=30m -p=2 ./internal/proof/system $(SERVED) -args -system.seeds=1
programs: ## Commands and deployments on every store; the programs and the facts of the pages
	$(GOTEST) -timeout=30m -p=2 -parallel=8 -skip='^TestBrowser' $(PROGRAMS)
	.ci/named '^Test(Readme|Report)$$' -timeout=30m ./cmd/demo
analysis: ## actionlint, and golangci-lint as .golangci.yml says, where they can be had; on CI they are required
	.ci/analysis
everything: ## Every test of every package, whole, under the race detector
	$(say-race)
	$(GOTEST) $(RACE) -timeout=60m -p=2 -parallel=8 -skip='^Test(System|Control)' $(call but,./internal/fsm ./internal/proof/archtest)
simulation-long: ## The state machine against a model store, 20,000 runs, and the death of 440 members at once
	$(LESS_GC) .ci/named '^Test(Simulation|OutageEvictsNobody|MassDeathOfHundreds)$$' -timeout=30m ./internal/fsm -args -seeds=20000
system-long: ## Real processes and faults, SYSTEM_SEEDS runs on every store, and on three servers where there can be so many
	.ci/named '^Test(System|Control)' -timeout=30m -p=1 ./internal/proof/system $(SERVED) -args -system.seeds=$(SYSTEM_SEEDS) -system.parallel=2
command: ## The command with ROUNDS faults of each kind to tenure run, and some to serve
	.ci/named '^Test(Run|ServedRun|KilledTool)$$' -timeout=30m -parallel=12 ./cmd/tenure -args -rounds=$(ROUNDS)
mutants: ## Broken cores and backends, which the test named, or the simulation, must find
	$(LESS_GC) .ci/named '^TestMutants$$' -timeout=90m -p=2 $(MUTATED) -args -mutants
	@[ -n "$$(git status --porcelain)" ] || git rev-parse HEAD >"$$(go env GOCACHE)/tenure-mutants-died" # for mutants-ci
mutants-ci: ## Those that a change since CI_BASE concerns, then others in an order that the commit chooses, for 5 minutes
	$(LESS_GC) go run ./internal/proof/mutate/some -for=5m
follower-long: ## Followers killed 10 times, over 100,000 entries, blocked for a minute; on every store
	$(GOTEST) -v -timeout=30m ./follower/stores -args -all -kills=10 -entries=100000 -lagfor=5s -blocked=60s
divide-long: ## Ranges of 10,000 items split and merged 200 times on each store, with 20,000 effects, under kill -9 and stops
	.ci/named '^TestDivide$$' -timeout=60m ./sharding/stores -args -changes=200 -items=10000 -effects=20000
effects-long: ## 20,000 effects in each mode on each store, under 12 faults; the figure for 100,000: -effects=100000
	.ci/named '^TestEffects$$' -timeout=40m ./effect/stores -args -full -effects=20000 -faults=12 -latency=20ms
locks-long: ## Locks under the system suite's faults, 50 runs on each store, 20 without the fence; 100,000 names used once
	.ci/named '^TestLocks$$' -timeout=60m -parallel=4 ./lock/stores -args -seeds=50
	.ci/named '^TestUnfenced$$' -timeout=30m -parallel=4 ./lock/stores -args -seeds=20
	.ci/named '^TestNames$$' -timeout=30m ./lock/stores -args -names=100000
traces: ## Traces of 1,000 runs of the simulation and 200 of members are accepted, and none of those with a fault in the code
	.ci/named '^TestTraces$$' -timeout=20m ./internal/fsm -args -traced=1000
	.ci/named '^TestMutantsLeaveTraces$$' -timeout=60m ./internal/fsm -args -mutants
	.ci/named '^TestPlay$$' -timeout=20m ./internal/proof/planted -args -plays=200
	.ci/named '^TestPlantedInCode$$' -timeout=60m ./internal/proof/planted -args -mutants
demo-seeds: ## The demonstration with seeds 1 to 3; its tests have the control without the fence
	go build -o .cache/bin/demo ./cmd/demo
	@for s in 1 2 3; do timeout --kill-after=10s 5m .cache/bin/demo -seed "$$s" || exit 1; done
modules-test: ## Tests of the modules beside this one: example applications, a quick bench-peers, members of a quorum, a bucket, validators of manifests and OpenAPI
	$(say-race)
	cd examples && $(GOTEST) $(RACE) -timeout=30m ./... && cd ../tools/manifests && $(GOTEST) -timeout=30m ./...
	cd bench && $(GOTEST) -timeout=30m -parallel=8 ./... && cd .. && for m in $(MEMBERS); do (cd "$$m" && $(GOTEST) -timeout=30m ./...) || exit 1; done
fuzz: ## Every fuzz target for FUZZTIME, such as 1m, or 20000x inputs
	.ci/fuzz $(FUZZTIME)
vuln: ## Known vulnerabilities, where the database can be reached
	.ci/vuln
mod: ## Modules are as they were published, and tidy; the tools' are not, as tidy asks for the tests of what they use
	@for m in . $(MODULES) tools/etcd tools/manifests; do echo "$$m"; (cd "$$m" && go mod verify) || exit 1; done; for m in . $(MODULES); do (cd "$$m" && go mod tidy -diff) || exit 1; done
cross: ## Compile the library for other platforms; test files are for Unix
	@for p in $(PLATFORMS); do echo "$$p"; export GOOS="$${p%/*}" GOARCH="$${p#*/}" CGO_ENABLED=0; \
		libs=$$(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/(cmd|internal)/'); \
		go build $$libs && { [ "$$GOOS" = windows ] || go vet $$libs; } || exit 1; done
proof: ## Check the models of the protocol, with each rule and without it, in full: 10 minutes; needs SPIN and Z3
	proof/induction.sh
	proof/check.sh full
proof-short: ## The same in its small configurations, for a change of the protocol: 4 minutes
	proof/induction.sh
	proof/check.sh short
proof-pictures: ## Write docs/internals/proof, a picture of each counterexample
	proof/check.sh pictures

# Not steps: they are for one test, write files, or their figures want a quiet machine.
stress: ## Run test T of package P, with and without the race detector, beside LOAD busy loops until it fails or ran COUNT times
	.ci/stress '$(T)' '$(P)' $(COUNT) $(LOAD)
guarantees: export TENURE_CONFORMANCE_REPORT := $(CURDIR)/docs/reports
guarantees: servers ## Measure every backend, for an hour; writes docs/reports and docs/internals/guarantees.md
	.ci/named '^TestConformance(Restart)?$$' -shuffle=off -count=1 -timeout=20m -p=1 $(EMBEDDED) $(SERVED)
	.ci/named '^TestSystem$$' -count=1 -timeout=60m -p=1 ./internal/proof/system $(SERVED) -args -system.seeds=100 -system.parallel=2
	.ci/named '^TestControl$$' -count=1 -timeout=60m -p=1 ./internal/proof/system $(SERVED) -args -system.seeds=20 -system.parallel=2
	go test -count=1 ./conformance -run '^TestGuarantees$$' -args -update
bench-peers: servers ## Measure beside what else a user would pick; writes docs/internals/benchmarks.md
	cd bench && go run . -rounds $(BENCH_ROUNDS) -update ../docs/internals/benchmarks.md
api: ## Write docs/api.txt, for a release or a change of the API that CHANGELOG.md names
	go test -count=1 ./internal/proof/doctest -run '^TestAPI$$' -args -update
generated: ## Write the parts of docs that are made from the code
	go test -count=1 ./internal/proof/doctest -run '^Test(RuleIndex|Configuration|MutantList)$$' -args -update
	go test -count=1 ./conformance -run '^TestDocumentedCases$$' -args -update
