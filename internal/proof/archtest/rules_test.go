package archtest

// row has the allowed imports of one package, or of several, beside the standard
// library.
type row struct {
	// pkg is the package's folder relative to the root of the repository. A last
	// element "..." matches the folder before it and everything below.
	pkg string
	// allow lists allowed imports, in the same form: a path whose first element has
	// a dot is another module's, any other is this repository's. The word anything
	// allows all.
	allow []string
	// deny lists forbidden imports that allow, or being in the standard library,
	// would let pass.
	deny []string
	// except is a file for which deny does not count, relative to the root.
	except string
}

const anything = "*"

// floors are the storeys of the house, the lowest first, each a list of wings. No import
// runs up, nor across from one wing to another of its floor. The first wing that matches a
// package has it.
var floors = [][][]string{
	// The contract, and what says a word about an error or a peer.
	{{"core/driver", "internal/errtext", "internal/keyspace", "internal/peerdial", "internal/rhythm", "internal/virtual"}},
	// The machine that decides on leases; operators' rules.
	{{"internal/fsm", "internal/mark", "core/control"}},
	// What the machine was given and did, written and checked.
	{{"internal/trace"}},
	// The runner. It knows no store; rows keeps stores from it.
	{{"core"}},
	// Stores, beside what applications build on leases.
	{
		{"backends/...", "internal/changelog", "internal/kvkeys", "internal/kvrecord", "internal/route", "internal/sqlschema"},
		{"sharding/..."},
		{"effect"},
		{"lock"},
		{"follower"},
		{"fence/..."},
		{"internal/operator"},
	},
	// Configuration.
	{{"config"}},
	// Pages and metrics, above all that they watch.
	{{"observe/..."}},
	// Wiring.
	{{"tenurefx/..."}},
	// What exists to prove. No floor below needs it.
	{{"tenuretest", "conformance/...", "follower/stores", "sharding/stores", "effect/stores", "lock/stores", "internal/proof/..."}},
	// Programs.
	{{"cmd/...", "deploy/...", "examples/...", "bench/...", "tools/...", "internal/sidecar"}},
}

// etcd's client takes its call options from gRPC and its logger from zap.
var etcdClient = []string{"go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3/...", "google.golang.org/grpc/...",
	"go.uber.org/zap"}

// ofDialects are the common imports of the SQL dialects of this repository.
var ofDialects = []string{"core/driver", "backends/sql", "backends/sql/internal/dialect", "internal/sqlschema"}

