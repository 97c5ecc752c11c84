// Package engine submits jobs to engines that run programs on other machines or in containers, asks how they are, cancels them and reads what
// they write: Slurm, podman and docker. An engine is used by the command-line client of its site, as its user would; a driver only builds
// argument lists and parses answers.
//
// The package must never know about git or agents: a job is a program with a name. What a driver tells about the end of a
// job is only an opinion of its engine, and may be wrong or be forgotten; the work of a job and its exit code have to come by
// another way.
package engine

import (
	"context"
	"io"
	"time"
)

// Driver runs jobs on one engine. All methods may be called by several processes at once, and again after one was killed.
type Driver interface {
	// Probe asks the engine what it is and what its site permits.
	Probe(ctx context.Context) (Capabilities, error)

	// Submit queues a job, or starts it where the engine has no queue, and returns its id. It does not look whether a job of this name exists.
	Submit(ctx context.Context, job Job) (id string, err error)

	// List asks for the states of jobs in one query. Jobs that the engine does not know, or not any more, are not in the
	// result, which is in no order.
	List(ctx context.Context, jobs []Ref) ([]Status, error)

	// Watch calls changed with the states of jobs whenever one has changed, and first with all that the engine knows. It
	// returns nil when changed returns false, and the cause of ctx when that has ended. A query that fails is repeated;
	// failed, which may be nil, is called with its error.
	Watch(ctx context.Context, jobs []Ref, changed func([]Status) bool, failed func(error)) error

	// Cancel ends a job: it is sent SIGTERM, and after a grace period of the engine SIGKILL. It does not wait for the end. A
	// job that is not known or has ended is no error.
	Cancel(ctx context.Context, job Ref) error

	// Logs copies what a job has written to one of its streams, from a position on, until all was copied; with follow until
	// the job has ended. copied counts the bytes also if there is an error. Output that cannot be read from this machine, or
	// not any more, is a *NoLogsError.
	Logs(ctx context.Context, job Ref, req LogsRequest, to io.Writer) (copied int64, err error)

	// Reap removes what the engine and the driver keep of a job that has ended. A job that is not known is no error.
	Reap(ctx context.Context, job Ref) error
}

// Job is a program for an engine to run.
type Job struct {
	Name string   // unique: no other job ever has it. Letters, digits and hyphens
	Argv []string // command line of the program. If several paths of it may exist, see Programs

	// Programs are further paths or names of Argv[0] to try in this order, if that does not exist on the node.
	Programs []string

	// Paths are what the job needs of its machine. Engines that give jobs a root file system of their own mount them there.
	Paths []Path

	// LogDir is a directory of this machine for the output of the job, which exists. Where it is the same directory on the
	// node, the driver may have the job write its output there, to files that begin with the name of the job.
	LogDir string

	TimeLimit time.Duration // after which the engine may end the job, rounded up to what the engine can count; zero for none
	Memory    int64         // bytes that the job needs; zero: what the site gives
	Requeue   bool          // the engine may run the job again if its node was lost or the job was preempted
}

// Path is a part of a machine that a job needs.
type Path struct {
	Source string // path on the machine, or the name of a volume that the engine makes where there is none
	Target string // path for the job; another one than Source only for a volume
	Write  bool   // the job may change it
}

// Ref names a job.
type Ref struct {
	Name string // required
	ID   string // as Submit returned it; empty if that is not known
	Dir  string // LogDir of the job
}

// Status is what an engine tells about a job.
type Status struct {
	Name    string
	ID      string
	State   State
	Reason  string // one of the reasons; empty for a job that has not ended
	Detail  string // the engine's own words about the state, such as why the job waits; one line of printable text
	Exit    *int   // exit code as the engine tells it; nil if it does not
	Node    string // host that runs or ran the job; empty if not known
	Attempt int    // number of the start of the job, from 1; 0 if not known
}

// State is the state of a job.
type State string

// States of a job.
const (
	Queued  State = "queued"  // it waits for its first or its next start
	Running State = "running" // it runs, as far as the engine knows
	Ended   State = "ended"
)

// Reasons why a job has ended.
const (
	Exited    = "exited"    // by itself, with any exit code
	Signaled  = "signaled"  // killed by a signal
	TimedOut  = "timed-out" // by TimeLimit or a limit of the site
	Cancelled = "cancelled" // by its user or an administrator
	Preempted = "preempted" // for another job, and not queued again
	NodeLost  = "node-lost" // its node does not answer any more
	NoMemory  = "no-memory" // it used more memory than it may
	NotBegun  = "not-begun" // the engine could not start it
)

// LogsRequest says what of the output of a job to read.
type LogsRequest struct {
	Stream Stream
	Offset int64
	Follow bool
}

// Stream is a stream of a job's output.
type Stream string

// Streams of a job's output.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Capabilities is what an engine and its site can do.
type Capabilities struct {
	Version      string
	Accounting   bool          // the engine remembers jobs that ended long ago
	KillWait     time.Duration // between SIGTERM and SIGKILL; zero if not known
	Memory       time.Duration // how long the engine knows a job that has ended, without accounting; zero if not known
	Problem      string        // why the engine would refuse every job; empty if nothing is known
	MissingImage string        // image for jobs that has to be fetched first, as Problem says; empty if it is there
	Notes        []string      // what a user should know about the site, one sentence each without a full stop
}

// Channel runs the client of an engine on this machine or, by ssh, on a login node.
type Channel struct {
	SSH string   // destination as for ssh(1); empty: this machine
	Env []string // environment of the client or of ssh

	// Outlive lets the client on this machine go on if this process ends.
	Outlive bool

	// Only names the variables that the client gets, of Env or of the login node; nil for all.
	Only []string
}

// UnreachableError reports an engine that could not be asked: its client is not installed, or it cannot reach the engine.
type UnreachableError struct {
	Engine  string
	Argv    []string // client that failed
	Missing bool     // the client is not installed
	Detail  string   // what it wrote, shortened; or why it could not be run
}

func (e *UnreachableError) Error() string {
	if e.Missing {
		return e.Engine + " cannot be used: there is no program " + e.Argv[0]
	}
	return e.Engine + " cannot be asked: " + e.Detail
}

// RejectedError reports a job that an engine refused.
type RejectedError struct {
	Engine string
	Detail string // its reason
}

func (e *RejectedError) Error() string { return e.Engine + " refused the job: " + e.Detail }

// NoLogsError reports output of a job that cannot be read.
type NoLogsError struct{ Why string }

func (e *NoLogsError) Error() string { return "the output of the job cannot be read: " + e.Why }
