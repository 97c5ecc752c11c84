package runner

import (
	"regexp"
	"time"
)

// Spec describes how to run one coding agent. All differences between agents are here, as data and small pure functions.
type Spec struct {
	Name    string
	Program string // program name on PATH
	Tried   string // version that the real program was tried with

	// ChoosesSession says that the agent accepts a session id from us; otherwise its stream tells the id that it chose.
	ChoosesSession bool

	// SessionFile returns the pattern (path.Match) of a file below the state directory that exists once a session can be
	// continued. It is set with ChoosesSession.
	SessionFile func(session string) string

	// Headless returns the command line for a task. The task itself is on standard input: arguments are visible in process
	// lists.
	Headless func(Launch) []string

	// Interactive returns the command line of the agent's own program on a terminal.
	Interactive func(Launch) []string

	// NewStream returns a reader of the agent's output in headless mode.
	NewStream func() Stream

	StateEnv func(dir string) []string // variables that make the agent keep its state below a directory
	Seeds    []Seed                    // login and settings that the state directory begins with
	Files    func(Launch) []File       // files that are written into the state directory before each run

	PassEnv []string                    // names of the user's variables that the agent gets; NAME_* is a prefix
	AskEnv  func(Launch) []string       // variables for an agent that waits for answers; may be nil
	KeyEnv  *regexp.Regexp              // finds names of variables with keys in the user's settings, as first group; may be nil
	KeyText *regexp.Regexp              // finds a key, or a provider that needs none, in the user's settings
	SetEnv  []string                    // NAME=value pairs that are set behind walls
	Keys    []string                    // variables of which one can replace a login
	Logins  []string                    // From of the seeds of which one is a login
	HomeEnv string                      // variable that relocates the state outside, such as CLAUDE_CONFIG_DIR
	Hosts   func(env []string) []string // hosts that the agent needs, as for --outputs hosts:
}

// FindSpec returns how to run the agent with this name. Agents that are only a configured command have no Spec.
func FindSpec(name string) (Spec, bool) {
	for _, s := range specs() {
		if s.Name == name {
			return s, true
		}
	}
	return Spec{}, false
}

// SpecNames returns the names of the agents that have a Spec.
func SpecNames() []string {
	var names []string
	for _, s := range specs() {
		names = append(names, s.Name)
	}
	return names
}

func specs() []Spec { return []Spec{claude(), codex(), gemini(), opencode()} }

// Launch has the values that the command line of an agent depends on.
type Launch struct {
	Session  string   // session id; empty if the agent chooses it and has not yet
	Resume   bool     // continue the session, or the last one if Session is empty
	StateDir string   // state directory of the sandbox
	Tree     string   // worktree of the sandbox
	MCP      []string // command line of the MCP server of git-agency; empty for none
	Env      []string // variables of the user

	AskTimeout time.Duration // how long a call of the tool ask waits for the answer; negative for no limit
}

// Limits of a call of a tool.
const (
	minToolLimit = time.Hour
	maxToolLimit = (1<<31 - 1) * time.Millisecond // the longest timer of JavaScript
)

// toolLimit returns how long the agent lets a call of a tool of git-agency take: longer than ask waits.
func (l Launch) toolLimit() time.Duration {
	const margin = time.Minute
	if l.AskTimeout < 0 || l.AskTimeout > maxToolLimit-margin {
		return maxToolLimit
	}
	return max(minToolLimit, l.AskTimeout+margin)
}

// Seed is a file or directory of the user that is copied into a state directory. A file that holds settings can name
// hosts and variables that the agent needs.
type Seed struct {
	From     string // relative to the home
	Moved    string // relative to the directory of Env, if that is set
	Env      string // variable that relocates it; HomeEnv of the Spec if empty
	To       string // relative to the state directory
	Settings bool
}

// File is a file in a state directory. Merge, if set, computes the content from the existing one.
type File struct {
	Name  string // relative to the state directory
	Merge func(existing []byte) ([]byte, error)
}

// Stream reads the output of a headless agent, line by line.
type Stream interface {
	// Line parses a line of standard output and returns the events that it tells. A line that is no event of the agent
	// yields none.
	Line(line []byte) []Event
	// ErrorLine parses a line of standard error.
	ErrorLine(line []byte) []Event
	// Summary returns what the output told so far.
	Summary() Summary
}

// Kinds of events.
const (
	Message   = "message"    // text of the agent
	ToolCall  = "tool"       // a tool was called
	ToolError = "tool-error" // a tool failed
	Denied    = "denied"     // the agent was not permitted to call a tool
	Failure   = "error"      // the model or the agent failed
	Usage     = "usage"      // tokens or cost so far
	Conflict  = "conflict"   // the work conflicts with that of another agent; told by the run, not by a stream
)

// Event is one normalised event of an agent's stream.
type Event struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"` // message, command line, or reason
	Tool string `json:"tool,omitempty"`
}

// Summary has the facts that a stream told about a run.
type Summary struct {
	Session     string   // session id that the agent uses
	LastMessage string   // last text of the agent
	CostUSD     float64  // zero if unknown
	Tokens      int64    // input and output; zero if unknown
	OfSession   bool     // CostUSD and Tokens are those of all runs of the session
	ToolErrors  int      // number of failed tool calls
	Denied      []string // tools that were denied
	Err         string   // why the run failed, whatever the exit code says; empty if it did not
	Complete    bool     // the stream has the record that ends a successful run
}