// rows is the import table. The first row that matches a package decides, and each
// decides on one.
var rows = []row{
	{pkg: "core/driver"},
	{pkg: "internal/fsm", allow: []string{"core/driver"}, deny: impure},
	{pkg: "observe/tenurehttp", allow: []string{"core", "core/driver", "effect", "internal/operator", "sharding"}},
	{pkg: "observe/tenureprom", allow: []string{
		"core", "core/driver", "effect", "fence", "follower", "sharding", "observe/internal/takeover",
		"github.com/prometheus/client_golang/prometheus/...", "go.uber.org/fx",
	}},
	// The API only: which SDK there is, and what it costs, is the application's to say.
	{pkg: "observe/tenureotel", allow: []string{
		"core", "core/driver", "effect", "fence", "follower", "sharding", "observe/internal/takeover", "go.opentelemetry.io/otel/...",
	}, deny: []string{"go.opentelemetry.io/otel/sdk/..."}},
	{pkg: "core/control", allow: []string{"core/driver"}},
	{pkg: "internal/operator", allow: []string{"core", "core/control", "core/driver"}},
	{pkg: "core", allow: []string{
		"core/control", "core/driver", "internal/fsm", "internal/mark", "internal/rhythm", "internal/trace", "internal/virtual",
	}},
	{pkg: "internal/mark", allow: []string{"core/driver"}},
	{pkg: "internal/trace", allow: []string{"core/driver", "internal/fsm"}},

	{pkg: "internal/virtual"},
	{pkg: "internal/keyspace"},
	{pkg: "tenuretest", allow: []string{
		"backends/memory", "core", "internal/proof/harness", "internal/proof/intercept", "internal/virtual",
	}},

	{pkg: "config", allow: []string{"core", "internal/errtext", "core/driver", "go.yaml.in/yaml/v4"}},
	{pkg: "tenurefx", allow: []string{"config", "core", "core/driver", "internal/errtext", "sharding", "follower", "go.uber.org/fx/..."}},

	{pkg: "backends/kv", allow: []string{"core/driver", "internal/kvrecord", "internal/kvkeys"}},
	{pkg: "internal/kvrecord", allow: []string{"core/driver"}},
	{pkg: "internal/changelog", allow: []string{
		"core/driver", "backends/kv", "internal/kvrecord", "internal/kvkeys",
	}},
	{pkg: "internal/proof/watchless", allow: []string{"core/driver", "backends/kv", "internal/changelog"}},
	{pkg: "internal/route"},
	{pkg: "internal/proof/kvfault", allow: []string{"core/driver", "backends/kv"}},
	{pkg: "backends/memory", allow: []string{"core/driver", "backends/kv"}},
	{pkg: "backends/etcd", allow: append([]string{
		"core/driver", "backends/kv", "internal/route", "internal/kvkeys",
	}, etcdClient...)},
	{pkg: "backends/consul", allow: []string{
		"core/driver", "backends/kv", "internal/changelog", "internal/route",
		"github.com/hashicorp/consul/api", "internal/kvkeys",
	}},
	{pkg: "backends/redis", allow: []string{
		"core/driver", "backends/kv", "github.com/redis/go-redis/v9/...", "internal/kvkeys",
	}},
	{pkg: "backends/zookeeper", allow: []string{
		"core/driver", "backends/kv", "internal/changelog", "internal/route",
		"github.com/go-zookeeper/zk", "internal/kvkeys",
	}},
	{pkg: "backends/sql", allow: []string{"core/driver", "internal/sqlschema"}},
	{pkg: "backends/sql/internal/dialect", allow: []string{"core/driver", "backends/sql"}},
	{pkg: "backends/sql/sqlite", allow: append([]string{
		"modernc.org/sqlite/...", "github.com/fsnotify/fsnotify",
	}, ofDialects...)},
	{pkg: "backends/sql/postgres", allow: append([]string{"github.com/jackc/pgx/v5/..."}, ofDialects...)},
	{pkg: "backends/sql/mysql", allow: append([]string{"github.com/go-sql-driver/mysql"}, ofDialects...)},

	{pkg: "follower", allow: []string{"core", "core/driver", "internal/errtext", "internal/rhythm", "internal/virtual"}},
	{pkg: "sharding/route", allow: []string{"core", "core/driver", "internal/peerdial", "sharding"}},
	// Beside route, so that only programs with gRPC link it.
	{pkg: "sharding/route/routegrpc", allow: []string{
		"core", "core/driver", "internal/peerdial", "sharding", "sharding/route", "google.golang.org/grpc/...", "google.golang.org/protobuf/...",
		"google.golang.org/genproto/googleapis/rpc/errdetails",
	}},
	{pkg: "sharding", allow: []string{"core", "core/control", "core/driver", "follower", "internal/keyspace", "internal/mark", "internal/rhythm"}},

	{pkg: "effect", allow: []string{"core", "core/control", "core/driver", "internal/keyspace", "internal/rhythm"}},
	{pkg: "lock", allow: []string{"core", "core/driver"}},

	{pkg: "fence", allow: []string{"core/driver", "internal/errtext"}},
	// The details of a status are messages of a module beside grpc's.
	{pkg: "fence/fencegrpc", allow: []string{
		"core/driver", "fence", "google.golang.org/grpc/...",
		"google.golang.org/genproto/googleapis/rpc/errdetails",
	}},

	{pkg: "conformance/system", allow: []string{
		"conformance", "core/driver", "internal/proof/garbage", "internal/proof/system",
	}},
	{pkg: "conformance", allow: []string{
		"backends/kv", "core/driver", "internal/kvkeys", "internal/proof/ample", "internal/proof/faultproxy",
		"internal/proof/figures", "internal/proof/history", "internal/proof/kvfault",
	}},
	{pkg: "internal/proof/history", allow: []string{"core/driver", "internal/proof/intercept"}},
	// Beside history, so that a program that only validates does not need porcupine.
	{pkg: "internal/proof/history/linearizable", allow: []string{
		"core/driver", "internal/proof/history", "github.com/anishathalye/porcupine",
	}},
	{pkg: "internal/proof/faultproxy"},
	{pkg: "internal/proof/system", allow: []string{
		"core", "core/driver", "internal/fsm", "internal/trace", "conformance/...", "internal/proof/...",
	}},
	{pkg: "internal/proof/garbage", allow: []string{
		"conformance", "core", "core/control", "core/driver", "internal/proof/ample", "sharding",
	}},
	{pkg: "conformance/containers", allow: []string{
		"backends/consul", "backends/etcd", "backends/redis", "backends/sql/mysql", "backends/sql/postgres",
		"backends/zookeeper", "conformance", "core/driver", "github.com/moby/moby/api/...", "github.com/moby/moby/client",
		"github.com/testcontainers/testcontainers-go",
	}},
	// It knows each store beside its backend, to ask its version and to remove records.
	{pkg: "internal/proof/certify", allow: append([]string{
		"backends/...", "conformance", "core/driver", "internal/proof/...", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk",
		"github.com/hashicorp/consul/api", "github.com/jackc/pgx/v5/...", "github.com/redis/go-redis/v9/...",
	}, etcdClient...)},

	// Core has everything that users need: a demonstration or example that has to
	// reach for the driver shows that something is missing there. The gate is no
	// user: it holds writes between core and the backend.
	{pkg: "cmd/demo/...", allow: []string{anything}, deny: []string{"core/driver"}, except: "cmd/demo/gate.go"},
	// It reads a namespace without joining it, and names versions, which core does not.
	{pkg: "cmd/tenure", allow: []string{anything}},
	{pkg: "examples/...", allow: []string{anything}, deny: []string{"core/driver"}},
	{pkg: "bench/...", allow: []string{anything}, deny: []string{"core/driver"}},
	{pkg: "deploy/...", allow: []string{anything}},
	{pkg: "tools/...", allow: []string{anything}},
	{pkg: "internal/proof/ample"},
	{pkg: "internal/proof/archtest"},
	{pkg: "internal/proof/doctest"},
	{pkg: "internal/proof/browser", allow: []string{"internal/proof/ample", "internal/proof/servers"}},
	{pkg: "internal/errtext"},
	{pkg: "internal/rhythm"},
	{pkg: "internal/proof/figures"},
	{pkg: "internal/proof/fleet", allow: []string{
		"backends/...", "config", "core", "internal/proof/ample", "internal/proof/faultproxy", "internal/proof/servers",
	}},
	{pkg: "internal/proof/harness", allow: []string{"core/driver", "internal/proof/intercept"}},
	{pkg: "internal/proof/intercept", allow: []string{"core/driver"}},
	{pkg: "internal/proof/mutate"},
	{pkg: "internal/proof/mutate/some", allow: []string{"internal/proof/mutate"}},
	{pkg: "internal/proof/planted", allow: []string{
		"core", "core/driver", "internal/proof/intercept", "internal/proof/mutate", "internal/trace", "internal/virtual", "tenuretest",
	}},
	{pkg: "internal/peerdial"},
	{pkg: "internal/kvkeys", allow: []string{"core/driver"}},
	{pkg: "internal/proof/outage", allow: []string{
		"conformance", "core", "core/driver", "follower", "internal/proof/ample", "internal/proof/faultproxy",
		"internal/proof/intercept", "internal/proof/servers", "internal/proof/system",
	}},
	{pkg: "internal/proof/servers"},
	{pkg: "internal/proof/share"},
	{pkg: "internal/sidecar", allow: []string{"core", "core/control", "core/driver", "effect", "internal/rhythm", "lock", "golang.org/x/sys/unix"}},
	{pkg: "observe/internal/takeover", allow: []string{"core"}},
	{pkg: "internal/sqlschema", allow: []string{"core/driver"}},
	// It measures backends as core uses them.
	{pkg: "internal/proof/sqlfault", allow: []string{
		"core", "core/driver", "backends/sql", "conformance", "internal/proof/ample", "internal/proof/faultproxy",
		"internal/proof/system", "internal/proof/intercept", "internal/proof/outage", "internal/proof/servers", "internal/proof/share", "internal/sqlschema",
	}},
}

