package bucket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	blobdriver "gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"
)

// cloud is a bucket in memory, with latency and faults.
type cloud struct {
	mu      sync.Mutex
	objects map[string][]byte
	denied  bool // creates and deletes are denied
	lying   bool // the condition of a create is ignored
	lagging bool // lists do not have the last object

	latency time.Duration // of a request and its reply
	// fault, if not nil, decides the course of a request.
	fault func(kind, name string) course

	creates, gets, lists, deletes, taken atomic.Int64
}

// course is what happens to a request. Each delay ignores the caller's context if stop is true, as
// if the process was stopped.
type course struct {
	before, after time.Duration // it reaches the server; its reply arrives
	stop          bool
	lost          bool          // it never reaches the server
	late          time.Duration // if positive, it reaches the server after the caller got an error
	err           error         // instead of the reply
	torn          bool          // only a half of the object is stored
}

func newCloud() *cloud { return &cloud{objects: make(map[string][]byte)} }

// door returns a connection to the bucket.
func (c *cloud) door() *blob.Bucket { return c.far(0) }

// far returns a connection whose requests take the given time.
func (c *cloud) far(latency time.Duration) *blob.Bucket { return blob.NewBucket(&door{c, latency}) }

func (c *cloud) snapshot() map[string][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.objects)
}

func (c *cloud) restore(objects map[string][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects = make(map[string][]byte, len(objects))
	maps.Copy(c.objects, objects)
}

func (c *cloud) deny(denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = denied
}

// names returns the names that contain a text, in order.
func (c *cloud) names(part string) []string {
	var names []string
	for name := range c.snapshot() {
		if strings.Contains(name, part) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

type codedError struct {
	text string
	code gcerrors.ErrorCode
}

func (e *codedError) Error() string { return e.text }

var (
	errNotFound  = &codedError{"NoSuchKey: the object does not exist", gcerrors.NotFound}
	errExists    = &codedError{"PreconditionFailed", gcerrors.FailedPrecondition}
	errForbidden = &codedError{"AccessDenied", gcerrors.PermissionDenied}
	errThrottled = &codedError{"SlowDown: reduce your request rate", gcerrors.Unknown}
	errReset     = &codedError{"connection reset by peer", gcerrors.Unknown}
)

type door struct {
	*cloud
	latency time.Duration // if positive, in place of the cloud's
}

// request runs one request. The server calls act.
func (d *door) request(ctx context.Context, kind, name string, act func(torn bool) error) error {
	latency := d.latency
	if latency == 0 {
		latency = d.cloud.latency
	}
	c := course{before: latency / 2, after: latency / 2}
	if d.fault != nil {
		c = d.fault(kind, name)
	}
	if err := c.sleep(ctx, c.before); err != nil {
		return err
	}
	locked := func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		return act(c.torn)
	}
	if c.late > 0 {
		time.AfterFunc(c.late, func() { _ = locked() })
		<-ctx.Done()
		return ctx.Err()
	}
	var err error
	if !c.lost {
		err = locked()
	}
	if serr := c.sleep(ctx, c.after); serr != nil {
		return serr
	}
	if c.err != nil {
		return c.err
	}
	return err
}

func (c *course) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	if c.stop {
		time.Sleep(d)
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *door) ErrorCode(err error) gcerrors.ErrorCode {
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	return gcerrors.Unknown
}

func (d *door) As(any) bool             { return false }
func (d *door) ErrorAs(error, any) bool { return false }
func (d *door) Close() error            { return nil }

func (d *door) Attributes(context.Context, string) (*blobdriver.Attributes, error) {
	return nil, errForbidden
}
func (d *door) Copy(context.Context, string, string, *blobdriver.CopyOptions) error {
	return errForbidden
}
func (d *door) SignedURL(context.Context, string, *blobdriver.SignedURLOptions) (string, error) {
	return "", errForbidden
}

func (d *door) ListPaged(ctx context.Context, o *blobdriver.ListOptions) (*blobdriver.ListPage, error) {
	d.lists.Add(1)
	page := &blobdriver.ListPage{}
	err := d.request(ctx, "list", o.Prefix, func(bool) error {
		var names []string
		for name := range d.objects {
			if strings.HasPrefix(name, o.Prefix) && name > string(o.PageToken) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if d.lagging && len(names) > 0 {
			names = names[:len(names)-1]
		}
		for i, name := range names {
			if i == o.PageSize {
				page.NextPageToken = []byte(names[i-1])
				break
			}
			page.Objects = append(page.Objects, &blobdriver.ListObject{Key: name, Size: int64(len(d.objects[name]))})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (d *door) NewRangeReader(
	ctx context.Context, key string, offset, length int64, _ *blobdriver.ReaderOptions,
) (blobdriver.Reader, error) {
	d.gets.Add(1)
	r := &reading{}
	err := d.request(ctx, "get", key, func(bool) error {
		text, ok := d.objects[key]
		if !ok {
			return errNotFound
		}
		r.attributes.Size = int64(len(text))
		text = text[min(int(offset), len(text)):]
		if length >= 0 {
			text = text[:min(int(length), len(text))]
		}
		r.Reader = bytes.NewReader(text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.Reader == nil {
		return nil, errReset
	}
	return r, nil
}

type reading struct {
	io.Reader
	attributes blobdriver.ReaderAttributes
}

func (r *reading) Close() error                             { return nil }
func (r *reading) Attributes() *blobdriver.ReaderAttributes { return &r.attributes }
func (r *reading) As(any) bool                              { return false }

func (d *door) NewTypedWriter(ctx context.Context, key, _ string, o *blobdriver.WriterOptions) (blobdriver.Writer, error) {
	return &writing{ctx: ctx, d: d, key: key, once: o.IfNotExist}, nil
}

type writing struct {
	bytes.Buffer
	ctx  context.Context
	d    *door
	key  string
	once bool
}

func (w *writing) Close() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	kind := "put"
	if w.once {
		kind = "create"
		if strings.Contains(w.key, "!log/") {
			w.d.creates.Add(1)
		}
	}
	return w.d.request(w.ctx, kind, w.key, func(torn bool) error {
		if w.d.denied {
			return errForbidden
		}
		if _, ok := w.d.objects[w.key]; ok && w.once && !w.d.lying {
			w.d.taken.Add(1)
			return errExists
		}
		text := bytes.Clone(w.Bytes())
		if torn {
			text = text[:len(text)/2]
		}
		w.d.objects[w.key] = text
		return nil
	})
}

func (d *door) Delete(ctx context.Context, key string, _ *blobdriver.DeleteOptions) error {
	d.deletes.Add(1)
	return d.request(ctx, "delete", key, func(bool) error {
		if d.denied {
			return errForbidden
		}
		if _, ok := d.objects[key]; !ok {
			return errNotFound
		}
		delete(d.objects, key)
		return nil
	})
}
