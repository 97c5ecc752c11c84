package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Result is what a run left, from its commit. The commit is a snapshot of the sandbox with further trailers, and one more
// parent, the record commit, with the record and the output of the run. All texts are untrusted.
type Result struct {
	Commit     string
	Invocation string
	Number     int    // number of the run
	Exit       int    // exit code of the run
	Reason     string // status of the run
	Node       string
	Attempt    int
	Record     Record

	recordCommit string
}

// The trailers of a result, besides those of a snapshot.
const (
	invocationTrailer = "Agency-Invocation"
	exitTrailer       = "Agency-Exit"
	reasonTrailer     = "Agency-Reason"
	nodeTrailer       = "Agency-Node"
	attemptTrailer    = "Agency-Attempt"
	runTrailer        = "Agency-Run"
	recordTrailer     = "Agency-Record"

	baseTrailer   = "Agency-Base"
	headTrailer   = "Agency-Head"
	branchTrailer = "Agency-On"
	indexTrailer  = "Agency-Index"
)

// IsFinal reports whether no later attempt may replace the result: that of a run that was told to end may be partial, and its
// engine may begin it again.
func (r Result) IsFinal() bool { return r.Reason != store.StatusStopped }

// IsReplacedBy reports whether another result of the same invocation takes the place of this one in the hub.
func (r Result) IsReplacedBy(later Result) bool {
	switch {
	case r.Number != later.Number:
		return r.Number < later.Number
	case r.IsFinal():
		return false
	}
	return later.IsFinal() || r.Attempt < later.Attempt
}

// Record says more about the end of a run than the trailers do.
type Record struct {
	Version     int             `json:"version"`
	Status      string          `json:"status"`
	Reason      string          `json:"status_reason,omitempty"`
	Warnings    []string        `json:"run_warnings,omitempty"`
	Uncommitted []string        `json:"uncommitted,omitempty"`
	LastMessage string          `json:"last_message,omitempty"`
	Question    *store.Question `json:"question,omitempty"`
	Exceeded    string          `json:"exceeded,omitempty"`     // option of run whose limit the agent exceeded
	SetupFailed bool            `json:"setup_failed,omitempty"` // agency.setup failed
	WasRun      bool            `json:"was_run"`                // the program was started
	BeganAt     time.Time       `json:"began_at"`
	EndedAt     time.Time       `json:"ended_at"`

	CostUSD       float64    `json:"cost_usd,omitempty"`
	Tokens        int64      `json:"tokens,omitempty"`
	RunnerSession string     `json:"runner_session_id,omitempty"`
	SetupAt       *time.Time `json:"setup_at,omitempty"`
	Submitted     bool       `json:"submitted,omitempty"` // the agent submitted its work
	ReviewNote    string     `json:"review_note,omitempty"`

	Isolation string `json:"isolation"` // the wall that stood
	Git       string `json:"git"`       // version of git on the node
	Tool      string `json:"tool"`      // version of git-agency on the node
}

// Names of the files in the tree of a record commit.
const (
	recordFile = "record.json"
	StdoutFile = "stdout.log"
	StderrFile = "stderr.log"
	SetupFile  = "setup.log"
)

// MaxOutput bounds each file of output in a result: its end is kept.
const MaxOutput = 32 << 20

// Draft is a result to be written.
type Draft struct {
	Result

	State    string            // snapshot of the sandbox; empty if there is none: then the result has the files of Start
	Start    string            // base commit of the run, where it did not start from a snapshot
	Base     string            // base commit of the invocation
	Branch   string            // full ref of the branch of the sandbox on the node, and
	AsBranch string            // that on the machine of the user
	Previous string            // commit of the result that this one replaces; empty for none
	Output   map[string][]byte // output of the run by file name
}

// Write writes the commit of a result, to which nothing refers yet.
func (d Draft) Write(ctx context.Context, repo *git.Repo, who object.Identity) (string, error) {
	format := object.FormatOf(d.Start)
	d.Record.Version = jobVersion
	text, err := json.MarshalIndent(d.Record, "", "  ")
	if err != nil {
		return "", err
	}
	files := map[string][]byte{recordFile: append(text, '\n')}
	for name, output := range d.Output {
		files[name] = output[max(0, len(output)-MaxOutput):]
	}
	var before []string
	if d.Previous != "" { // partial work of an earlier attempt stays reachable
		before = []string{d.Previous}
	}
	record, err := writeCommit(ctx, repo, format, files, before, fmt.Sprintf("agency: record of run %d of %s\n", d.Number, d.Invocation), who)
	if err != nil {
		return "", err
	}
	tree, parents, trailers, err := d.contents(ctx, repo)
	if err != nil {
		return "", err
	}
	message := fmt.Sprintf("agency: result of run %d of %s\n\n%s: %s\n%s%s: %d\n%s: %s\n%s: %s\n%s: %d\n%s: %d\n%s: %s\n", d.Number, d.Invocation,
		invocationTrailer, d.Invocation, trailers, exitTrailer, d.Exit, reasonTrailer, d.Reason, nodeTrailer, d.Node, attemptTrailer, d.Attempt,
		runTrailer, d.Number, recordTrailer, record)
	commit := object.EncodeCommit(format, who, tree, append(parents, record), message)
	return commit.HexOID(), repo.WriteObjects(ctx, format, []object.Raw{commit})
}

