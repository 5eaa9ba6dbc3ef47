package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the time of a request. A heartbeat waits for the request before it.
const (
	requestTime    = 3 * time.Second
	checkpointTime = 5 * time.Minute
)

const maxErrorText = 1000

// objects are the objects of one namespace.
type objects struct {
	bucket    *blob.Bucket
	prefix    string // of all names
	namespace string
	blind     bool // for the control of a test: nothing is proven
}

func (o *objects) logName(n int64) string { return fmt.Sprintf("%s!log/%020d", o.prefix, n) }
func (o *objects) checkpointName(n int64) string {
	return fmt.Sprintf("%s!checkpoint/%020d", o.prefix, n)
}

// These errors say how a request ended.
var (
	errMissing = errors.New("there is no such object")
	errTaken   = errors.New("there is such an object already")
)

// requestError is the error of a request. Its text has no query, in which an URL may have a
// signature.
type requestError struct {
	text string
	err  error
}

func (e *requestError) Error() string { return e.text }
func (e *requestError) Unwrap() error { return e.err }

var query = regexp.MustCompile(`\?[^\s"']*`)

func failed(what string, err error) error {
	text := query.ReplaceAllString(strings.ToValidUTF8(err.Error(), "?"), "?...")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	e := &requestError{text: fmt.Sprintf("%s: %s", what, text), err: err}
	if denied(err) {
		return fmt.Errorf("%w: %w", driver.ErrDenied, e)
	}
	return e
}

// denied also recognizes an answer that Google's driver reports as a missing object.
func denied(err error) bool {
	return gcerrors.Code(err) == gcerrors.PermissionDenied || strings.Contains(err.Error(), "googleapi: Error 401") ||
		strings.Contains(err.Error(), "googleapi: Error 403")
}

// missing reports whether the store says that there is no object. Drivers also report NotFound if
// they find no server, or a bucket in another region.
func missing(err error) bool {
	if gcerrors.Code(err) != gcerrors.NotFound || denied(err) {
		return false
	}
	for _, other := range [...]string{"no such host", "StatusCode: 301", "MovedPermanently", "PermanentRedirect"} {
		if strings.Contains(err.Error(), other) {
			return false
		}
	}
	return true
}

// create creates an object. Unless the error is nil, the outcome is unknown.
func (o *objects) create(ctx context.Context, name string, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	// An object up to BufferSize is sent in one request.
	err := o.bucket.WriteAll(ctx, name, text, &blob.WriterOptions{
		IfNotExist: true, ContentType: "application/octet-stream", BufferSize: 5 << 20,
	})
	switch {
	case err == nil:
		return nil
	case gcerrors.Code(err) == gcerrors.FailedPrecondition:
		return errTaken
	}
	return failed("creating "+name, err)
}

// read returns an object of at most most bytes, or its first bytes if part is positive.
func (o *objects) read(ctx context.Context, name string, part int64, most int) (_ []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if part == 0 {
		part = -1
	}
	r, err := o.bucket.NewRangeReader(ctx, name, 0, part, nil)
	if err != nil {
		if missing(err) {
			return nil, errMissing
		}
		return nil, failed("reading "+name, err)
	}
	defer func() { err = closed(r, name, err) }()
	if part < 0 && r.Size() > int64(most) {
		return nil, fmt.Errorf("tenure: %s: %w: it has %d bytes; want at most %d", name, driver.ErrDamaged, r.Size(), most)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, failed("reading "+name, err)
	}
	if len(text) > most || part < 0 && int64(len(text)) != r.Size() {
		return nil, fmt.Errorf("reading %s: %d of %d bytes arrived", name, len(text), r.Size())
	}
	return text, nil
}

func closed(c io.Closer, name string, err error) error {
	if cerr := c.Close(); cerr != nil && err == nil {
		return failed("reading "+name, cerr)
	}
	return err
}

// entry returns the object with a number, which may have at most most bytes.
func (o *objects) entry(ctx context.Context, n int64, most int) (*entry, error) {
	name := o.logName(n)
	text, err := o.read(ctx, name, 0, most)
	if err != nil {
		return nil, err
	}
	e, err := decodeEntry(text, n, o.namespace)
	if err != nil {
		return nil, fmt.Errorf("tenure: %s: %w", name, err)
	}
	return e, nil
}

// has reports whether the object with a number exists and has a nonce.
func (o *objects) has(ctx context.Context, n int64, want nonce) (bool, error) {
	text, err := o.read(ctx, o.logName(n), int64(headerSize), headerSize)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return len(text) == headerSize && nonce(text[len(entryFormat):]) == want, nil
}

// remove deletes an object, which may be gone already.
func (o *objects) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := o.bucket.Delete(ctx, name); err != nil && !missing(err) {
		return failed("deleting "+name, err)
	}
	return nil
}

const listPage = 1000

// list returns up to listPage numbers of the objects below a prefix, in ascending order. It ignores
// other names.
func (o *objects) list(ctx context.Context, prefix string) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	page, _, err := o.bucket.ListPage(ctx, blob.FirstPageToken, listPage, &blob.ListOptions{Prefix: o.prefix + prefix})
	if err != nil {
		return nil, failed("listing "+o.prefix+prefix, err)
	}
	var numbers []int64
	for i, object := range page {
		if i > 0 && page[i-1].Key >= object.Key {
			return nil, fmt.Errorf("tenure: %w: a list of %s%s is not in order", driver.ErrUnsupported, o.prefix, prefix)
		}
		digits := strings.TrimPrefix(object.Key, o.prefix+prefix)
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n > 0 && len(digits) == 20 {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// checkpoints returns the numbers of the checkpoints, in ascending order. Names beyond the first
// page, which only a stranger can have written, do not count.
func (o *objects) checkpoints(ctx context.Context) ([]int64, error) {
	return o.list(ctx, "!checkpoint/")
}

func (o *objects) readCheckpoint(ctx context.Context, n int64) (_ *checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkpointTime)
	defer cancel()
	name := o.checkpointName(n)
	r, err := o.bucket.NewReader(ctx, name, nil)
	if err != nil {
		if missing(err) {
			return nil, errMissing
		}
		return nil, failed("reading "+name, err)
	}
	defer func() { err = closed(r, name, err) }()
	if r.Size() > 2*maxRecords {
		return nil, fmt.Errorf("tenure: %s: %w: it has %d bytes", name, driver.ErrDamaged, r.Size())
	}
	c, err := decodeCheckpoint(r, int(r.Size()), n, o.namespace, maxRecords+reserve)
	if err != nil {
		return nil, failed(name, err)
	}
	return c, nil
}

func (o *objects) writeCheckpoint(ctx context.Context, c *checkpoint) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointTime)
	defer cancel()
	name := o.checkpointName(c.number)
	w, err := o.bucket.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return failed("writing "+name, err)
	}
	err = c.encodeTo(w)
	if err != nil {
		cancel() // Close would otherwise store the part that was written
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return failed("writing "+name, err)
	}
	return nil
}

// isFolder reports whether the bucket is a folder of this host.
func isFolder(b *blob.Bucket) bool {
	var info os.FileInfo
	return b.As(&info)
}
