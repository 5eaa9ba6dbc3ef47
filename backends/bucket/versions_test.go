package bucket

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// onS3 runs a test on a bucket without versions, and on one with versions.
func onS3(t *testing.T, test func(*testing.T, *cast, bool)) {
	t.Parallel()
	for name, versions := range map[string]bool{"plain": false, "versions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCast(t, shared(t, servers.S3))
			if versions {
				_, err := c.client(c.transport()).PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
					Bucket:                  &c.Bucket,
					VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			test(t, c, versions)
		})
	}
}

// names returns the names of objects that contain a text.
func (c *cast) names(part string) (names []string) {
	c.use(func(ctx context.Context, b *blob.Bucket) (err error) {
		names, err = list(ctx, b)
		return err
	})
	return slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, part) })
}

// purge removes the versions and the marks of deletions, as versitygw creates no object again whose
// name has a mark.
func (c *cast) purge() {
	c.Helper()
	client := c.client(c.transport())
	for {
		page, err := client.ListObjectVersions(c.Context(), &s3.ListObjectVersionsInput{Bucket: &c.Bucket})
		if err != nil {
			c.Fatal(err)
		}
		var ids []types.ObjectIdentifier
		for _, v := range page.Versions {
			ids = append(ids, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, v := range page.DeleteMarkers {
			ids = append(ids, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		if len(ids) == 0 {
			return
		}
		_, err = client.DeleteObjects(c.Context(), &s3.DeleteObjectsInput{Bucket: &c.Bucket,
			Delete: &types.Delete{Objects: ids}})
		if err != nil {
			c.Fatal(err)
		}
	}
}

// TestDeletedNumbers: a process deletes old objects, also where the bucket keeps them as versions.
// A create of a deleted number may arrive late. If it succeeds, nobody reads its object.
func TestDeletedNumbers(t *testing.T) {
	onS3(t, func(t *testing.T, c *cast, versions bool) {
		conf := testConfig(c, "app", true)
		conf.every, conf.keep = 4, 8
		s, err := prepare(t.Context(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer conf.second.Close()
		defer closeAll(t, s)
		writes := kv.Rev(0)
		write := func(n int) {
			more(t, s, n)
			writes += kv.Rev(n)
		}
		ample.Wait(t, "old objects were not deleted", func() bool {
			write(1) // a checkpoint may have been left out, as the one before it was being written
			return !slices.Contains(c.names("!log/"), s.logName(1))
		})
		kept, err := c.client(c.transport()).ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &c.Bucket})
		if err != nil {
			t.Fatal(err)
		}
		if versions != (len(kept.DeleteMarkers) > 0) {
			t.Errorf("versions %v: the bucket has %d versions and %d marks of deletions", versions, len(kept.Versions),
				len(kept.DeleteMarkers))
		}
		late := example()
		late.number = 1
		door := c.door()
		defer door.Close()
		err = door.WriteAll(t.Context(), s.logName(1), late.encode(), &blob.WriterOptions{IfNotExist: true})
		// With versions, versitygw takes the mark of a deletion for an object. S3 does not.
		if err != nil && (!versions || gcerrors.Code(err) != gcerrors.FailedPrecondition) {
			t.Errorf("a create of a number that was deleted: %v", err)
		}
		write(2)
		conf = testConfig(c, "app", false)
		defer conf.second.Close()
		other, err := prepare(t.Context(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(t, other)
		page, err := other.Get(t.Context(), "app/k", "app/a")
		if err != nil || page.Rev != writes || page.Pairs[0].Rev != writes || page.Pairs[1].Rev != 0 {
			t.Errorf("a new process reads %+v, %v, want revision %d", page, err, writes)
		}
	})
}

// TestEmptied: if a bucket is emptied, running members halt, and no process opens it without
// Create.
func TestEmptied(t *testing.T) {
	onS3(t, func(t *testing.T, c *cast, versions bool) {
		var ends []func() error
		var ended []<-chan struct{}
		for _, name := range []string{"one", "two"} {
			o := memberOptions(name)
			o.ReturnHalted = true
			end, done := c.begin(c.backend(true), name, o)
			ends, ended = append(ends, end), append(ended, done)
		}
		c.progress("")
		c.restore(nil)
		for i, done := range ended {
			ample.Wait(t, "a member continues on an emptied bucket", func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			if err := ends[i](); !errors.Is(err, driver.ErrStoreChanged) {
				t.Errorf("a member ends with %v, want ErrStoreChanged", err)
			}
		}
		refused := func(want int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			defer cancel()
			opened := c.door()
			defer opened.Close()
			before := len(c.names("!log/"))
			b, err := openReal(ctx, opened, false)
			if err == nil {
				err = b.Close()
				t.Errorf("an emptied bucket was opened, and closes with %v", err)
			} else if !errors.Is(err, driver.ErrStoreChanged) {
				t.Errorf("opening an emptied bucket: %v, want ErrStoreChanged", err)
			}
			if after := len(c.names("!log/")); after != before || want >= 0 && after != want {
				t.Errorf("%d objects before the open, %d after it", before, after)
			}
		}
		refused(-1) // members may have left objects
		c.restore(nil)
		refused(0)
		if versions {
			c.purge()
		}
		b := c.backend(true)
		if page, err := b.ReadLog(t.Context(), job, 0, 10); err != nil || len(page.Entries) > 0 {
			t.Errorf("the new log has %d entries, %v", len(page.Entries), err)
		}
	})
}
