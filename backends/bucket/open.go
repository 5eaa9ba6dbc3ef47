package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

const backendName = "bucket"

// Options configure Open and OpenBucket. The zero value and nil are valid.
type Options struct {
	// Prefix is the beginning of the names of all objects, such as "tenure/". Default: empty. All
	// processes need the same prefix.
	Prefix string `json:"prefix" yaml:"prefix"`

	// Create lets Open begin the log of a new namespace. Without Create, a missing log is
	// an error, because the bucket may have been emptied (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Poll is the time between two reads of the log's end. Default 1 s; 100 ms to 1 min. Each read
	// is a request that the store charges for.
	Poll time.Duration `json:"poll" yaml:"poll"`

	// MinTTL is the shortest TTL of a member. Default 5 s; at least 2 s.
	MinTTL time.Duration `json:"min_ttl" yaml:"min_ttl"`

	// Logger receives a warning if a checkpoint, or the deletion of old objects, fails. Default:
	// slog.Default().
	Logger *slog.Logger `json:"-" yaml:"-"`
}

// Config is this backend's part of a configuration.
type Config struct {
	// URL names the bucket as gocloud.dev/blob does, such as s3://my-bucket?region=eu-central-1,
	// gs://my-bucket or azblob://my-container.
	URL       string `json:"url" yaml:"url"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Options   `yaml:",inline"`
}

// Opener returns the opener for this backend, whose name in the configuration is "bucket". The
// program imports the driver for the URL, such as gocloud.dev/blob/s3blob.
func Opener() driver.Opener {
	return driver.NewOpener(backendName, func(ctx context.Context, c *Config) (*kv.Backend, error) {
		return Open(ctx, c.URL, c.Namespace, &c.Options)
	})
}

func (o *Options) withDefaults() (Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.MinTTL == 0 {
		c.MinTTL = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Poll < 100*time.Millisecond || c.Poll > time.Minute:
		return c, fmt.Errorf("tenure: %w: Options.Poll is %v: use 100 ms to 1 min", driver.ErrInvalid, c.Poll)
	case c.MinTTL < 2*time.Second:
		return c, fmt.Errorf("tenure: %w: Options.MinTTL is %v: use at least 2 s", driver.ErrInvalid, c.MinTTL)
	case len(c.Prefix) > 256 || strings.HasPrefix(c.Prefix, "/") || strings.ContainsFunc(c.Prefix, odd):
		return c, fmt.Errorf("tenure: %w: Options.Prefix %.80q: use at most 256 printable ASCII characters, "+
			"without spaces and without a slash at the beginning", driver.ErrInvalid, c.Prefix)
	}
	return c, nil
}

func odd(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }

// Open opens a namespace in the bucket with a URL. The program imports the driver for the URL, such
// as gocloud.dev/blob/s3blob. Close also closes the bucket. The context limits only Open itself,
// and o may be nil. An error explains what to change.
func Open(ctx context.Context, bucketURL, namespace string, o *Options) (*kv.Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var opened [2]*blob.Bucket // two connections for the proof
	for i := range opened {
		if opened[i], err = blob.OpenBucket(ctx, bucketURL); err != nil {
			err = fmt.Errorf("tenure: cannot open the bucket %s: %w: %w", shown(bucketURL), driver.ErrInvalid,
				failed("blob", err))
			break
		}
	}
	var b *kv.Backend
	if err == nil {
		b, err = open(ctx, config{Options: opts, bucket: opened[0], second: opened[1], name: shown(bucketURL),
			namespace: namespace, close: opened[0].Close})
	}
	if opened[1] != nil {
		err = errors.Join(err, opened[1].Close())
	}
	if err != nil && b != nil {
		err = errors.Join(err, b.Close())
	} else if err != nil && opened[0] != nil {
		err = errors.Join(err, opened[0].Close())
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// shown returns a URL without credentials.
func shown(bucketURL string) string {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return "(its URL cannot be parsed)"
	}
	return fmt.Sprintf("%.200s", u.Scheme+"://"+u.Host+u.Path)
}

// OpenBucket opens a namespace in the caller's bucket, which must stay open until the Backend is
// closed. The context limits only OpenBucket itself, and o may be nil. An error explains what to
// change.
func OpenBucket(ctx context.Context, b *blob.Bucket, namespace string, o *Options) (*kv.Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return open(ctx, own(opts, b, namespace))
}

// own returns what open needs for the caller's own bucket.
func own(o Options, b *blob.Bucket, namespace string) config {
	return config{Options: o, bucket: b, second: b, name: "of the caller", namespace: namespace, close: stays}
}

func stays() error { return nil }

// config is what open needs.
type config struct {
	Options
	bucket, second *blob.Bucket
	name           string
	namespace      string
	close          func() error // of the bucket, called by Backend.Close
	every, keep    int64        // 0: the defaults
}

func open(ctx context.Context, c config) (*kv.Backend, error) {
	s, err := prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	return finish(ctx, s, s, c)
}

// finish opens the namespace of s through a store, which is s or a decorator.
func finish(ctx context.Context, s *store, through kv.Store, c config) (*kv.Backend, error) {
	b, err := kv.Open(ctx, through, kv.Options{
		Backend: backendName, Namespace: c.namespace, Create: c.Create, Limits: driver.Limits{
			BatchItems: 256, CommitCalls: 64, WriteOps: 1024, WriteBytes: 1 << 20, PollPeriod: c.Poll, MinTTL: c.MinTTL,
		},
	})
	if err != nil {
		s.close = stays
		return nil, errors.Join(err, through.Close())
	}
	return b, nil
}

// prepare reads the log, and proves that the bucket honors conditions, before anything is written
// to the log.
func prepare(ctx context.Context, c config) (*store, error) {
	if c.bucket == nil {
		return nil, fmt.Errorf("tenure: cannot open namespace %q: %w: OpenBucket needs a bucket", c.namespace,
			driver.ErrInvalid)
	}
	if _, err := kvkeys.New(c.namespace); err != nil {
		return nil, err
	}
	if isFolder(c.bucket) {
		return nil, fmt.Errorf("tenure: the bucket %s: %w: it is a folder, whose conditions hold in one process only: "+
			"use SQLite", c.name, driver.ErrUnsupported)
	}
	s := &store{
		objects: objects{bucket: c.bucket, prefix: c.Prefix + c.namespace + "/", namespace: c.namespace},
		poll:    c.Poll, logger: c.Logger, writer: rand.Text(), close: c.close, every: c.every, keep: c.keep,
	}
	if s.every == 0 {
		s.every, s.keep = 512, 1024
	}
	st, err := s.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("tenure: opening namespace %q in the bucket %s: %w", c.namespace, c.name, err)
	}
	if st.number == 0 && !c.Create {
		return nil, &driver.MissingError{
			What: fmt.Sprintf("namespace %q has no log in the bucket %s", c.namespace, c.name),
			Make: "open it once with Create; if it was in use before", Err: driver.ErrStoreChanged,
		}
	}
	if err := s.proof(ctx, c.second, c.name); err != nil {
		return nil, err
	}
	s.state, s.proven = st, st.point()
	s.looked = time.Now()
	s.start()
	return s, nil
}

// rounds is the number of names that the proof creates.
const rounds = 10

// proof creates each of ten names from two connections, of which exactly one must succeed (rule
// P1). A list must then have all names.
func (s *store) proof(ctx context.Context, second *blob.Bucket, name string) (err error) {
	id := rand.Text()
	probe := func(i int) string { return fmt.Sprintf("%s!probe/%s/%020d", s.prefix, id, i+1) }
	other := s.objects
	other.bucket = second
	var errs [2 * rounds]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			o := [2]*objects{&s.objects, &other}[i%2]
			errs[i] = o.create(ctx, probe(i/2), []byte{byte('a' + i%2)})
		})
	}
	all.Wait()
	defer func() {
		for i := range rounds {
			all.Go(func() { errs[i] = s.remove(ctx, probe(i)) })
		}
		all.Wait()
		if rerr := errors.Join(errs[:rounds]...); rerr != nil && err == nil {
			err = fmt.Errorf("tenure: the bucket %s: removing objects of the probe: %w", name, rerr)
		}
		clear(errs[:])
	}()
	for i := range rounds {
		a, b := errs[2*i], errs[2*i+1]
		if a == nil && b == nil {
			return fmt.Errorf("tenure: the bucket %s: %w: it ignores the condition that an object must not exist: "+
				"of two creates of one name, both succeeded", name, driver.ErrUnsupported)
		}
		for _, e := range []error{a, b} {
			if gcerrors.Code(e) == gcerrors.Unimplemented {
				return fmt.Errorf("tenure: the bucket %s: %w: it has no conditional create: %w", name, driver.ErrUnsupported, e)
			}
			if e != nil && !errors.Is(e, errTaken) {
				return fmt.Errorf("tenure: the bucket %s: probing: %w", name, e)
			}
		}
		if a != nil && b != nil {
			return fmt.Errorf("tenure: the bucket %s: %w: of two creates of one name, none succeeded", name,
				driver.ErrUnsupported)
		}
	}
	clear(errs[:])
	began := time.Now()
	found, err := s.list(ctx, fmt.Sprintf("!probe/%s/", id))
	if err != nil {
		return fmt.Errorf("tenure: the bucket %s: probing: %w", name, err)
	}
	s.pace.own = min(time.Since(began), maxPace)
	if len(found) != rounds {
		return fmt.Errorf("tenure: the bucket %s: %w: a list has %d of %d objects that were just created", name,
			driver.ErrUnsupported, len(found), rounds)
	}
	return nil
}

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. Call RaiseFloor
// after the bucket was restored to an older version, while no member runs. Pass the highest token
// known from logs, marks or metrics. The bucket stays open.
func RaiseFloor(ctx context.Context, b *blob.Bucket, namespace string, above driver.Token, o *Options) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	opts.Create = false
	s, err := prepare(ctx, own(opts, b, namespace))
	if err != nil {
		return err
	}
	return errors.Join(kv.RaiseFloor(ctx, s, namespace, above), s.Close())
}
