package core

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/tenure-go/tenure/core/driver"
)

// noLockDir is the value of Options.LockDir that disables the lock.
const noLockDir = "none"

// hold acquires this process's lock (C14) if possible. The lock is an advisory lock on a file named
// after the store, the namespace and the node label. The lock's identity consists of the machine's
// boot id and the file's identity. While this file is open, no other file can have the same
// identity.
//
// Rule C14 assumes three things. The kernel releases a lock when the last process that has the file
// open ends. No two machines run with the same boot id, as copies of a suspended machine would.
// LockDir belongs to this machine. If an assumption is wrong, a live process may be evicted. That
// process's writes are then fenced, as after any eviction. The caller holds e.mu.
func (e *Elector) hold() {
	if e.o.LockDir == noLockDir {
		return
	}
	sum := sha256.Sum256([]byte(e.info.StoreID + "\x00" + e.info.Namespace + "\x00" + e.o.Node))
	lock, err := takeHostLock(filepath.Join(e.o.LockDir, "tenure-"+hex.EncodeToString(sum[:16])+".lock"))
	if err != nil || lock == nil {
		return // run without a lock
	}
	e.m.Hold(lock.id)
	st := e.o.stored(e.m.State(), lock)
	st.Update = max(st.Update, 1)
	if driver.CheckUpdate(st) != nil { // no room left in the metadata
		e.m.Hold("")
		lock.end(true)
		return
	}
	e.lock = lock
}
