package follower

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// mutants lists removals of a single rule from the follower, and the test that must then fail.
var mutants = []mutate.Mutant{
	{Name: "an Applier that ends its goroutine is the shard's last", Killer: "TestGoexit", Edits: []mutate.Edit{
		{File: "cursor.go", In: "Tailer.work", Old: "err := goexit.Call(func() (err error) { more, err = t.advance(ctx, l); return err })",
			New: "var err error\n\t\tmore, err = t.advance(ctx, l)"}}},
	{Name: "Load that ends its goroutine ends the follower", Killer: "TestGoexit", Edits: []mutate.Edit{
		{File: "tailer.go", In: "Tailer.positions", Old: "err := goexit.Call(func() (err error) { cp, err = f.applier.Load(ctx); return err })",
			New: "var err error\n\tcp, err = f.applier.Load(ctx)"}}},
	{Name: "T1: a gap in a page is not noticed", Killer: "TestRefusedEntries/gap", Edits: []mutate.Edit{
		{File: "cursor.go", In: "inOrder", Old: "got.Seq != at.Seq+1 || got.Token < at.Token", New: "got.Token < at.Token"}}},
	{Name: "T2: a lower token is applied", Killer: "TestRefusedEntries/lower_token", Edits: []mutate.Edit{
		{File: "cursor.go", In: "inOrder", Old: "got.Seq != at.Seq+1 || got.Token < at.Token", New: "got.Seq != at.Seq+1"}}},
	{Name: "T5: an entry that fails is skipped", Killer: "TestFailingEntry", Edits: []mutate.Edit{
		{File: "cursor.go", In: "Tailer.advance", Old: "err := l.f.applier.Apply(ctx, b); err != nil {",
			New: "err := l.f.applier.Apply(ctx, b); err != nil && false {"}}},
	{Name: "T5: a position that moved is not asked for", Killer: "TestPositionMoved", Edits: []mutate.Edit{
		{File: "cursor.go", In: "Tailer.work", Old: "errors.Is(err, ErrMoved) && t.reload(ctx, l) > 0", New: "false"}}},
	{Name: "T6: a stream that fell silent is believed", Killer: "TestStreamIsOnlyAHint/silent", Edits: []mutate.Edit{
		{File: "stream.go", In: "Tailer.resync",
			Old: "for attempt := 0; wait(ctx, pause); {", New: "for attempt := 0; wait(ctx, pause) && attempt > 0; {"}}},
	{Name: "T6: trimmed entries are skipped", Killer: "TestTrimmedAhead", Edits: []mutate.Edit{
		{File: "cursor.go", In: "Tailer.advance", Old: "return true, t.restore(ctx, l, err)",
			New: "t.mu.Lock()\n\t\tt.moveTo(l, Position{Shard: string(l.s.id), Seq: l.pos.Seq + 1, Token: " +
				"1})\n\t\tl.verify = false\n\t\tt.mu.Unlock()\n\t\treturn true, nil"}}},
	{Name: "T6: a snapshot that does not reach the log is restored", Killer: "TestRandom", Edits: []mutate.Edit{
		{File: "restore.go", In: "Tailer.restore", Old: "snap.Seq+1 < trimmed.Oldest", New: "trimmed.Oldest < 0"},
		{File: "snapshot.go", In: "Snapshotter.Read", Old: "if m.Current == nil {\n\t\t\treturn nil, nil\n\t\t}",
			New: "if m.Current == nil {\n\t\t\treturn nil, nil\n\t\t}\n\t\tm.Current.Seq--"}}},
	{Name: "T2: a snapshot of a lower token is restored", Killer: "TestSnapshotOfLowerToken", Edits: []mutate.Edit{
		{File: "restore.go", In: "Tailer.restore", Old: "case snap.Token < from.Token:", New: "case snap.Token < 0:"}}},
	{Name: "T7: the log is trimmed before the snapshot is whole",
		Killer: "TestSnapshotCrash/after_1_commits,_replies_lost_false", Edits: []mutate.Edit{
			{File: "snapshot.go", In: "Snapshotter.put", Old: "m.Next = p\n\tif err := m.commit(ctx, lease);",
				New: "m.Next = p\n\tif err := m.commit(ctx, lease, s.trim(lease, seq)...);"}}},
	{Name: "T7: the former snapshot is removed first", Killer: "TestSnapshotCrash/after_2_commits,_replies_lost_false",
		Edits: []mutate.Edit{
			{File: "snapshot.go", In: "Snapshotter.put", Old: "\tm.Next = p\n",
				New: "\tm.Gone = m.Current\n\ts.removeGone(ctx, lease, m)\n\tm.Next = p\n"}}},
	{Name: "T7: the remains of a crash stay", Killer: "TestSnapshotCrash/after_4_commits,_replies_lost_false",
		Edits: []mutate.Edit{
			{File: "snapshot.go", In: "Snapshotter.tidy", Old: "if m.Next != nil { //", New: "if false { //"}}},
	{Name: "T7: the former snapshot is removed before the next one counts", Killer: "TestSnapshotRepeated/keep_-1,_chunks,_late,_then_35",
		Edits: []mutate.Edit{
			{File: "snapshot.go", In: "Snapshotter.put", Old: "\tm.Current, m.Next, m.Gone = p, nil, m.Current\n",
				New: "\tm.Gone = m.Current\n\ts.removeGone(ctx, lease, m)\n\tm.Current, m.Next = p, nil\n"}}},
	{Name: "T7: a snapshot's checksum is not compared", Killer: "TestSnapshotBlobs", Edits: []mutate.Edit{
		{File: "snapshot.go", In: "Snapshotter.state", Old: "int64(len(state)) != p.Bytes || sum(state) != p.Sum", New: "false"}}},
	{Name: "T8: a head behind the position is not noticed", Killer: "TestStoreWentBack/restarted", Edits: []mutate.Edit{
		{File: "cursor.go", In: "Tailer.read", Old: "if page.Head.Seq < from.Seq {", New: "if false {"}}},
	{Name: "T8: the entry at the position is not compared", Killer: "TestStoreWentBack/restarted,_more_entries_later",
		Edits: []mutate.Edit{
			{File: "cursor.go", In: "Tailer.read", Old: "got != from.Token", New: "got < 0"}}},
	{Name: "T8: a stream that comes back is believed", Killer: "TestStoreWentBackUnheard/the-stream-fails",
		Edits: []mutate.Edit{
			{File: "stream.go", In: "Tailer.doubt", Old: "			l.verify = true\n", New: ""},
			{File: "stream.go", In: "Tailer.heads", Old: "l.verify = l.verify || news", New: "_ = news"}}},
	{Name: "T8: entries of the stream from before it broke are applied", Killer: "TestStreamOfBefore",
		Edits: []mutate.Edit{
			{File: "stream.go", In: "Tailer.doubt", Old: "			t.cut(l, len(l.buf))\n", New: ""}}},
	{Name: "T8: heads that the stream did not bring are believed",
		Killer: "TestStoreWentBackUnheard/the-heads-are-news", Edits: []mutate.Edit{
			{File: "stream.go", In: "Tailer.heads", Old: "l.verify = l.verify || news", New: "_ = news"}}},
	{Name: "T8: a read that failed is repeated without a look", Killer: "TestStoreWentBackUnheard/a-read-fails",
		Edits: []mutate.Edit{
			{File: "cursor.go", In: "Tailer.failed", Old: "l.verify = true // the store may", New: "// the store may"}}},
	{Name: "T8: a read is believed that was under way", Killer: "TestStoreWentBackUnheard/a-read-is-answered-late",
		Edits: []mutate.Edit{
			{File: "cursor.go", In: "Tailer.next", Old: "if l.verify && !verify && b.From.Seq > 0 {", New: "if false {"}}},
	{Name: "T8: a shard that the store lost is not missed", Killer: "TestStoreLostShard", Edits: []mutate.Edit{
		{File: "stream.go", In: "Tailer.heads", Old: "if s.sweep == t.sweep {", New: "if true {"}}},
	{Name: "T8: positions of another store are taken", Killer: "TestAnotherStore", Edits: []mutate.Edit{
		{File: "tailer.go", In: "Tailer.positions", Old: "if cp.Store != t.store &&", New: "if false &&"}}},
	{Name: "V5: entries that wait for a blocked shard are not bounded", Killer: "TestBlockedShard",
		Edits: []mutate.Edit{
			{File: "cursor.go", In: "Tailer.offer", Old: "l.bytes+size > t.o.Buffer/64 || t.buffered+size > t.o.Buffer", New: "false"}}},
	{Name: "V5: shards wait for each other", Killer: "TestBlockedShard", Edits: []mutate.Edit{
		{File: "tailer.go", In: "Tailer.Follow", Old: "make(chan struct{}, t.o.Parallel)", New: "make(chan struct{}, 1)"}}},
	{Name: "a broken stream counts as fresh", Killer: "TestBrokenStream", Edits: []mutate.Edit{
		{File: "fresh.go", In: "Tailer.silence", Old: "if t.deaf() == nil {", New: "if true {"}}},
	{Name: "entries of a gap count as new", Killer: "TestFreshAfterAGap", Edits: []mutate.Edit{
		{File: "stream.go", In: "Tailer.heads", Old: "s.miss(t.proven)", New: "_ = s.miss"}}},
	{Name: "entries from before Run count as new", Killer: "TestFreshIsHonest", Edits: []mutate.Edit{
		{File: "stream.go", In: "Tailer.learn", Old: "		now = t.sure\n", New: ""}}},
	{Name: "lag counts from the newest entry", Killer: "TestLagInTime", Edits: []mutate.Edit{
		{File: "shard.go", In: "shard.learn", Old: "s.arrivals = append(s.arrivals, arrival{through: seq, at: at})",
			New: "s.arrivals = []arrival{{through: seq, at: at}}"}}},
	{Name: "D1: a damaged log is logged whenever it is tried", Killer: "TestDamagedLog", Edits: []mutate.Edit{
		{File: "stream.go", In: "Tailer.report", Old: "time.Now()); say {", New: "time.Now()); say || true {"}}},
	{Name: "a damaged position file is read", Killer: "TestFileDamage", Edits: []mutate.Edit{
		{File: "file.go", In: "decodeFile", Old: "; got != want {", New: "; got != want && false {"},
		{File: "file.go", In: "decodeFile", Old: "if !bytes.Equal(encodeFile(cp), data) {", New: "if false {"}}},
}

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, mutants)
}
