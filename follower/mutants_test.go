package follower

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the follower, and see a test fail")

// mutants are the follower with one rule taken out, and the test that must fail
// then.
var mutants = []struct {
	name   string
	killer string
	edits  []mutate.Edit
}{
	{"T1: a gap in a page is not noticed", "TestRefusedEntries/gap", []mutate.Edit{
		{File: "lane.go", Old: "got.Seq != at.Seq+1 || got.Token < at.Token", New: "got.Token < at.Token"}}},
	{"T2: a lower token is applied", "TestRefusedEntries/lower_token", []mutate.Edit{
		{File: "lane.go", Old: "got.Seq != at.Seq+1 || got.Token < at.Token", New: "got.Seq != at.Seq+1"}}},
	{"T5: an entry that fails is skipped", "TestFailingEntry", []mutate.Edit{
		{File: "lane.go", Old: "err := l.f.applier.Apply(ctx, b); err != nil {", New: "err := l.f.applier.Apply(ctx, b); err != nil && false {"}}},
	{"T5: a position that moved is not asked for", "TestPositionMoved", []mutate.Edit{
		{File: "lane.go", Old: "errors.Is(err, ErrMoved) && t.reload(ctx, l) > 0", New: "false"}}},
	{"T6: a stream that fell silent is believed", "TestStreamIsOnlyAHint/silent", []mutate.Edit{
		{File: "stream.go", Old: "for attempt := 0; wait(ctx, pause); {", New: "for attempt := 0; wait(ctx, pause) && attempt > 0; {"}}},
	{"T6: trimmed entries are skipped", "TestTrimmedAhead", []mutate.Edit{
		{File: "lane.go", Old: "return true, t.restore(ctx, l, err)", New: "t.mu.Lock()\n\t\tt.moveTo(l, Position{Shard: string(l.s.id), Seq: l.pos.Seq + 1, Token: 1})\n\t\tl.verify = false\n\t\tt.mu.Unlock()\n\t\treturn true, nil"}}},
	{"T6: a snapshot that does not reach the log is restored", "TestRandom", []mutate.Edit{
		{File: "restore.go", Old: "snap.Seq+1 < trimmed.Oldest", New: "trimmed.Oldest < 0"},
		{File: "snapshot.go", Old: "if m.Current == nil {\n\t\t\treturn nil, nil\n\t\t}", New: "if m.Current == nil {\n\t\t\treturn nil, nil\n\t\t}\n\t\tm.Current.Seq--"}}},
	{"T2: a snapshot of a lower token is restored", "TestSnapshotOfLowerToken", []mutate.Edit{
		{File: "restore.go", Old: "case snap.Token < from.Token:", New: "case snap.Token < 0:"}}},
	{"T7: the log is trimmed before the snapshot is whole", "TestSnapshotCrash/after_1_commits,_replies_lost_false", []mutate.Edit{
		{File: "snapshot.go", Old: "m.Spare = p\n\tif err := commit(ctx, lease, m.put());", New: "m.Spare = p\n\tif err := commit(ctx, lease, m.put(), s.trim(lease, seq)...);"}}},
	{"T7: the former snapshot is removed first", "TestSnapshotCrash/after_2_commits,_replies_lost_false", []mutate.Edit{
		{File: "snapshot.go", Old: "\tm.Spare = p\n", New: "\tif m.Current != nil {\n\t\ts.remove(ctx, lease, m.Current)\n\t}\n\tm.Spare = p\n"}}},
	{"T7: what a crash left over stays", "TestSnapshotCrash/after_4_commits,_replies_lost_false", []mutate.Edit{
		{File: "snapshot.go", Old: "if m.Spare != nil { // of", New: "if false { // of"}}},
	{"T7: a snapshot's checksum is not compared", "TestSnapshotBlobs", []mutate.Edit{
		{File: "snapshot.go", Old: "int64(len(state)) != p.Bytes || sum(state) != p.Sum", New: "false"}}},
	{"T8: a head behind the position is not noticed", "TestStoreWentBack/restarted", []mutate.Edit{
		{File: "lane.go", Old: "if page.Head.Seq < from.Seq {", New: "if false {"}}},
	{"T8: the entry at the position is not compared", "TestStoreWentBack/restarted,_more_entries_later", []mutate.Edit{
		{File: "lane.go", Old: "got != from.Token", New: "got < 0"}}},
	{"T8: a stream that comes back is believed", "TestStoreWentBackUnheard/the-stream-fails", []mutate.Edit{
		{File: "stream.go", Old: "			l.verify = true\n", New: ""},
		{File: "stream.go", Old: "l.verify = l.verify || news", New: "_ = news"}}},
	{"T8: what the stream brought before it broke is applied", "TestStreamOfBefore", []mutate.Edit{
		{File: "stream.go", Old: "			t.cut(l, len(l.buf))\n", New: ""}}},
	{"T8: heads are believed that the stream did not tell of", "TestStoreWentBackUnheard/the-heads-are-news", []mutate.Edit{
		{File: "stream.go", Old: "l.verify = l.verify || news", New: "_ = news"}}},
	{"T8: a read that failed is repeated without a look", "TestStoreWentBackUnheard/a-read-fails", []mutate.Edit{
		{File: "lane.go", Old: "l.verify = true // the store may", New: "// the store may"}}},
	{"T8: a read is believed that was under way", "TestStoreWentBackUnheard/a-read-is-answered-late", []mutate.Edit{
		{File: "lane.go", Old: "if l.verify && !verify && b.From.Seq > 0 {", New: "if false {"}}},
	{"T8: a shard that the store lost is not missed", "TestStoreLostShard", []mutate.Edit{
		{File: "stream.go", Old: "if s.sweep == t.sweep {", New: "if true {"}}},
	{"T8: positions of another store are taken", "TestAnotherStore", []mutate.Edit{
		{File: "tailer.go", Old: "if cp.Store != t.store &&", New: "if false &&"}}},
	{"V5: what waits for a blocked shard is not bounded", "TestBlockedShard", []mutate.Edit{
		{File: "lane.go", Old: "l.bytes+size > t.o.Buffer/64 || t.buffered+size > t.o.Buffer", New: "false"}}},
	{"V5: shards wait for each other", "TestBlockedShard", []mutate.Edit{
		{File: "tailer.go", Old: "make(chan struct{}, t.o.Parallel)", New: "make(chan struct{}, 1)"}}},
	{"a broken stream counts as fresh", "TestBrokenStream", []mutate.Edit{
		{File: "fresh.go", Old: "if t.deaf() == nil {", New: "if true {"}}},
	{"what was there before counts as new", "TestFreshIsHonest", []mutate.Edit{
		{File: "stream.go", Old: "		now = t.sure\n", New: ""}}},
	{"lag counts from the newest entry", "TestLagInTime", []mutate.Edit{
		{File: "shard.go", Old: "s.marks = append(s.marks, mark{through: seq, at: at})", New: "s.marks = []mark{{through: seq, at: at}}"}}},
	{"a damaged position file is read", "TestFileDamage", []mutate.Edit{
		{File: "file.go", Old: "; got != want {", New: "; got != want && false {"},
		{File: "file.go", Old: "if !bytes.Equal(encodeFile(cp), data) {", New: "if false {"}}},
}

// TestMutants takes each rule out.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}
