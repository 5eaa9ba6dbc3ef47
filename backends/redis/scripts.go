package redis

import (
	"embed"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed scripts
var scriptFiles embed.FS

// scripts contains the package's Lua scripts. The server runs each script in one atomic step. The
// client sends a script's digest. If the server does not have the script, for example after SCRIPT
// FLUSH, the client sends the script's text.
type scripts struct {
	apply, get, scan, attach, barrier *goredis.Script
}

func readScripts() (*scripts, error) {
	var failed error
	read := func(name string) *goredis.Script {
		text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		failed = errors.Join(failed, err)
		return goredis.NewScript(string(text))
	}
	s := &scripts{
		apply: read("apply"), get: read("get"), scan: read("range"), attach: read("attach"), barrier: read("barrier"),
	}
	return s, failed
}
