package archtest

// row contains the allowed imports of one or several packages, besides the standard library.
type row struct {
	// pkg is the package's folder relative to the root of the repository. A last
	// element "..." matches the folder before it and everything below.
	pkg string
	// allow lists allowed imports, in the same form as pkg. A path whose first element has a dot
	// belongs to another module. Any other path belongs to this repository. The word anything
	// allows all imports.
	allow []string
	// deny lists forbidden imports that allow permits, or that are in the standard library.
	deny []string
	// except is a file to which deny does not apply, relative to the root.
	except string
}

const anything = "*"

// floors lists the layers of packages, with the lowest first. Each floor is a list of wings. A
// package must not import from a higher floor, or from another wing of its floor. A package belongs
// to the wing that names it, or otherwise to the first wing that matches.
var floors = [][][]string{
	// The contract, and packages for text about an error or a peer.
	{{"core/driver", "internal/boundjson", "internal/errtext", "internal/examine", "internal/goexit", "internal/listing", "internal/peerdial", "internal/problem", "internal/rhythm", "internal/virtual"}},
	// The machine that decides on leases, and operators' rules.
	{{"internal/fsm", "internal/keyspace", "internal/mark", "internal/seam", "core/control"}},
	// The traces of the machine's inputs and effects, written and checked.
	{{"internal/trace"}},
	// The runner. It knows no store, because the table rows forbids it.
	{{"core"}},
	// Stores, beside packages for applications on leases.
	{
		{"backends/...", "internal/changelog", "internal/grants", "internal/kvkeys", "internal/kvrecord", "internal/oddkey",
			"internal/route", "internal/sqlschema"},
		{"sharding/..."},
		{"effect"},
		{"lock"},
		{"follower"},
		{"fence/..."},
		{"internal/operator"},
	},
	// Configuration.
	{{"config"}},
	// Pages and metrics, above everything that they watch.
	{{"observe/..."}},
	// Wiring.
	{{"tenurefx/..."}},
	// Packages that prove. No floor below needs them.
	{{"tenuretest", "conformance/...", "follower/stores", "sharding/stores", "effect/stores", "lock/stores", "internal/proof/...",
		"backends/sql/internal/enginetest"}},
	// Programs.
	{{"cmd/...", "deploy/...", "examples/...", "bench/...", "quorum", "tools/...", "internal/sidecar"}},
	{{"quorum/cmd/...", "quorum/examples/..."}},
}

// etcd's client takes its call options from gRPC and its logger from zap.
var etcdClient = []string{"go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3/...", "google.golang.org/grpc/...",
	"go.uber.org/zap"}

// ofDialects are the common imports of this repository's SQL dialects.
var ofDialects = []string{"core/driver", "backends/sql/internal/dialect", "backends/sql/internal/engine", "internal/sqlschema"}