// impure are imports forbidden to the state machine: it does no I/O, waits for
// nothing and shares nothing. Of time and math/rand it may use the names in
// pureNames.
var impure = []string{
	"context", "sync/...", "os/...", "net/...", "io/...", "log/...", "syscall", "runtime/...",
	"crypto/rand", "database/...", "unsafe", "plugin",
}

// pureNames are the names of time and math/rand that the state machine may use:
// durations, and sources of randomness that were seeded by the caller.
var pureNames = map[string][]string{
	"time":         {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	"math/rand":    {"Rand", "Source", "Source64", "New", "NewSource"},
	"math/rand/v2": {"Rand", "Source", "PCG", "ChaCha8", "New", "NewPCG", "NewChaCha8"},
}

// paced are functions of test gear, by folder and name, that compare an elapsed time to keep a pace, with the
// reason. None of them judges anything by it.
var paced = map[string]string{
	"internal/proof/faultproxy pop":      "it delays what passes the proxy",
	"internal/proof/certify conformance": "it writes a line of progress every 5 s",
	"internal/proof/servers sweep":       "it leaves a folder that is just being made",
}

// figures are functions, by folder and name, whose subject is an elapsed time, which a gauge of package ample
// judges. Where the machine is too slow, these tests are skipped and prove nothing.
var figures = []string{
	"backends/redis beatsWithin",
	"backends/redis startsSoon",
	"backends/zookeeper TestHolderAndServerDie",
	"backends/zookeeper TestLeaderStopped",
	"backends/zookeeper TestSilentServer",
	"conformance beatsNotBehindWrites",
	"conformance cancelledCallBlocksNobody",
	"conformance lostRequestIsUnknown",
	"follower/stores TestLag",
	"internal/proof/outage Fresh",
	"internal/proof/outage HolderDies",
	"internal/proof/outage LeaderStops",
	"internal/proof/outage Starts",
	"internal/proof/outage busy",
	"internal/proof/outage died",
	"internal/proof/outage followed",
	"internal/proof/outage halts",
	"internal/proof/outage handedOver",
	"internal/proof/outage keeps",
	"internal/proof/outage left",
	"internal/proof/outage slow",
	"internal/proof/sqlfault CheckWakes",
	"internal/proof/sqlfault judge",
	"sharding TestBalanceTime",
	"sharding TestPlanningTime",
	"sharding/stores refused",
}

// layout says which packages the checks of forbid_test.go are for.
type layout struct {
	pure    []string // no clock, no goroutine, no randomness
	silent  []string // write no log line and nothing to standard output
	program []string // wiring of whole programs: which may have package-level variables
}

var places = layout{
	pure:    []string{"internal/fsm"},
	silent:  []string{"core/driver", "internal/fsm", "internal/changelog", "internal/route", "backends/..."},
	program: []string{"bench/...", "cmd/...", "examples/...", "tools/..."},
}
