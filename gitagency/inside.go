package gitagency

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/requests"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// Inside is the sandbox that this process runs in. Behind walls no record is visible, so its methods send requests to the
// process outside that runs the command.
type Inside struct {
	ID         string // invocation id
	WorkDir    string // tree of the sandbox
	TaskFile   string // file with the task of the agent; empty if there is none
	AnswerFile string // file with the answer to its last question; empty if there is none

	// AskTimeout says how long Ask waits for the answer; zero for not at all, negative for no limit.
	AskTimeout time.Duration

	warn func(string)
}

// Refuse returns the error of a call that does not work behind walls.
func (in *Inside) Refuse() error { return publicError(&fault.BehindWallsError{ID: in.ID}) }

// CheckOutsideWalls fails with reason.BehindWalls if an environment, by default that of this process, is that of a command
// behind walls.
func CheckOutsideWalls(env []string) error {
	if env == nil {
		env = os.Environ()
	}
	return publicError(core.CheckOutsideWalls(env))
}

// OpenInside returns the sandbox that this process runs in, by the variables that Sandbox.Exec sets. Outside of a sandbox it
// fails with reason.NotInside.
func OpenInside(opts Options) (*Inside, error) {
	o, err := opts.internal().WithDefaults()
	if err != nil {
		return nil, publicError(err)
	}
	vars, err := sandbox.VariablesOf(o.Env)
	if err != nil {
		return nil, publicError(err)
	}
	in := &Inside{ID: vars.ID, WorkDir: vars.Tree, TaskFile: vars.TaskFile, AnswerFile: vars.AnswerFile, warn: o.Warn}
	in.AskTimeout, _ = settings.ParseDuration(vars.AskTimeout) // an agent that spoils its variable does not wait
	return in, nil
}

// Names reports whether a query names this sandbox: its id, the part of it after the dash, a prefix of either, or "@".
func (in *Inside) Names(query string) bool {
	return query == "@" || query != "" && (strings.HasPrefix(in.ID, query) || strings.HasPrefix(ids.Suffix(in.ID), query))
}

// Check refuses a query that does not name this sandbox; an empty one does.
func (in *Inside) Check(query string) error {
	if query == "" || in.Names(query) {
		return nil
	}
	return publicError(in.Refuse())
}

// Invocation is Repository.InvocationActivity for this sandbox, with its refusals.
func (in *Inside) Invocation(ctx context.Context) (Invocation, []Refusal, error) {
	result, err := send[requests.ShowResult](ctx, in, requests.Show, struct{}{})
	return newInvocation(result.Invocation), convertAll(result.Refusals, newRefusal), publicError(err)
}

// Submit is Repository.Submit for this sandbox.
func (in *Inside) Submit(ctx context.Context, note string) (SubmitResult, error) {
	result, err := send[landing.SubmitResult](ctx, in, requests.Submit, requests.SubmitArgs{Note: note})
	return SubmitResult(result), publicError(err)
}

// TakeSnapshot is Sandbox.TakeSnapshot for this sandbox.
func (in *Inside) TakeSnapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	taken, err := send[snapshots.Snapshot](ctx, in, requests.Snapshot, snapshots.TakeRequest(req))
	return newSnapshot(taken), publicError(err)
}

// DiffText is a diff as text.
type DiffText struct {
	Text    []byte
	Empty   bool // nothing differs
	LeftOut []LeftOut
}

// Diff compares two states of this sandbox, as Repository.DiffSnapshots does, and formats the result outside; with asJSON as
// JSON, else as WriteDiff does, and with color in the colours that the user has configured.
func (in *Inside) Diff(ctx context.Context, req DiffRequest, format DiffFormat, color, asJSON bool) (DiffText, error) {
	format.Colors = DiffColors{}
	result, err := send[requests.DiffResult](ctx, in, requests.Diff, requests.DiffArgs{
		Request: req.internal(), JSON: asJSON, Color: color, Format: format.internal(),
	})
	return DiffText{Text: result.Text, Empty: result.Empty, LeftOut: convertAll(result.LeftOut, newLeftOut)}, publicError(err)
}

// Question is a question of an agent to the person outside.
type Question struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"` // answers to choose from
	Context  string   `json:"context,omitempty"`
}

// AskResult is the result of Ask.
type AskResult struct {
	Answered bool
	Answer   []byte // the answer
	Expired  bool   // no answer came within AskTimeout; the run ends, and is resumed with the answer
}

// expiryMargin is how much longer than AskTimeout a process waits to be told that no answer came.
const expiryMargin = 10 * time.Second

// Ask leaves a question for the person outside, and waits for the answer as long as AskTimeout says. It fails if an earlier
// question is not answered yet.
func (in *Inside) Ask(ctx context.Context, q Question) (AskResult, error) {
	asked := mailbox.Question{Question: q.Question, Options: q.Options, Context: q.Context}
	if in.AskTimeout == 0 {
		return AskResult{}, publicError(in.leaveQuestion(asked))
	}
	errExpired := errors.New("no answer came in time")
	if in.AskTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, in.AskTimeout+expiryMargin, errExpired)
		defer cancel()
	}
	answer, err := mailbox.Ask(ctx, in.mailbox(), asked)
	switch {
	case errors.Is(err, errExpired): // the process outside does not notice questions
		return AskResult{Expired: true}, nil
	case err != nil:
		return AskResult{}, publicError(err)
	case answer.Kind == mailbox.Refused:
		return AskResult{}, errors.New(string(answer.Text))
	}
	return AskResult{Answered: answer.Kind == mailbox.Answered, Answer: answer.Text, Expired: answer.Kind == mailbox.Expired}, nil
}

// leaveQuestion writes a question to the mailbox.
func (in *Inside) leaveQuestion(q mailbox.Question) (err error) {
	box, err := mailbox.Open(in.mailbox())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	return box.WriteQuestion(q)
}

// mailbox returns the path of the mailbox as commands of the sandbox see it.
func (in *Inside) mailbox() string { return filepath.Join(in.WorkDir, guard.AgencyDir) }

// RequestError is the error that a request from inside of a sandbox ended with outside.
type RequestError struct {
	Message string
	Kind    RequestErrorKind
}

func (e *RequestError) Error() string { return e.Message }

// RequestErrorKind is the kind of an error outside; empty for most.
type RequestErrorKind string

// The kinds of errors.
const (
	RequestLocked  RequestErrorKind = requests.Locked  // something was locked for too long
	RequestBroken  RequestErrorKind = requests.Broken  // the invocation is broken
	RequestRefused RequestErrorKind = requests.Refused // refused for safety
	RequestInvalid RequestErrorKind = requests.Invalid // an invalid argument
)

// ErrNotServed reports that no process outside of the sandbox serves its requests.
var ErrNotServed = mailbox.ErrNotServed

// send sends a request and decodes its result.
func send[T any](ctx context.Context, in *Inside, verb string, args any) (result T, err error) {
	reply, err := mailbox.Send(ctx, in.mailbox(), verb, args)
	if err != nil {
		return result, err
	}
	for _, warning := range reply.Warnings {
		if in.warn != nil {
			in.warn(warning)
		}
	}
	if f := reply.Failure; f != nil {
		return result, &RequestError{Message: f.Message, Kind: RequestErrorKind(f.Kind)}
	}
	return result, json.Unmarshal(reply.Result, &result)
}