// contents returns what a result takes from the snapshot of the sandbox: its tree, its parents, and its trailers as lines.
func (d Draft) contents(ctx context.Context, repo *git.Repo) (tree string, parents []string, trailers string, err error) {
	t, err := repo.OpenCatFile(ctx)
	if err != nil {
		return "", nil, "", err
	}
	defer t.Close()
	source := d.State
	if source == "" {
		source = d.Start
	}
	data, err := t.Contents(source, "commit")
	if err != nil {
		return "", nil, "", err
	}
	commit, err := object.ParseCommit(string(data))
	if err != nil {
		return "", nil, "", err
	}
	if d.State == "" {
		trailers := fmt.Sprintf("%s: %s\n%s: %s\n%s: %s\n%s: %s\n", baseTrailer, d.Base, headTrailer, d.Start, branchTrailer, d.AsBranch, indexTrailer, commit.Tree)
		return commit.Tree, []string{d.Start}, trailers, nil
	}
	for _, line := range lastParagraph(commit.Message) {
		switch key, value, _ := strings.Cut(line, ": "); {
		case key == invocationTrailer:
		case key == branchTrailer && value == d.Branch:
			trailers += branchTrailer + ": " + d.AsBranch + "\n"
		default:
			trailers += line + "\n"
		}
	}
	return commit.Tree, commit.Parents, trailers, nil
}

// lastParagraph returns the lines of the last paragraph of a message.
func lastParagraph(message string) []string {
	message = strings.TrimSpace(message)
	return strings.Split(strings.TrimLeft(message[strings.LastIndex(message, "\n\n")+1:], "\n"), "\n")
}

// ReadResult reads the result of a commit. Of its trailers it refuses invalid ones, and those of another invocation.
func ReadResult(ctx context.Context, repo *git.Repo, commit, id string) (Result, error) {
	t, err := repo.OpenCatFile(ctx)
	if err != nil {
		return Result{}, err
	}
	defer t.Close()
	const maxCommit = 1 << 20
	_, data, err := t.Read(commit, "commit", maxCommit)
	if err != nil {
		return Result{}, err
	}
	r, err := parseResult(string(data), id)
	if r.Commit = commit; err != nil {
		return r, fmt.Errorf("result %s of %s: %w", commit, id, err)
	}
	files, err := readFiles(ctx, repo, r.recordCommit, maxRecord, recordFile)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(files[recordFile], &r.Record); err != nil {
		return r, fmt.Errorf("record of the result %s: %w", commit, err)
	}
	return r, nil
}

// maxRecord bounds the record of a result.
const maxRecord = 4 << 20

// statuses are those with which a run ends.
var statuses = []string{store.StatusFinished, store.StatusFailed, store.StatusBlocked, store.StatusStopped, store.StatusTimedOut}

// parseResult parses the commit of a result.
func parseResult(data, id string) (r Result, err error) {
	commit, err := object.ParseCommit(data)
	if err != nil {
		return r, err
	}
	values := map[string]string{}
	for _, line := range lastParagraph(commit.Message) {
		if key, value, is := strings.Cut(line, ": "); is {
			values[key] = value
		}
	}
	numbers := map[string]*int{exitTrailer: &r.Exit, attemptTrailer: &r.Attempt, runTrailer: &r.Number}
	for key, number := range numbers {
		n, err := strconv.Atoi(values[key])
		if err != nil || n < 0 || n > 1<<20 || strconv.Itoa(n) != values[key] {
			return r, fmt.Errorf("its trailer %s is %s", key, quote.Shorten(strconv.Quote(values[key]), 100))
		}
		*number = n
	}
	r.Invocation, r.Reason, r.recordCommit = values[invocationTrailer], values[reasonTrailer], values[recordTrailer]
	r.Node = quote.Shorten(quote.Printable(values[nodeTrailer]), 200)
	switch {
	case r.Invocation != id:
		return r, fmt.Errorf("it names the invocation %s", quote.Shorten(strconv.Quote(r.Invocation), 100))
	case !slices.Contains(statuses, r.Reason):
		return r, fmt.Errorf("its trailer %s is %s", reasonTrailer, quote.Shorten(strconv.Quote(r.Reason), 100))
	case r.Exit > 255:
		return r, fmt.Errorf("its exit code is %d", r.Exit)
	case !slices.Contains(commit.Parents, r.recordCommit):
		return r, fmt.Errorf("its record commit %s is none of its parents", quote.Shorten(strconv.Quote(r.recordCommit), 100))
	}
	return r, nil
}

// ReadOutput reads the output of a run from its result, by file name. What was not written is missing.
func (r Result) ReadOutput(ctx context.Context, repo *git.Repo) (map[string][]byte, error) {
	return readFiles(ctx, repo, r.recordCommit, max(MaxOutput, maxRecord), recordFile, StdoutFile, StderrFile, SetupFile)
}
