// Package requests carries out the requests that the commands of a sandbox leave in its mailbox, with the checks of the
// commands of the same names outside. A request is untrusted, and none can name another sandbox: the id is that of the mailbox it was
// read from.
package requests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/listing"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// The verbs of requests.
const (
	Show     = "show"
	Submit   = "submit"
	Snapshot = "snapshot"
	Diff     = "diff"
)

// ShowResult is the result of Show.
type ShowResult struct {
	Invocation core.Invocation  `json:"invocation"`
	Refusals   []doctor.Refusal `json:"refusals"`
}

// SubmitArgs are the arguments of Submit, whose result is a landing.SubmitResult.
type SubmitArgs struct {
	Note string `json:"note"`
}

// DiffArgs are the arguments of Diff.
type DiffArgs struct {
	Request diff.Request `json:"request"` // Invocation is ignored
	JSON    bool         `json:"json"`    // the text is JSON, and Format is ignored
	Color   bool         `json:"color"`   // with the colours that the user has configured outside
	Format  diff.Format  `json:"format"`  // Form and Colors are ignored
}

// DiffResult is the result of Diff.
type DiffResult struct {
	Text    []byte              `json:"text"` // as printed
	Empty   bool                `json:"empty"`
	LeftOut []snapshots.LeftOut `json:"left_out"`
}

// Kinds of failures.
const (
	Locked  = "locked"
	Broken  = "broken"
	Refused = "refused"
	Invalid = "invalid"
)

// Server returns a function that serves the requests of a sandbox in its mailbox, until stop is called. It is meant for
// sandbox.ExecOptions.
func Server(r *core.Repository, id string) func(path string) (stop func()) {
	return func(path string) func() {
		server, err := mailbox.NewServer(path)
		if err != nil {
			r.Warn("sandbox %s: git agency will not work inside: %v", id, err)
			return func() {}
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := server.Serve(ctx, func(ctx context.Context, req mailbox.Request) mailbox.Reply { return answer(ctx, r, id, req) }); err != nil {
				r.Warn("sandbox %s: git agency does not work inside any more: %v", id, err)
			}
		}()
		return func() { cancel(); <-done }
	}
}

// answer carries out a request in a repository that is opened for it, so that its settings are those of now and its warnings
// go to the sandbox.
func answer(ctx context.Context, of *core.Repository, id string, req mailbox.Request) (reply mailbox.Reply) {
	opts, open := of.Opts, core.Open
	if of.IsPaths() {
		open = pathset.Open
	}
	opts.Warn = func(message string) { reply.Warnings = append(reply.Warnings, message) }
	opts.Command, opts.NoGitProbe = fmt.Sprintf("git agency %s in sandbox %s", req.Verb, id), true
	r, err := open(ctx, opts)
	var result any
	if err == nil {
		result, err = perform(ctx, r, id, req)
	}
	if err == nil {
		reply.Result, err = json.Marshal(result)
	}
	if err != nil {
		reply.Failure = &mailbox.Failure{Message: err.Error(), Kind: kindOf(err)}
	}
	return reply
}

// perform carries out a request.
func perform(ctx context.Context, r *core.Repository, id string, req mailbox.Request) (any, error) {
	if (req.Verb == Submit || req.Verb == Snapshot) && r.IsPaths() {
		return nil, &fault.InvalidError{What: "request", Value: req.Verb, Want: "one that works in a sandbox over plain directories: " + Show + ", " + Diff}
	}
	switch req.Verb {
	case Show:
		return show(ctx, r, id)
	case Submit:
		args, err := decode[SubmitArgs](req)
		if err != nil {
			return nil, err
		}
		return landing.Submit(ctx, r, landing.SubmitRequest{Invocation: id, Note: args.Note})
	case Snapshot:
		args, err := decode[snapshots.TakeRequest](req)
		if err != nil {
			return nil, err
		}
		return sandbox.Of(r, id).TakeSnapshot(ctx, args)
	case Diff:
		args, err := decode[DiffArgs](req)
		if err != nil {
			return nil, err
		}
		return compare(ctx, r, id, args)
	}
	return nil, &fault.InvalidError{What: "request", Value: req.Verb, Want: strings.Join([]string{Show, Submit, Snapshot, Diff}, ", ")}
}

// decode parses the arguments of a request.
func decode[T any](req mailbox.Request) (args T, err error) {
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return args, fmt.Errorf("arguments of %s: %w", req.Verb, err)
	}
	return args, nil
}

func show(ctx context.Context, r *core.Repository, id string) (result ShowResult, err error) {
	if result.Invocation, err = r.Invocation(id); err != nil {
		return result, err
	}
	if err := listing.FillOne(ctx, r, &result.Invocation); err != nil {
		return result, err
	}
	pathset.FillChangedOfOne(ctx, r, &result.Invocation)
	result.Refusals, err = doctor.Refusals(r, id)
	return result, err
}

func compare(ctx context.Context, r *core.Repository, id string, args DiffArgs) (result DiffResult, err error) {
	asked := args.Request
	for _, state := range []string{asked.From, asked.To} {
		if state != "" && !slices.Contains(diff.States, state) && !strings.HasPrefix(state, id+"/") {
			return result, &fault.InvalidError{What: "state", Value: state, Want: strings.Join(diff.States, ", ") + ", or a snapshot of this sandbox: " + id + "/<n>"}
		}
	}
	asked.Invocation = id
	of := diff.OfSandbox
	if r.IsPaths() {
		of = pathset.Diff
	}
	d, err := of(ctx, r, asked)
	if err != nil {
		return result, err
	}
	result.Empty, result.LeftOut = d.Empty(), d.LeftOut
	if args.JSON {
		result.Text, err = json.Marshal(d)
		return result, err
	}
	format := args.Format
	format.Form = asked.Form
	if args.Color {
		if format.Colors, err = r.Settings.DiffColors(); err != nil {
			return result, err
		}
	}
	var text bytes.Buffer
	err = diff.Write(&text, d, format)
	result.Text = text.Bytes()
	return result, err
}

// kindOf returns the kind of an error, from which the command inside gets its exit code.
func kindOf(err error) string {
	switch {
	case fault.Is[*fault.LockTimeoutError](err), fault.Is[*fault.BusyError](err):
		return Locked
	case fault.Is[*fault.BrokenError](err):
		return Broken
	case fault.Is[*fault.InvalidTreeError](err), fault.Is[*guard.ConfinementError](err):
		return Refused
	case fault.Is[*fault.InvalidError](err):
		return Invalid
	}
	return ""
}