// rows is the import table. The first row that matches a package applies to it. Each row must apply
// to a package.
var rows = []row{
	{pkg: "core/driver"},
	{pkg: "internal/fsm", allow: []string{"core/driver", "internal/mark"}, deny: impure},
	{pkg: "observe/tenurehttp", allow: []string{"core", "core/driver", "effect", "internal/mark", "internal/operator", "internal/seam", "sharding",
		"sharding/assign", "observe/internal/count"}},
	{pkg: "observe/tenureprom", allow: []string{
		"core", "core/driver", "effect", "fence", "follower", "sharding", "observe/internal/count", "observe/internal/takeover",
		"github.com/prometheus/client_golang/prometheus/...", "go.uber.org/fx",
	}},
	// Only the API: the application chooses the SDK and its cost.
	{pkg: "observe/tenureotel", allow: []string{
		"core", "core/driver", "effect", "fence", "follower", "sharding", "observe/internal/count", "observe/internal/takeover", "go.opentelemetry.io/otel/...",
	}, deny: []string{"go.opentelemetry.io/otel/sdk/..."}},
	{pkg: "core/control", allow: []string{"internal/boundjson", "core/driver"}},
	{pkg: "internal/operator", allow: []string{"internal/boundjson", "core", "core/control", "core/driver", "internal/seam"}},
	{pkg: "core", allow: []string{
		"core/control", "core/driver", "internal/errtext", "internal/fsm", "internal/goexit", "internal/listing", "internal/mark", "internal/rhythm", "internal/seam", "internal/trace",
		"internal/virtual",
	}},
	{pkg: "internal/mark", allow: []string{"core/driver"}},
	{pkg: "internal/seam", allow: []string{"core/driver"}},
	{pkg: "internal/trace", allow: []string{"internal/boundjson", "core/driver", "internal/fsm"}},

	{pkg: "internal/problem", allow: []string{"internal/boundjson", "core/driver"}},
	{pkg: "internal/virtual"},
	{pkg: "internal/keyspace", allow: []string{"core/driver", "internal/seam"}},
	{pkg: "tenuretest", allow: []string{
		"backends/memory", "core", "internal/proof/harness", "internal/proof/intercept", "internal/virtual",
	}},

	{pkg: "config", allow: []string{"core", "internal/errtext", "core/driver", "go.yaml.in/yaml/v4"}},
	{pkg: "tenurefx/service", allow: []string{"config", "core", "internal/errtext", "observe/tenurehttp", "observe/tenureprom", "sharding", "tenurefx",
		"github.com/prometheus/client_golang/...", "go.uber.org/fx/...", "golang.org/x/net/netutil"}},
	{pkg: "tenurefx", allow: []string{"config", "core", "core/driver", "internal/errtext", "sharding", "follower", "go.uber.org/fx/..."}},

	{pkg: "backends/kv", allow: []string{"internal/boundjson", "internal/grants", "internal/listing", "internal/oddkey", "core/driver",
		"internal/kvrecord",
		"internal/kvkeys"}},
	{pkg: "internal/oddkey", allow: []string{"core/driver", "internal/listing"}},
	{pkg: "internal/grants", allow: []string{"core/driver"}},
	{pkg: "internal/kvrecord", allow: []string{"core/driver", "internal/grants"}},
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
		"internal/boundjson", "core/driver", "backends/kv", "internal/changelog", "internal/goexit", "internal/route",
		"github.com/hashicorp/consul/api", "internal/kvkeys",
	}},
	// A module of its own, as the clouds' clients have many dependencies.
	{pkg: "backends/bucket", allow: []string{"core/driver", "backends/kv", "internal/kvkeys", "gocloud.dev/blob/...", "gocloud.dev/gcerrors"}},
	{pkg: "backends/redis", allow: []string{
		"core/driver", "backends/kv", "github.com/redis/go-redis/v9/...", "internal/examine", "internal/kvkeys",
	}},
	{pkg: "backends/zookeeper", allow: []string{
		"internal/boundjson", "core/driver", "backends/kv", "internal/changelog", "internal/route",
		"github.com/go-zookeeper/zk", "internal/kvkeys",
	}},
	{pkg: "backends/sql/internal/engine", allow: []string{"internal/boundjson", "internal/grants", "internal/listing", "internal/oddkey", "core/driver", "internal/sqlschema"}},
	{pkg: "backends/sql/internal/dialect", allow: []string{"core/driver", "backends/sql/internal/engine"}},
	{pkg: "backends/sql/internal/enginetest", allow: []string{"backends/sql/internal/engine", "core/driver", "internal/proof/ample", "internal/proof/sqlfault"}},
	{pkg: "backends/sql/sqlite", allow: append([]string{
		"modernc.org/sqlite/...", "github.com/fsnotify/fsnotify",
	}, ofDialects...)},
	{pkg: "backends/sql/postgres", allow: append([]string{"internal/examine", "internal/goexit", "github.com/jackc/pgx/v5/..."}, ofDialects...)},
	{pkg: "backends/sql/mysql", allow: append([]string{"internal/examine", "internal/goexit", "github.com/go-sql-driver/mysql"}, ofDialects...)},

	{pkg: "follower", allow: []string{"internal/boundjson", "core", "core/driver", "internal/errtext", "internal/goexit", "internal/rhythm", "internal/virtual"}},
	{pkg: "sharding/route", allow: []string{"internal/boundjson", "core", "core/driver", "internal/errtext", "internal/goexit", "internal/keyspace", "internal/peerdial", "internal/problem",
		"internal/seam", "sharding", "sharding/assign"}},
	// Beside route, so that only programs with gRPC link it.
	{pkg: "sharding/route/routegrpc", allow: []string{
		"core", "core/driver", "internal/peerdial", "sharding", "sharding/route", "google.golang.org/grpc/...", "google.golang.org/protobuf/...",
		"google.golang.org/genproto/googleapis/rpc/errdetails",
	}},
	{pkg: "sharding", allow: []string{"internal/boundjson", "core", "core/control", "core/driver", "follower", "internal/errtext", "internal/goexit", "internal/keyspace",
		"internal/mark", "internal/rhythm", "internal/seam", "sharding/assign"}},
	{pkg: "sharding/assign", allow: []string{"core", "internal/keyspace"}},

	{pkg: "effect", allow: []string{"internal/boundjson", "core", "core/control", "core/driver", "internal/errtext", "internal/goexit", "internal/keyspace", "internal/rhythm"}},
	{pkg: "lock", allow: []string{"core", "core/driver", "internal/errtext", "internal/seam"}},

	{pkg: "fence", allow: []string{"internal/boundjson", "core/driver", "internal/errtext", "internal/problem"}},
	// The details of a status are messages of a module beside grpc's.
	{pkg: "fence/fencegrpc", allow: []string{
		"core/driver", "fence", "google.golang.org/grpc/...",
		"google.golang.org/genproto/googleapis/rpc/errdetails",
	}},

	{pkg: "conformance", allow: []string{
		"backends/kv", "core/driver", "internal/grants", "internal/kvkeys", "internal/listing", "internal/proof/ample", "internal/proof/faultproxy",
		"internal/proof/garbage", "internal/proof/history", "internal/proof/kvfault", "internal/proof/suite", "internal/proof/system", "internal/seam",
	}},
	{pkg: "internal/proof/history", allow: []string{"core/driver", "internal/proof/intercept"}},
	// Beside history, so that a program that only validates does not need porcupine.
	{pkg: "internal/proof/history/linearizable", allow: []string{
		"core/driver", "internal/proof/history", "github.com/anishathalye/porcupine",
	}},
	{pkg: "internal/proof/faultproxy"},
	{pkg: "internal/proof/system", allow: []string{
		"core", "core/driver", "internal/fsm", "internal/trace", "internal/proof/...",
	}},
	{pkg: "internal/proof/garbage", allow: []string{
		"core", "core/control", "core/driver", "effect", "internal/operator", "internal/keyspace", "internal/proof/ample",
		"internal/proof/loglines", "internal/seam", "sharding",
	}},
	{pkg: "conformance/containers", allow: []string{
		"backends/consul", "backends/etcd", "backends/redis", "backends/sql/mysql", "backends/sql/postgres",
		"backends/zookeeper", "conformance", "core/driver", "github.com/moby/moby/api/...", "github.com/moby/moby/client",
		"github.com/testcontainers/testcontainers-go",
	}},
	// It knows each store besides its backend, to read its version and to remove records.
	{pkg: "internal/proof/certify", allow: append([]string{
		"backends/...", "conformance", "core/driver", "internal/proof/...", "internal/seam", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk",
		"github.com/hashicorp/consul/api", "github.com/jackc/pgx/v5/...", "github.com/redis/go-redis/v9/...",
	}, etcdClient...)},

	// Core has everything that users need. A demonstration or example that needs the driver shows
	// that core lacks something. The gate is not a user, because it holds writes between core and
	// the backend.
	{pkg: "cmd/demo/...", allow: []string{anything}, deny: []string{"core/driver"}, except: "cmd/demo/gate.go"},
	// It reads a namespace without joining it, and names versions, which core does not.
	{pkg: "cmd/tenure", allow: []string{anything}},
	{pkg: "examples/...", allow: []string{anything}, deny: []string{"core/driver"}},
	{pkg: "bench/...", allow: []string{anything}, deny: []string{"core/driver"}},
	// A module of its own, as etcd's server has many dependencies.
	{pkg: "quorum", allow: append([]string{"backends/etcd", "core", "core/driver", "go.etcd.io/bbolt",
		"go.etcd.io/etcd/client/pkg/v3/...", "go.etcd.io/etcd/etcdutl/v3/snapshot", "go.etcd.io/etcd/pkg/v3/...", "go.etcd.io/etcd/server/v3/...",
		"go.uber.org/zap/..."}, etcdClient...)},
	{pkg: "quorum/cmd/quorum", allow: []string{"core", "quorum"}},
	{pkg: "quorum/examples/...", allow: []string{anything}, deny: []string{"core/driver"}},
	{pkg: "deploy/...", allow: []string{anything}},
	{pkg: "tools/...", allow: []string{anything}},
	{pkg: "internal/proof/ample"},
	{pkg: "internal/proof/archtest"},
	{pkg: "internal/proof/doctest"},
	{pkg: "internal/proof/browser", allow: []string{"internal/proof/ample", "internal/proof/servers"}},
	{pkg: "internal/boundjson"},
	{pkg: "internal/errtext"},
	{pkg: "internal/examine", allow: []string{"core/driver"}},
	{pkg: "internal/goexit"},
	{pkg: "internal/listing", allow: []string{"core/driver"}},
	{pkg: "internal/proof/shape", allow: []string{"internal/keyspace", "sharding/assign"}},
	{pkg: "internal/proof/bombs", allow: []string{"internal/proof/ample"}},
	{pkg: "internal/rhythm"},
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
		"internal/proof/intercept", "internal/proof/servers", "internal/proof/suite", "internal/proof/system",
	}},
	{pkg: "internal/proof/servers"},
	{pkg: "internal/proof/loglines"},
	{pkg: "internal/proof/share"},
	{pkg: "internal/proof/suite", allow: []string{"core/driver"}},
	{pkg: "internal/sidecar", allow: []string{"core", "core/control", "core/driver", "effect", "internal/rhythm", "lock",
		"golang.org/x/sys/unix"}},
	{pkg: "observe/internal/takeover", allow: []string{"core"}},
	{pkg: "observe/internal/count", allow: []string{"core"}},
	{pkg: "internal/sqlschema", allow: []string{"core/driver", "internal/grants"}},
	// It measures backends as core uses them.
	{pkg: "internal/proof/sqlfault", allow: []string{
		"core", "core/driver", "conformance", "internal/proof/ample", "internal/proof/faultproxy",
		"internal/proof/system", "internal/proof/intercept", "internal/proof/outage", "internal/proof/servers", "internal/proof/share", "internal/sqlschema",
	}},
}

