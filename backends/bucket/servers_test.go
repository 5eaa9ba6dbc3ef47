package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
	"gocloud.dev/gcp"
	"google.golang.org/api/option"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	proofsuite "github.com/tenure-go/tenure/internal/proof/suite"
)

var pool servers.Pool

func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		os.Exit(runMember(text))
	}
	os.Exit(pool.Run(m))
}

// stores are the servers of the tests, each with the API of a cloud.
var stores = []servers.Kind{servers.S3, servers.GCS}

// address says how to reach a bucket of a server.
type address struct {
	Kind                         servers.Kind
	Server, User, Secret, Bucket string
}

// client returns a client for versitygw, which sends its requests through a transport.
func (a address) client(through http.RoundTripper) *s3.Client {
	return s3.NewFromConfig(aws.Config{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider(a.User, a.Secret, ""),
		HTTPClient: &http.Client{Transport: through},
	}, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = aws.String("http://"+a.Server), true })
}

// open opens the bucket as a program does, but for the server's address.
func (a address) open(ctx context.Context, through http.RoundTripper) (*blob.Bucket, error) {
	if a.Kind == servers.S3 {
		return s3blob.OpenBucket(ctx, a.client(through), a.Bucket, nil)
	}
	return gcsblob.OpenBucket(ctx, gcp.NewAnonymousHTTPClient(through), a.Bucket, &gcsblob.Options{
		ClientOptions: []option.ClientOption{option.WithEndpoint("http://" + a.Server + "/storage/v1/")},
	})
}

// served is a bucket of a server.
type served struct {
	address
	t          conformance.T
	mu         sync.Mutex
	transports []*http.Transport
}

// newServed creates a bucket.
func newServed(t conformance.T, server *servers.Server) *served {
	t.Helper()
	s := &served{t: t, address: address{Kind: server.Kind(), Server: server.Addr(), User: server.User().User(),
		Secret: server.User().Password(), Bucket: "tenure-" + strings.ToLower(rand.Text())}}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, through := range s.transports {
			through.CloseIdleConnections()
		}
	})
	var err error
	if s.Kind == servers.S3 {
		_, err = s.client(s.transport()).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &s.Bucket})
	} else {
		err = s.post(fmt.Sprintf(`{"name": %q}`, s.Bucket))
	}
	if err != nil {
		t.Fatalf("creating a bucket: %v", err)
	}
	return s
}

// post sends a request to create a bucket.
func (s *served) post(text string) error {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.Server+"/storage/v1/b",
		strings.NewReader(text))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: s.transport()}).Do(req)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	if res != nil {
		err = errors.Join(err, res.Body.Close())
	}
	return err
}

// transport returns one whose connections are closed after the test, or if they are idle. A case
// checks that no goroutine is left.
func (s *served) transport() *http.Transport {
	through := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 2 * time.Second}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transports = append(s.transports, through)
	return through
}

func (s *served) door() *blob.Bucket {
	b, err := s.open(context.Background(), s.transport())
	if err != nil {
		s.t.Errorf("opening %s: %v", s.Bucket, err)
		b = newCloud().door()
	}
	return b
}

func (s *served) snapshot() map[string][]byte {
	objects := map[string][]byte{}
	s.use(func(ctx context.Context, b *blob.Bucket) error {
		names, err := list(ctx, b)
		for _, name := range names {
			text, rerr := b.ReadAll(ctx, name)
			if rerr == nil {
				objects[name] = text
			} else if gcerrors.Code(rerr) != gcerrors.NotFound { // a process may have deleted it
				err = errors.Join(err, rerr)
			}
		}
		return err
	})
	return objects
}

// list returns the names of all objects.
func list(ctx context.Context, b *blob.Bucket) (names []string, err error) {
	for objects := b.List(nil); ; {
		object, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, err
		}
		names = append(names, object.Key)
	}
}

