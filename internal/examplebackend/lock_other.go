//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package examplebackend

import (
	"fmt"
	"os"
	"runtime"

	"github.com/tenure-go/tenure/core/driver"
)

func tryLock(*os.File, bool) (bool, error) {
	return false, fmt.Errorf("tenure: %w: package examplebackend locks files with flock, which %s lacks",
		driver.ErrUnsupported, runtime.GOOS)
}
