package fakeslurm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sbatch queues the script on its standard input, and starts it at once unless it is held.
func sbatch(c *cluster, args []string, out io.Writer) error {
	o, rest, err := parseOptions("sbatch", args, "--parsable", "--job-name=", "--export=", "--chdir=", "--input=", "--output=", "--error=",
		"--requeue", "--no-requeue", "--time=", "--mem=", "--partition=", "--account=", "--hold", "--exclusive")
	if err != nil {
		return err
	}
	if len(rest) > 0 || !o.has("--parsable") {
		return fmt.Errorf("sbatch: the simulated Slurm needs --parsable and a script on standard input")
	}
	script, err := io.ReadAll(os.Stdin)
	switch {
	case err != nil:
		return err
	case !strings.HasPrefix(string(script), "#!"):
		return refuse("sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start with #! followed by the path to an interpreter.")
	case strings.Contains(string(script), "\x00"):
		return refuse("sbatch: error: The SLURM controller does not allow scripts that\nsbatch: error: contain a NULL character '\\0'.")
	case strings.Contains(string(script), "\r\n"):
		return refuse("sbatch: error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of expected UNIX line breaks (\\n).")
	}
	j := &job{
		Name: o["--job-name"], Partition: o["--partition"], State: "PENDING", Reason: "None", Requeue: o.has("--requeue"), WorkingDir: o["--chdir"],
		Stdout: o["--output"], Stderr: o["--error"], KillWait: c.killWait(),
	}
	if minutes := o["--time"]; minutes != "" {
		n, err := strconv.Atoi(minutes)
		if err != nil {
			return errors.New("sbatch: error: Invalid --time specification")
		}
		j.MaxSeconds = 60 * n
	}
	if p := j.Partition; p != "" && p != "normal" && p != "high" {
		return fmt.Errorf("sbatch: error: invalid partition specified: %s\nsbatch: error: Batch job submission failed: Invalid partition name specified", p)
	}
	if o["--export"] != "ALL" {
		return errors.New("sbatch: the simulated Slurm needs --export=ALL")
	}
	j.Env = os.Environ()
	if o.has("--hold") {
		j.Reason = "JobHeldUser"
	}
	err = c.ask("sbatch: error: Batch job submission failed", func(s *state) error {
		j.ID = s.Next
		if err := os.WriteFile(c.script(j.ID), script, 0o600); err != nil {
			return err
		}
		s.Next++
		s.Jobs = append(s.Jobs, j)
		if o.has("--hold") {
			return nil
		}
		return c.start(s, j)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, j.ID)
	return err
}

// start starts a job that waits.
func (c *cluster) start(s *state, j *job) error {
	if s.Stopped {
		return nil
	}
	s.begin(j)
	p, err := c.startStepd(j.ID, j.Epoch)
	if err != nil {
		return err
	}
	j.Stepd = p
	s.Processes = append(s.Processes, p)
	return nil
}

// scancel ends jobs.
func scancel(c *cluster, args []string, _ io.Writer) error {
	_, ids, err := parseOptions("scancel", args)
	if err != nil {
		return err
	}
	return c.ask("scancel: error: Kill job error on job id", func(s *state) error {
		for _, id := range ids {
			j := s.find(id)
			switch {
			case j == nil:
				return fmt.Errorf("scancel: error: Kill job error on job id %s: Invalid job id specified", id)
			case j.State == "PENDING":
				j.State, j.Reason = "CANCELLED", "None"
				s.Records = append(s.Records, record{ID: j.ID, Name: j.Name, State: "CANCELLED by " + strconv.Itoa(os.Getuid()), Node: "None assigned"})
			case !j.hasEnded():
				c.terminate(j, "CANCELLED")
			}
		}
		return nil
	})
}

// terminate makes the slurmstepd of a job end it.
func (c *cluster) terminate(j *job, ending string) {
	if j.Ending == "" {
		j.State, j.Ending = "COMPLETING", ending
		j.Stepd.signal(syscall.SIGTERM)
	}
}

// srun runs a program in a step of a job that runs, and ends it with the job.
func srun(c *cluster, args []string, _ io.Writer) error {
	o, argv, err := parseOptions("srun", args, "--jobid=", "--overlap", "--quiet", "--nodes=", "--ntasks=", "--input=", "--unbuffered", "--chdir=", "--export=")
	if err != nil {
		return err
	}
	if len(argv) == 0 || o["--export"] != "PATH" {
		return errors.New("srun: the simulated Slurm needs --export=PATH and a program")
	}
	id := o["--jobid"]
	node, epoch := "", 0
	running := func() bool {
		err = c.ask("srun: error: Unable to confirm allocation for job "+id, func(s *state) error {
			j := s.find(id)
			if j == nil || j.State != "RUNNING" || epoch != 0 && j.Epoch != epoch {
				return errors.New("srun: error: Unable to confirm allocation for job " + id + ": Invalid job id specified")
			}
			node, epoch = j.Node, j.Epoch
			return nil
		})
		return err == nil
	}
	if !running() {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SLURM_JOB_ID=" + id, "SLURMD_NODENAME=" + node}
	cmd.Stdout, cmd.Stderr, cmd.Dir = os.Stdout, os.Stderr, o["--chdir"]
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				return err
			}
			if status, _ := exit.Sys().(syscall.WaitStatus); status.Signaled() {
				return &exitError{code: 128 + int(status.Signal())}
			}
			return &exitError{code: exit.ExitCode()}
		case <-time.After(20 * time.Millisecond):
			if !running() {
				_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has just ended
			}
		}
	}
}
