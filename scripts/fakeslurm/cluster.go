package fakeslurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// cluster is a state directory.
type cluster struct{ dir string }

// state is what the controller knows.
type state struct {
	Next       int    // id of the next job
	Down       bool   // the controller cannot be reached
	Accounting bool   // sacct answers
	Stopped    bool   // the test is over, and no job starts any more
	Jobs       []*job // not those that were forgotten
	Records    []record
	Processes  []process // every slurmstepd that was started
}

// job is a job that the controller knows.
type job struct {
	ID                         int
	Name, Partition            string
	State, Reason, Node        string
	Wait                       int // status as of wait(2)
	Restarts, MaxSeconds       int
	Requeue                    bool
	Env                        []string
	KillWait                   int
	Epoch                      int     // number of the last slurmstepd: what others tell about the job counts no more
	Stepd                      process // the last one
	Ending                     string  // state that the job will have, because its end was asked for
	Records                    int     // index of the record of this start plus 1
	Stdout, Stderr, WorkingDir string
}

// record is what the accounting keeps of one start of a job.
type record struct {
	ID                int
	Name, State, Node string
	Wait              int
}

// process is a slurmstepd.
type process struct {
	PID      int
	Identity string
}

func openCluster(dir string) (*cluster, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%s is not an absolute path but %q", DirVariable, dir)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return &cluster{dir}, nil
}

// update changes the state under a lock. With an error nothing is changed.
func (c *cluster) update(change func(s *state) error) error {
	lock, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
	path := filepath.Join(c.dir, "state.json")
	s := state{Next: 1}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := change(&s); err != nil {
		return err
	}
	if data, err = json.Marshal(s); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ask is update for a client: it fails with a text of the program if the controller is down.
func (c *cluster) ask(program string, change func(s *state) error) error {
	return c.update(func(s *state) error {
		if s.Down {
			return errors.New(program + ": Unable to contact slurm controller (connect failure)")
		}
		return change(s)
	})
}

// find returns a job by its id or its name; of several, the last.
func (s *state) find(key string) *job {
	for i := len(s.Jobs) - 1; i >= 0; i-- {
		if s.Jobs[i].Name == key || strconv.Itoa(s.Jobs[i].ID) == key {
			return s.Jobs[i]
		}
	}
	return nil
}

// mustFind is find that fails for an unknown job.
func (s *state) mustFind(key string) (*job, error) {
	if j := s.find(key); j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("there is no job %s", key)
}

// nodes of the cluster. Jobs take turns on them.
var nodes = []string{"n1", "n2", "n3"}

// nodeOf returns the node of one start of a job.
func nodeOf(id, epoch int) string { return nodes[(id+epoch)%len(nodes)] }

// begin records a start of a job on a node.
func (s *state) begin(j *job) {
	j.Epoch++
	j.State, j.Reason, j.Node, j.Wait, j.Ending = "RUNNING", "None", nodeOf(j.ID, j.Epoch), 0, ""
	s.Records = append(s.Records, record{ID: j.ID, Name: j.Name, State: j.State, Node: j.Node})
	j.Records = len(s.Records)
}

// end records the end of a start of a job; the job itself may go on.
func (s *state) end(j *job, ended string, wait int) {
	j.Wait = wait
	if i := j.Records - 1; i >= 0 && i < len(s.Records) {
		s.Records[i].State, s.Records[i].Wait = ended, wait
	}
}

// hasEnded reports whether a job will not run any more.
func (j *job) hasEnded() bool {
	switch j.State {
	case "PENDING", "RUNNING", "COMPLETING":
		return false
	}
	return true
}

// script returns the path of the batch script of a job.
func (c *cluster) script(id int) string { return filepath.Join(c.dir, "script."+strconv.Itoa(id)) }

// killWait returns the seconds between SIGTERM and SIGKILL.
func (c *cluster) killWait() int {
	seconds, _ := os.ReadFile(filepath.Join(c.dir, KillWaitFile)) // a test need not have one
	if n, err := strconv.Atoi(strings.TrimSpace(string(seconds))); err == nil {
		return n
	}
	return 30
}
