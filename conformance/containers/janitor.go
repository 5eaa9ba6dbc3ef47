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

// janitorScript waits for a line that confirms the removal of all containers. If the input ends
// without that line, the script removes the containers with the label. The script tries several
// times, because the engine may still be creating a container for a dead process. The script
// ignores signals that end the test.
const janitorScript = `
trap '' HUP INT QUIT TERM
read -r line && exit 0
for try in 1 2 3; do
	for id in $(docker ps --all --quiet --filter "label=$1"); do
		docker rm --force --volumes "$id"
	done
	sleep 1
done`

// janitor is a shell that removes containers if this process ends without removing them. The
// shell's input is a pipe, which the kernel closes whenever the process ends.
type janitor struct {
	id  string
	cmd *exec.Cmd
	in  io.WriteCloser
}

// newJanitor starts a janitor for the engine at host, which has the form of DOCKER_HOST.
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
	j.cmd = exec.Command(sh, "-c", janitorScript, "janitor", janitorLabel+"="+j.id) //nolint:noctx // the shell ends when its input ends, and must not be killed
	j.cmd.Env = env
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, errors.Join(err, j.in.Close())
	}
	return j, nil
}

// close ends the janitor. Unless removed is true, the janitor first removes the containers.
func (j *janitor) close(removed bool) error {
	var err error
	if removed {
		_, err = io.WriteString(j.in, "removed\n")
	}
	hung := time.AfterFunc(removeTimeout, func() { _ = j.cmd.Process.Kill() }) // Wait then returns the error
	defer hung.Stop()
	return errors.Join(err, j.in.Close(), j.cmd.Wait())
}
