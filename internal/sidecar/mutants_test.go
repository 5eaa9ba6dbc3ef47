package sidecar

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the sidecar, and see a test fail")

// mutants are the sidecar with one rule taken out, and the test that must fail then.
var mutants = []mutate.Mutant{
	{Name: "the token of a write is not compared", Killer: "TestTokens", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "case c.lease.Token() != token:", New: "case false:"}}},
	{Name: "a lease that is over is not withdrawn", Killer: "TestLease", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "\tif err := s.e.Withdraw(ctx, c.shard); err != nil {", New: "\t_ = ctx\n\tif err := error(nil); err != nil {"}}},
	{Name: "a client that is silent keeps its lease", Killer: "TestSilent", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "\t\tleft := c.silence()\n", New: "\t\tleft := c.silence() + 24*time.Hour\n"}}},
	{Name: "requests are no signs of life", Killer: "TestSilent", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "\t\tc.deadline = now.Add(c.ttl)\n", New: ""}}},
	{Name: "a lease is held to the end of the drain budget", Killer: "TestStop", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "\tcase <-c.done:\n\tcase <-l.Context().Done():", New: "\tcase <-l.Context().Done():"}}},
	{Name: "the token file's text is not compared", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "server.go", Old: "!bearer || !sameToken(token, s.token)", New: "!bearer || token == \"\""}}},
	{Name: "unknown fields pass", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "handlers.go", Old: "\td.DisallowUnknownFields()\n", New: ""}}},
	{Name: "any number of clients contends", Killer: "TestRefused", Edits: []mutate.Edit{
		{File: "tenancy.go", Old: "case len(s.leases) >= s.maxLeases:", New: "case false:"}}},
	{Name: "a body has no time limit", Killer: "TestBusy", Edits: []mutate.Edit{
		{File: "handlers.go", Old: "time.Now().Add(bodyTime))", New: "time.Now().Add(10*bodyTime))"}}},
	{Name: "connections have no bound", Killer: "TestBusy", Edits: []mutate.Edit{
		{File: "listen.go", Old: "\t\tdefault:\n\t\t\t_ = c.Close()\n", New: "\t\tdefault:\n\t\t\treturn &limitedConn{Conn: c, free: func() {}}, nil\n"}}},
	{Name: "a trimmed log is followed for ever", Killer: "TestTail", Edits: []mutate.Edit{
		{File: "handlers.go", Old: "return errors.Is(err, core.ErrTrimmed) || ", New: "return "}}},
	{Name: "any address passes", Killer: "TestListen", Edits: []mutate.Edit{
		{File: "listen.go", Old: "!at.Addr().IsLoopback() ||", New: ""}}},
	{Name: "TCP needs no token", Killer: "TestListen", Edits: []mutate.Edit{
		{File: "server.go", Old: "tcp && s.token == \"\"", New: "tcp && false"}}},
	{Name: "a token file may be anybody's", Killer: "TestReadToken", Edits: []mutate.Edit{
		{File: "listen.go", Old: "info.Mode().Perm()&0o077 != 0", New: "false"}}},
}

func TestMutants(t *testing.T) {
	mutate.All(t, *mutantsFlag, time.Minute, true, mutants)
}
