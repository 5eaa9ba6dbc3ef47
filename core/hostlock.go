package core

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/tenure-go/tenure/core/driver"
)

// noLockDir is Options.LockDir for no lock.
const noLockDir = "none"

// hold takes the lock of this process (C14), if it can be had: an advisory lock on a file
// named after the store, the namespace and the node label. Its identity is that of the
// machine's boot and of the file, which no other file has while this one is open.
//
// The rule assumes that the kernel ends a lock with the last process that has the file
// open; that no two machines run with one boot id, as copies of one that was suspended do;
// and that LockDir is of this machine. Where an assumption fails, a live process may be
// evicted, and its writes are fenced as after any eviction. e.mu is held.
func (e *Elector) hold() {
	if e.o.LockDir == noLockDir {
		return
	}
	sum := sha256.Sum256([]byte(e.info.StoreID + "\x00" + e.info.Namespace + "\x00" + e.o.Node))
	lock, err := takeHostLock(filepath.Join(e.o.LockDir, "tenure-"+hex.EncodeToString(sum[:16])+".lock"))
	if err != nil || lock == nil {
		return // nothing follows from a lock that cannot be had
	}
	e.m.Hold(lock.id)
	st := e.o.stored(e.m.State(), lock)
	st.Update = max(st.Update, 1)
	if driver.CheckUpdate(st) != nil { // no room beside the application's
		e.m.Hold("")
		lock.end(true)
		return
	}
	e.lock = lock
}
