package fakeslurm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/scripts/descendants"
)

// stepd is the program that supervises one start of a job.
const stepd = "slurmstepd"

// startStepd starts a slurmstepd in the background, and returns when it handles signals.
func (c *cluster) startStepd(id, epoch int) (process, error) {
	self, err := os.Executable()
	if err != nil {
		return process{}, err
	}
	ready, write, err := os.Pipe()
	if err != nil {
		return process{}, err
	}
	defer ready.Close()
	cmd := &exec.Cmd{
		Path: self, Args: []string{stepd, strconv.Itoa(id), strconv.Itoa(epoch)}, Dir: "/", ExtraFiles: []*os.File{write},
		Env:         append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "SLURM_") }), DirVariable+"="+c.dir),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return process{}, errors.Join(err, write.Close())
	}
	if err := write.Close(); err != nil {
		return process{}, err
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		return process{}, fmt.Errorf("slurmstepd did not start: %w", err)
	}
	p := process{PID: cmd.Process.Pid, Identity: strings.TrimSpace(line)}
	return p, cmd.Process.Release()
}

// slurmstepd runs the script of a job and records its end. SIGTERM ends the job, and after KillWait kills it; SIGQUIT kills
// it at once and records nothing.
func slurmstepd(c *cluster, args []string, _ io.Writer) error {
	if len(args) != 2 {
		return errors.New("slurmstepd: no job given")
	}
	epoch, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	if err := descendants.Adopt(); err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	if _, err := fmt.Fprintln(ready, descendants.Identity(os.Getpid())); err != nil {
		return err
	}
	if err := ready.Close(); err != nil {
		return err
	}
	var j job // as it was when we were started: the starter holds the lock until it has recorded us
	if err := c.update(func(s *state) error {
		found, err := s.mustFind(args[0])
		if err == nil {
			j = *found
		}
		return err
	}); err != nil {
		return err
	}
	wait, quit := c.runScript(j, epoch, signals)
	if quit {
		return nil
	}
	return c.update(func(s *state) error {
		now := s.find(args[0])
		if now == nil || now.Epoch != epoch {
			return nil // forgotten, or given up
		}
		return c.finish(s, now, wait)
	})
}

// finish records the end of the current start of a job, and starts a job again that was preempted.
func (c *cluster) finish(s *state, j *job, wait int) error {
	ended := j.Ending
	switch {
	case ended == "" && wait == 0:
		ended = "COMPLETED"
	case ended == "" && wait&0x7f != 0:
		ended, j.Reason = "FAILED", "JobLaunchFailure"
	case ended == "":
		ended, j.Reason = "FAILED", "NonZeroExitCode"
	case ended == "TIMEOUT":
		wait = 0 // as Slurm tells it
	}
	s.end(j, ended, wait)
	j.State = ended
	if ended == "PREEMPTED" && j.Requeue {
		j.Restarts++
		return c.start(s, j)
	}
	return nil
}

// runScript runs the script until none of its processes is left, and returns its wait status.
func (c *cluster) runScript(j job, epoch int, signals <-chan os.Signal) (wait int, quit bool) {
	cmd := exec.Command("/bin/sh", c.script(j.ID))
	cmd.Dir = j.WorkingDir
	node := nodeOf(j.ID, epoch)
	cmd.Env = append(c.nodeEnvironment(), j.Env...)
	cmd.Env = append(cmd.Env, "SLURM_JOB_ID="+strconv.Itoa(j.ID), "SLURM_JOB_NAME="+j.Name, "SLURMD_NODENAME="+node, "SLURM_CLUSTER_NAME=lab")
	if j.Restarts > 0 {
		cmd.Env = append(cmd.Env, "SLURM_RESTART_COUNT="+strconv.Itoa(j.Restarts))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if cmd.Stdout, err = openOutput(j.Stdout); err == nil {
		cmd.Stderr, err = openOutput(j.Stderr)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 1 << 8, false // as Slurm, which then cannot tell why
	}
	ended := make(chan int, 1)
	go func() {
		_ = cmd.Wait() // the status says all
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		ended <- int(status)
	}()
	var limit, kill <-chan time.Time
	if j.MaxSeconds > 0 {
		limit = time.After(time.Duration(j.MaxSeconds) * time.Second)
	}
	terminate := func() {
		if kill == nil {
			descendants.Signal(syscall.SIGTERM)
			kill = time.After(time.Duration(j.KillWait) * time.Second)
		}
	}
	for {
		select {
		case status := <-ended:
			descendants.Kill()
			return status & 0xffff, false
		case sig := <-signals:
			if sig == syscall.SIGQUIT {
				descendants.Kill()
				return 0, true
			}
			terminate()
		case <-limit:
			_ = c.update(func(s *state) error { // else the job ends as if its program had chosen to
				if now := s.find(strconv.Itoa(j.ID)); now != nil && now.Epoch == epoch {
					now.State, now.Ending = "COMPLETING", "TIMEOUT"
				}
				return nil
			})
			terminate()
		case <-kill:
			descendants.Signal(syscall.SIGKILL)
			kill = time.After(100 * time.Millisecond) // those that were just being started
		}
	}
}

// nodeEnvironment returns the variables of EnvironmentFile.
func (c *cluster) nodeEnvironment() []string {
	data, _ := os.ReadFile(filepath.Join(c.dir, EnvironmentFile)) // a test need not have one
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
}

func openOutput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
}

// signal signals a slurmstepd that is alive.
func (p process) signal(sig syscall.Signal) {
	if p.isAlive() {
		_ = syscall.Kill(p.PID, sig) // fails if it has just ended
	}
}

func (p process) isAlive() bool {
	return p.PID > 1 && p.Identity != "" && descendants.Identity(p.PID) == p.Identity
}
