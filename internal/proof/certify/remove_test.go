package certify

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
)

// TestRemoveInParts: after an unfinished removal, no member can open or create the namespace, and
// another removal finishes the first. The tests of cmd/tenure show the same for SQL. The other
// stores remove a namespace in one step.
func TestRemoveInParts(t *testing.T) {
	t.Parallel()
	opener, of := onServer(t, "zookeeper")
	const ns = "parts"
	open := func(create bool) error {
		b, err := settingsOf(of).in(ns, create).open(t.Context(), opener)
		if err != nil {
			return err
		}
		return b.Close()
	}
	if err := open(true); err != nil {
		t.Fatal(err)
	}
	c, _, err := zk.Connect(of.(zookeeper.Settings).Servers, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.AddAuth("digest", []byte("me:me")); err != nil {
		t.Fatal(err)
	}
	node := "/tenure" + "/" + ns + "/!state" // with two nodes in it
	all := zk.DigestACL(zk.PermAll, "me", "me")
	if _, err := c.SetACL(node, append(zk.WorldACL(zk.PermRead|zk.PermWrite|zk.PermCreate), all...), -1); err != nil {
		t.Fatal(err)
	}
	if what, err := Remove(t.Context(), opener.Name, of, ns); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("removed %s, %v", what, err)
	}
	for _, create := range []bool{false, true} {
		if err := open(create); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("opening it, create %v: %v", create, err)
		}
	}
	if _, err := c.SetACL(node, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	if what, err := Remove(t.Context(), opener.Name, of, ns); err != nil {
		t.Errorf("removed %s, %v", what, err)
	}
	if err := open(false); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("opening what was removed: %v", err)
	}
	if err := open(true); err != nil {
		t.Error(err)
	}
}
