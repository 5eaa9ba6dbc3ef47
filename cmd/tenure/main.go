// Command tenure is the command-line tool for every store. The command shows the owners of shards,
// follows and checks logs, and runs a program only while this process leads. It reads the same
// configuration file and environment variables as package config. See docs/tenure.md for the
// commands, exit codes and examples.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if code, is := member(); is {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == guardName {
		return guard(args[1:], stderr)
	}
	stdout, stderr = plainWriter{stdout}, plainWriter{stderr}
	a := &app{in: stdin, out: stdout, errs: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := codeOf(ctx, err)
	if line := a.oneLine(err); line != "" {
		_, _ = fmt.Fprintln(stderr, line)
	}
	return code
}
