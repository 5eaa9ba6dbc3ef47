package containers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// janitorLabel is the label by which a janitor finds its containers.
const janitorLabel = "tenure.janitor"

// janitorScript waits for a line, which means that everything has been removed. If its input ends
// instead, it removes the containers with the label. It does so several times, because the engine
// may still be creating one for a dead process. A signal that ends the test must not end the
// script.
const janitorScript = `
trap '' HUP INT QUIT TERM
read -r line && exit 0
for try in 1 2 3; do
	for id in $(docker ps --all --quiet --filter "label=$1"); do
		docker rm --force --volumes "$id"
	done
	sleep 1
done`

// janitor is a shell that removes containers if this process ends without removing them. Its input
// is a pipe, which the kernel closes however the process ends.
type janitor struct {
	id  string
	cmd *exec.Cmd
	in  io.WriteCloser
}

// newJanitor starts a janitor for the engine at host, in the form of DOCKER_HOST.
func newJanitor(ctx context.Context, host string) (*janitor, error) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return nil, fmt.Errorf("no shell: %w", err)
	}
	env := append(os.Environ(), "DOCKER_HOST="+host)
	check := exec.CommandContext(ctx, "docker", "ps", "--quiet", "--filter", "label="+janitorLabel)
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the docker command does not reach the engine: %w: %.200s", err, out)
	}
	j := &janitor{id: rand.Text()}
	j.cmd = exec.Command(sh, "-c", janitorScript, "janitor", janitorLabel+"="+j.id) //nolint:noctx // it ends with its input, and must not be killed
	j.cmd.Env = env
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, errors.Join(err, j.in.Close())
	}
	return j, nil
}

// close ends the janitor. Unless the containers are removed, the janitor removes them first.
func (j *janitor) close(removed bool) error {
	var err error
	if removed {
		_, err = io.WriteString(j.in, "removed\n")
	}
	hung := time.AfterFunc(removeTimeout, func() { _ = j.cmd.Process.Kill() }) // Wait then returns the error
	defer hung.Stop()
	return errors.Join(err, j.in.Close(), j.cmd.Wait())
}