// restore deletes all objects, also those that processes create in the course of it.
func (s *served) restore(objects map[string][]byte) {
	s.use(func(ctx context.Context, b *blob.Bucket) error {
		for {
			names, err := list(ctx, b)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := b.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
					return err
				}
			}
			if len(names) == 0 {
				break
			}
		}
		for name, text := range objects {
			if err := b.WriteAll(ctx, name, text, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// use calls fn on a connection.
func (s *served) use(fn func(context.Context, *blob.Bucket) error) {
	ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
	defer cancel()
	b := s.door()
	if err := errors.Join(fn(ctx, b), b.Close()); err != nil {
		s.t.Errorf("bucket %s: %v", s.Bucket, err)
	}
}

// shared returns the server of tests that do not stop it. fake-gcs-server has its objects in memory,
// because it flushes files for each object.
func shared(t *testing.T, kind servers.Kind) *servers.Server {
	t.Helper()
	if kind == servers.GCS {
		return pool.Get(t, kind, &servers.Options{Config: []string{"FAKE_GCS_BACKEND = memory"}})
	}
	return pool.Get(t, kind, nil)
}

// each runs a test on each kind of server.
func each(t *testing.T, test func(*testing.T, servers.Kind)) {
	t.Parallel()
	for _, kind := range stores {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// onServer returns a harness whose cases have a bucket each.
func onServer(t *testing.T, kind servers.Kind) conformance.Harness {
	server := shared(t, kind)
	return harness(func(t conformance.T) *suite { return &suite{place: newServed(t, server)} })
}

// TestDoors runs the cases about claims, commits and fences on servers. Each Backend of a case has
// its own connections. With -short, only the cases in which connections race, or requests arrive
// late or twice, run.
func TestDoors(t *testing.T) {
	each(t, func(t *testing.T, kind servers.Kind) {
		if !testing.Short() {
			conformance.TestDoors(t, onServer(t, kind), nil)
			return
		}
		conformance.TestCases(t, onServer(t, kind), "Acquire/Exclusive", "Acquire/ManyContenders", "Acquire/ClaimRacesEvict",
			"Acquire/Idempotent", "Commit/FencedAfterTakeover", "Commit/FencedAfterPreempt", "Commit/LateRequestRefused",
			"Commit/DuplicateRequestHarmless", "Commit/NumberMustBeNext")
	})
}

// TestServers runs the whole suite on servers.
func TestServers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestDoors runs some cases")
	}
	each(t, func(t *testing.T, kind servers.Kind) { conformance.Test(t, onServer(t, kind)) })
}

// TestRaces: of twelve connections that create one name together, exactly one succeeds, and the
// object has its bytes. The driver reports the others as the package expects it.
func TestRaces(t *testing.T) {
	each(t, func(t *testing.T, kind servers.Kind) {
		const rounds, writers = 40, 12
		s := newServed(proofsuite.Wrap(t), shared(t, kind))
		var doors [writers]*blob.Bucket
		for i := range doors {
			doors[i] = s.door()
			defer doors[i].Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		defer cancel()
		for round := range rounds {
			name := fmt.Sprintf("race/!log/%020d", round)
			var errs [writers]error
			var all sync.WaitGroup
			begin := make(chan struct{})
			for i, b := range doors {
				all.Go(func() {
					<-begin
					errs[i] = b.WriteAll(ctx, name, fmt.Appendf(nil, "writer %d", i), &blob.WriterOptions{IfNotExist: true})
				})
			}
			close(begin)
			all.Wait()
			refused, winner := 0, ""
			for i, err := range errs {
				switch {
				case err == nil && winner == "":
					winner = fmt.Sprintf("writer %d", i)
				case gcerrors.Code(err) == gcerrors.FailedPrecondition:
					refused++
				default:
					t.Errorf("round %d: %s is answered %v, and %q succeeded", round, fmt.Sprintf("writer %d", i), err, winner)
				}
			}
			text, err := doors[round%writers].ReadAll(ctx, name)
			if err != nil || string(text) != winner || refused != writers-1 {
				t.Fatalf("round %d: %q succeeded, %d were refused, and the object has %q, %v", round, winner, refused, text, err)
			}
		}
		t.Logf("%d rounds of %d writers: one succeeded in each", rounds, writers)
	})
}
