package sidecar

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// mutants are versions of the sidecar that each lack one rule, with the test that must then fail.
var mutants = []mutate.Mutant{
	{Name: "the token of a write is not compared", Killer: "TestTokens", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "tenancy.held", Old: "err == nil && l.Token() != token", New: "false"}}},
	{Name: "a lease that is over is not withdrawn", Killer: "TestLease", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "Server.giveBack",
			Old: "\tif err := give(ctx); err != nil {", New: "\t_ = ctx\n\tif err := error(nil); err != nil {"}}},
	{Name: "a client that is silent keeps its lease", Killer: "TestSilent", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "Server.follow", Old: "\t\tleft := c.silence()\n", New: "\t\tleft := c.silence() + 24*time.Hour\n"}}},
	{Name: "requests are no signs of life", Killer: "TestSilent", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "tenancy.alive", Old: "\t\tc.deadline = now.Add(c.ttl)\n", New: ""}}},
	{Name: "a lease is held to the end of the drain budget", Killer: "TestStop", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "tenancy.drain",
			Old: "\tcase <-c.done:\n\tcase <-l.Context().Done():", New: "\tcase <-l.Context().Done():"}}},
	{Name: "the token file's text is not compared", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "server.go", In: "Server.authorize", Old: "!bearer || !sameToken(token, s.token)", New: "!bearer || token == \"\""}}},
	{Name: "unknown fields pass", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "body.go", In: "readBody", Old: "\td.DisallowUnknownFields()\n", New: ""}}},
	{Name: "any number of clients contends", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "Server.admit", Old: "case len(s.leases) >= s.maxLeases:", New: "case false:"}}},
	{Name: "a body has no time limit", Killer: "TestBusy", Edits: []mutate.Edit{
		{File: "body.go", In: "Server.decode", Old: "time.Now().Add(bodyTime))", New: "time.Now().Add(10*bodyTime))"}}},
	{Name: "what nobody reads has no time limit", Killer: "TestRequestDeadline", Edits: []mutate.Edit{
		{File: "server.go", In: "Server.Serve", Old: "\t\tReadTimeout: bodyTime,\n", New: ""}}},
	{Name: "connections have no bound", Killer: "TestBusy", Edits: []mutate.Edit{
		{File: "server.go", In: "Server.handler", Old: "if !callerOf(r).proven() {", New: "if callerOf(r).proven(); false {"}}},
	{Name: "OPTIONS * needs no token", Killer: "TestStranger", Edits: []mutate.Edit{
		{File: "server.go", In: "Server.Serve", Old: "DisableGeneralOptionsHandler: true,", New: "DisableGeneralOptionsHandler: false,"}}},
	{Name: "a stranger stays as long as it is answered nothing", Killer: "TestStranger", Edits: []mutate.Edit{
		{File: "door.go", In: "door.enter",
			Old: "\t\tif c.stranger != nil {\n\t\t\td.leave(c)\n\t\t\t_ = c.Conn.Close()", New: "\t\tif false {"}}},
	{Name: "strangers make no room", Killer: "TestSilentStrangers", Edits: []mutate.Edit{
		{File: "door.go", In: "door.idle", Old: "if time.Since(c.since) < strangerTime {", New: "if time.Since(c.since) < time.Hour {"}}},
	{Name: "a body is read before its lease is looked up", Killer: "TestLargeBodies", Edits: []mutate.Edit{
		{File: "handlers.go", In: "Server.under",
			Old: "if _, err := s.tenancyOf(r); err != nil { // before anything is read", New: "if err := error(nil); err != nil {"}}},
	{Name: "a commit is decoded whatever its size", Killer: "TestCommitStops", Edits: []mutate.Edit{
		{File: "handlers.go", In: "Server.decodeCommit", Old: "if len(ops) >= s.limits.WriteOps {", New: "if false {"}}},
	{Name: "text that is not UTF-8 passes", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "body.go", In: "readBody", Old: "json.NewDecoder(&utf8Reader{from: from})", New: "json.NewDecoder(from)"}}},
	{Name: "half a character passes", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "body.go", In: "utf8Reader.Read", Old: "if !u.whole(c) {", New: "if !u.whole(c) && false {"}}},
	{Name: "streams that nobody reads keep what they like in memory", Killer: "TestUnreadTails", Edits: []mutate.Edit{
		{File: "handlers.go", In: "tailer.page", Old: "take(waits, pageBytes)", New: "take(waits, 0)"}}},
	{Name: "a stream's entries count for as long as they are read", Killer: "TestUnreadTails", Edits: []mutate.Edit{
		{File: "handlers.go", In: "tailer.page", Old: "size > smallBody {", New: "size > pageBytes {"}}},
	{Name: "anybody may write the directory of a socket", Killer: "TestSocketDirectory", Edits: []mutate.Edit{
		{File: "listen_linux.go", In: "checkDir", Old: "info.Mode().Perm()&0o022 != 0", New: "false"}}},
	{Name: "an error quotes whatever was sent", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "body.go", In: "readBody", Old: "cut(err.Error(), 200))", New: "err.Error())"},
		{File: "problem.go", In: "cut", Old: "if len(text) <= most {", New: "if true {"}}},
	{Name: "peers of another user pass", Killer: "TestPeer", Edits: []mutate.Edit{
		{File: "door.go", In: "door.Accept", Old: "err := checkPeer(u); err != nil {", New: "err := checkPeer(u); false {"}}},
	{Name: "a trimmed log is followed for ever", Killer: "TestTail", Edits: []mutate.Edit{
		{File: "handlers.go", In: "lasting", Old: "return errors.Is(err, core.ErrTrimmed) || ", New: "return "}}},
	{Name: "any address passes", Killer: "TestListen", Edits: []mutate.Edit{
		{File: "listen.go", In: "Listen", Old: "!at.Addr().IsLoopback() ||", New: ""}}},
	{Name: "TCP needs no token", Killer: "TestListen", Edits: []mutate.Edit{
		{File: "server.go", In: "Server.Serve", Old: "tcp && s.token == \"\"", New: "tcp && false"}}},
	{Name: "a token file may be anybody's", Killer: "TestReadToken", Edits: []mutate.Edit{
		{File: "listen.go", In: "ReadToken", Old: "info.Mode().Perm()&0o077 != 0", New: "false"}}},
	{Name: "a socket's lock ends with the last copy of its descriptor", Killer: "TestSocketBesideFork", Edits: []mutate.Edit{
		{File: "listen_linux.go", In: "unlock",
			Old: "errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())", New: "lock.Close()"}}},
	{Name: "a lock that was lost is waited for", Killer: "TestLockLost", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "tenancy.hold", Old: "if c.lock && lost != nil {", New: "if false {"}}},
	{Name: "a request that does not get its lock keeps a place", Killer: "TestLockNotTaken", Edits: []mutate.Edit{
		{File: "locks.go", In: "Server.lock", Old: "\t\ts.leave(c)\n", New: ""}}},
	{Name: "a client that waits for a lock is silent", Killer: "TestLockClientGone", Edits: []mutate.Edit{
		{File: "locks.go", In: "Server.followLock", Old: "\tc.begin()\n", New: ""}}},
	{Name: "a request that waits for a lock is not told of the end", Killer: "TestLockStop", Edits: []mutate.Edit{
		{File: "locks.go", In: "Server.take",
			Old: "\tstop := context.AfterFunc(s.asked, func() { cancel(context.Cause(s.asked)) })\n\tdefer stop()\n\tcall", New: "\tcall"}}},
	{Name: "a client is not asked for its lock", Killer: "TestLockStop", Edits: []mutate.Edit{
		{File: "locks.go", In: "Server.followLock",
			Old: "\tstop := context.AfterFunc(s.asked, func() { cancel(context.Cause(s.asked)) })\n\tdefer stop()\n\tc.begin", New: "\tc.begin"}}},
	{Name: "a lock is a shard", Killer: "TestLockNames", Edits: []mutate.Edit{
		{File: "tenancy.go", In: "Server.contend",
			Old: "err == nil && driver.IsLock(core.ShardID(shard)) {", New: "err == nil && driver.IsLock(core.ShardID(shard)) && false {"}}},
	{Name: "a lock that the store does not grant is held", Killer: "TestLockLost", Edits: []mutate.Edit{
		{File: "locks.go", In: "Server.take",
			Old: "errors.Is(err, lock.ErrHeld) && ctx.Err() == nil {", New: "err != nil && ctx.Err() == nil {"}}},
	{Name: "an attempt ends twice", Killer: "TestEffectAfterLease", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.end", Old: "other.id == id && !other.ended {", New: "other.id == id {"}}},
	{Name: "an effect that its client does not know of is in doubt", Killer: "TestEffectNotTold", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.await",
			Old: "{State: effect.Repeat, Reason: \"its client was not told", New: "{Reason: \"its client was not told"}}},
	{Name: "a doubt is resolved by any name", Killer: "TestEffectResolvedOnce", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.resolved", Old: " || doubtName(e) != doubt:", New: ":"}}},
	{Name: "effects that are listed may be under way", Killer: "TestEffect", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.list", Old: "x.attempts[open[i].Key] == nil && len", New: "len"}}},
	{Name: "a lease has any number of attempts", Killer: "TestEffectsNeverEnded", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.admit", Old: "if len(x.attempts) >= leaseAttempts {", New: "if false {"}}},
	{Name: "a client writes records of effects", Killer: "TestEffectRefused", Edits: []mutate.Edit{
		{File: "handlers.go", In: "operation.op",
			Old: "if strings.HasPrefix(o.Key, effect.Prefix) {", New: "if strings.HasPrefix(o.Key, effect.Prefix) && false {"}}},
	{Name: "what a client found out comes before an operator", Killer: "TestEffectRules", Edits: []mutate.Edit{
		{File: "effects.go", In: "effects.rules",
			Old: "\t\t\tall = append(all, *a.rule)", New: "\t\t\tall = append([]control.Rule{*a.rule}, all...)"}}},
}

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, mutants)
}