// impure lists imports that are forbidden to the state machine, which does no I/O, never waits and
// shares nothing. From time and math/rand, it may use only the names in pureNames.
var impure = []string{
	"context", "sync/...", "os/...", "net/...", "io/...", "log/...", "syscall", "runtime/...",
	"crypto/rand", "database/...", "unsafe", "plugin",
}

// pureNames are the names of time and math/rand that the state machine may use: durations, and
// sources of randomness that the caller seeded.
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

// figures are functions, by folder and name, whose subject is an elapsed time. A gauge of package
// ample checks that time. If the machine is too slow, these tests are skipped and prove nothing.
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
	"quorum TestTakeover",
	"sharding/assign TestBalanceTime",
	"sharding/assign TestPlanningTime",
	"sharding/stores refused",
}

// anySize are functions, by folder and name, that read untrusted data without a limit of bytes in
// the same call. Each entry names a different limit, or the reason why the function needs none.
var anySize = map[string]string{
	"backends/consul read":      "it decodes a list of Consul's one record after the other, and keeps no long value",
	"internal/sidecar readBody": "it reads a stream of at most maxBody bytes, and every list in it is bounded",
}

// readers are packages that read untrusted data.
var readers = []string{"backends/...", "core/...", "cmd/tenure", "effect", "fence/...", "follower", "internal/changelog", "internal/operator",
	"internal/problem", "internal/sidecar", "internal/trace", "lock", "observe/...", "sharding/..."}

