package fakeslurm

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// slurmlab makes the cluster fail:
//
//	slurmlab requeue <job>    end a job as for one of a higher priority: with SIGTERM, and then again from the start
//	slurmlab lose <job>       lose the node of a job: kill its processes, and tell that the node failed
//	slurmlab orphan <job>     start a job again as if its node was lost, while the first start goes on
//	slurmlab forget <job>     have the controller forget a job; the accounting still knows it
//	slurmlab accounting       have sacct answer, also about earlier jobs
//	slurmlab down | up        make the controller unreachable, or reachable again
//	slurmlab wait <job>       wait until a job has ended
//	slurmlab kill             end every process of the cluster
//
// A job is an id or a name.
func slurmlab(c *cluster, args []string, _ io.Writer) error {
	if len(args) == 1 {
		switch args[0] {
		case "accounting":
			return c.update(func(s *state) error { s.Accounting = true; return nil })
		case "down", "up":
			return c.update(func(s *state) error { s.Down = args[0] == "down"; return nil })
		case "kill":
			return KillAll(c.dir)
		}
	}
	if len(args) != 2 {
		return fmt.Errorf("slurmlab: cannot understand %q", args)
	}
	change := map[string]func(*state, *job) error{"requeue": c.requeue, "lose": c.lose, "orphan": c.orphan, "forget": c.forget}[args[0]]
	switch {
	case args[0] == "wait":
		return c.waitFor(args[1])
	case change == nil:
		return fmt.Errorf("slurmlab: cannot understand %q", args)
	}
	return c.update(func(s *state) error {
		j, err := s.mustFind(args[1])
		if err != nil {
			return err
		}
		return change(s, j)
	})
}

func (c *cluster) requeue(_ *state, j *job) error {
	if j.State != "RUNNING" {
		return fmt.Errorf("job %d is %s", j.ID, j.State)
	}
	c.terminate(j, "PREEMPTED")
	return nil
}

func (c *cluster) lose(s *state, j *job) error {
	if j.State != "RUNNING" && j.State != "COMPLETING" {
		return fmt.Errorf("job %d is %s", j.ID, j.State)
	}
	s.end(j, "NODE_FAIL", 0)
	j.State, j.Reason = "NODE_FAIL", "NodeDown"
	j.Epoch++
	j.Stepd.signal(syscall.SIGQUIT)
	return nil
}

func (c *cluster) orphan(s *state, j *job) error {
	if j.State != "RUNNING" {
		return fmt.Errorf("job %d is %s", j.ID, j.State)
	}
	s.end(j, "NODE_FAIL", 0)
	j.Restarts++
	return c.start(s, j)
}

func (c *cluster) forget(s *state, j *job) error {
	for i := range s.Jobs {
		if s.Jobs[i] == j {
			s.Jobs = append(s.Jobs[:i], s.Jobs[i+1:]...)
			return nil
		}
	}
	return nil
}

// patience bounds every wait. Only a failing test reaches it.
const patience = 2 * time.Minute

// waitFor waits until a job has ended.
func (c *cluster) waitFor(key string) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ended := false
		err := c.update(func(s *state) error {
			j, err := s.mustFind(key)
			if err == nil {
				ended = j.hasEnded()
			}
			return err
		})
		if ended || err != nil {
			return err
		}
	}
	return errors.New("slurmlab: job " + key + " did not end")
}

// KillAll ends every process of the cluster in a directory, and returns when they are gone. No job starts afterwards. A test
// calls it when it ends.
func KillAll(dir string) error {
	c, err := openCluster(dir)
	if err != nil {
		return err
	}
	var all []process
	if err := c.update(func(s *state) error { s.Stopped, all = true, s.Processes; return nil }); err != nil {
		return err
	}
	for _, p := range all {
		p.signal(syscall.SIGQUIT)
	}
	deadline := time.Now().Add(patience)
	for _, p := range all {
		for p.isAlive() {
			if time.Now().After(deadline) {
				return fmt.Errorf("slurmstepd %d did not end", p.PID)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}