// unlisted are packages that call no functions of an application, or that exist for tests.
var unlisted = []string{"backends/sql/internal/...", "bench/...", "cmd/...", "conformance/...", "core/driver", "deploy/...", "examples/...", "internal/...", "tenuretest", "tools/..."}

// applied are interfaces, besides functions, that applications implement.
var applied = []string{"fence Storage", "follower Applier", "follower Blobs", "follower Positions", "follower Restorer", "sharding/assign Assigner"}

// callbacks are the functions that an application provides, by folder, type and field, with what
// happens if a function ends its goroutine. The word goexit means that package goexit calls it, and
// a test with that name shows it.
var callbacks = map[string]string{
	"backends/consul Options.Token":          "goexit: the call fails",
	"backends/kv Options.Fit":                "a driver gives it",
	"backends/memory Options.Wrap":           "in the caller's goroutine, of Open",
	"backends/sql/mysql Options.Password":    "goexit: the connection fails",
	"backends/sql/postgres Options.Password": "goexit: the connection fails",

	"core Handler":          "goexit: an error (core.Elector.serve)",
	"core Hooks.OnEvent":    "goexit: the next event",
	"core Hooks.OnCall":     "goexit: the next event",
	"core Hooks.CallStart":  "goexit: the call goes on",
	"core Options.Eligible": "goexit: not eligible",
	"core Options.Trouble":  "goexit: trouble",

	"effect Func":            "in the goroutine of Do, and in doubt (effect.Ledger.carry)",
	"effect Options.Resolve": "goexit: asked again",
	"effect Options.Rules":   "goexit: no rules",

	"fence HTTPOptions.Resource":       "in the goroutine of a request",
	"fence HTTPOptions.Unfenced":       "in the goroutine of a request",
	"fence HTTPOptions.MayWrite":       "in the goroutine of a request",
	"fence Storage.Raise":              "in the goroutine of the write, which leaves the mark (TestMarkGoexit)",
	"fence Options.MayWrite":           "in the goroutine of the write",
	"fence Options.OnRefused":          "in the goroutine of the write, which leaves the mark (TestMarkGoexit)",
	"fence Rows.MayWrite":              "in the goroutine of the write",
	"fence Rows.OnRefused":             "in the goroutine of the write",
	"fence SQLOptions.MayWrite":        "in the goroutine of the write",
	"fence SQLOptions.OnRefused":       "in the goroutine of the write",
	"fence/fencegrpc Options.Resource": "in the goroutine of a request",
	"fence/fencegrpc Options.Unfenced": "in the goroutine of a request",
	"fence/fencegrpc Options.MayWrite": "in the goroutine of a request",

	"follower Applier.Load":       "goexit: an error",
	"follower Applier.Apply":      "goexit: an error",
	"follower Restorer.Restore":   "goexit: an error",
	"follower ApplyFunc":          "goexit: an error",
	"follower RestoreFunc":        "goexit: an error",
	"follower Options.OnEvent":    "goexit: it was told",
	"follower Blobs.Put":          "in the goroutine of Write",
	"follower Blobs.Get":          "goexit: an error of the shard that is restored",
	"follower Blobs.Delete":       "in the goroutine of Write",
	"follower SQLApplyFunc":       "goexit: an error, and its transaction is rolled back",
	"follower SQLOptions.Restore": "goexit: an error, and its transaction is rolled back",
	"follower Positions.Load":     "goexit: an error of the Applier",
	"follower Positions.Save":     "goexit: an error of the Applier",

	"observe/tenurehttp Options.Lag":      "in the goroutine of a request",
	"observe/tenurehttp Options.Sharding": "in the goroutine of a request",
	"observe/tenurehttp Options.Effects":  "in the goroutine of a request",

	"sharding/assign Assigner.Plan": "in the handler of the assigner's shard, as its error",
	"sharding Options.Prepare":      "goexit: an error",
	"sharding Options.Takes":        "goexit: false",
	"sharding Options.Loads":        "goexit: an error",
	"sharding Options.OnPlan":       "goexit: it was told",
	"sharding Options.OnRange":      "goexit: it was told",
	"sharding Take":                 "goexit: an error",

	"sharding/route ClientOptions.Allow":           "in the goroutine of a request",
	"sharding/route Options.Shard":                 "in the goroutine of a request",
	"sharding/route Options.Allow":                 "in the goroutine of a request",
	"sharding/route OwnersOptions.Authorize":       "in the goroutine of a request",
	"sharding/route TransportOptions.Allow":        "in the goroutine of a request",
	"sharding/route/routegrpc Options.Shard":       "in the goroutine of a request",
	"sharding/route/routegrpc Options.StreamShard": "in the goroutine of a request",
	"sharding/route/routegrpc Options.Unrouted":    "in the goroutine of a request",

	"tenurefx Work.Start": "in a core.Handler, as its error",
	"tenurefx Work.Stop":  "in a core.Handler, as its error",
}

// layout has the packages that the checks of forbid_test.go are for.
type layout struct {
	pure    []string // no clock, no goroutine, no randomness
	silent  []string // write no log line and nothing to standard output
	program []string // wiring of whole programs, which may have package-level variables
}

var places = layout{
	pure: []string{"internal/fsm"},
	silent: []string{"core/driver", "internal/fsm", "internal/changelog", "internal/route", "backends/consul", "backends/etcd", "backends/kv",
		"backends/memory", "backends/redis", "backends/sql/...", "backends/zookeeper"}, // a bucket's checkpoints fail in the background

	program: []string{"bench/...", "cmd/...", "examples/...", "tools/..."},
}
