package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// readState parses the captured state in the message of a commit; it is empty when there is no such commit.
func readState(t *git.CatFile, commit string) (State, error) {
	if commit == "" {
		return State{}, nil
	}
	data, err := t.Contents(commit, "commit")
	if err != nil || data == nil {
		return State{}, err
	}
	header, message, _ := strings.Cut(string(data), "\n\n")
	s := parseState(message)
	s.Commit = commit
	for line := range strings.Lines(header) {
		if tree, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "tree "); is {
			s.Tree = tree
			break
		}
	}
	return s, nil
}

// State is the metadata of a captured state, read from its commit. Any process could have made that commit: a field
// that should name an object and does not is empty.
type State struct {
	Commit  string
	Tree    string // tree of the files on disk
	Parents []string
	Message string // commit message without the trailers
	Time    time.Time

	Name            string // git.WorktreeSpec.Name of the captured worktree
	Base            string // commit from which the worktree started
	Head            string // commit of HEAD
	HeadRef         string // full ref of the branch that HEAD named; git.DetachedHead if it named none; empty if unknown
	BranchTip       string // commit of the worktree's own branch; empty when it did not exist
	IndexTree       string // tree of the index; empty when it could not be written, as in the middle of a merge
	OperationCommit string // commit that holds the operation in progress: see Operation; empty when there was none
	ToolVersion     string // version of git-agency that wrote it
}

// The trailers of a state commit.
const (
	invocationTrailer = "Agency-Invocation"
	baseTrailer       = "Agency-Base"
	headTrailer       = "Agency-Head"
	headRefTrailer    = "Agency-On"    // absent in states of older versions
	branchTipTrailer  = "Agency-Tip"   // absent when it equals HEAD
	indexTrailer      = "Agency-Index" // absent in the middle of a merge
	operationTrailer  = "Agency-Held"
	versionTrailer    = "Agency-Version"
)

// SameContents reports whether two states have the same contents, whatever their authors and dates.
func (s State) SameContents(other State) bool {
	return s.Tree == other.Tree && s.Head == other.Head && s.IndexTree == other.IndexTree && s.OperationCommit == other.OperationCommit && s.HeadRef == other.HeadRef &&
		cmp.Or(s.BranchTip, s.Head) == cmp.Or(other.BranchTip, other.Head)
}

// Trailers returns the trailers for the contents of a state. Those of the invocation, its base and the version are
// already in the message.
func (s State) Trailers() string {
	text := ""
	if s.Head != "" { // a directory that is no worktree has no HEAD
		text += fmt.Sprintf("\n%s: %s", headTrailer, s.Head)
	}
	if s.HeadRef != "" {
		text += fmt.Sprintf("\n%s: %s", headRefTrailer, s.HeadRef)
	}
	if s.BranchTip != "" && s.BranchTip != s.Head {
		text += fmt.Sprintf("\n%s: %s", branchTipTrailer, s.BranchTip)
	}
	if s.IndexTree != "" {
		text += fmt.Sprintf("\n%s: %s", indexTrailer, s.IndexTree)
	}
	if s.OperationCommit != "" {
		text += fmt.Sprintf("\n%s: %s", operationTrailer, s.OperationCommit)
	}
	return text
}

// ReadState reads the metadata of a captured state.
func ReadState(ctx context.Context, r *git.Repo, commit string) (State, error) {
	states, err := ReadStates(ctx, r, commit)
	if err != nil {
		return State{}, err
	}
	return states[0], nil
}

// ReadStates is ReadState for several commits with one git process, in the given order.
func ReadStates(ctx context.Context, r *git.Repo, commits ...string) ([]State, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	p := git.RunOptions{Stdin: strings.Join(commits, "\n") + "\n", Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	out, err := r.RunRead(ctx, p, "rev-list", "--no-walk=unsorted", "--stdin", "--no-commit-header", "--format=%H%n%T%n%P%n%ct%n%B%x00")
	if err != nil {
		return nil, err
	}
	found := map[string]State{}
	for record := range strings.SplitSeq(string(out), "\x00") {
		parts := strings.SplitN(strings.TrimPrefix(record, "\n"), "\n", 5)
		if len(parts) != 5 || !object.IsOID(parts[0]) {
			continue // after the last record
		}
		s := parseState(parts[4])
		s.Commit, s.Tree, s.Parents = parts[0], parts[1], strings.Fields(parts[2])
		var seconds int64
		if _, err := fmt.Sscan(parts[3], &seconds); err != nil {
			return nil, fmt.Errorf("git rev-list answered %q", parts[3])
		}
		s.Time = time.Unix(seconds, 0)
		found[s.Commit] = s
	}
	states := make([]State, len(commits))
	for i, commit := range commits {
		s, there := found[commit]
		if !there {
			return nil, fmt.Errorf("git rev-list did not report %s", commit)
		}
		states[i] = s
	}
	return states, nil
}

// parseState parses the commit message of a captured state.
func parseState(message string) State {
	s := State{Name: findTrailer(message, invocationTrailer), HeadRef: findTrailer(message, headRefTrailer), ToolVersion: findTrailer(message, versionTrailer)}
	s.Message = strings.TrimSpace(message)
	if at := strings.LastIndex(s.Message, "\n\n"); at >= 0 {
		s.Message = strings.TrimSpace(s.Message[:at])
	}
	for key, part := range map[string]*string{
		baseTrailer: &s.Base, headTrailer: &s.Head, branchTipTrailer: &s.BranchTip, indexTrailer: &s.IndexTree, operationTrailer: &s.OperationCommit,
	} {
		if value := findTrailer(message, key); object.IsOID(value) {
			*part = value
		}
	}
	if s.BranchTip == "" {
		s.BranchTip = s.Head
	}
	if s.HeadRef != git.DetachedHead && !strings.HasPrefix(s.HeadRef, "refs/heads/") {
		s.HeadRef = ""
	}
	return s
}

// InvocationOf returns the id of the invocation that the message of a capture names; empty when it names none.
func InvocationOf(message string) string { return findTrailer(message, invocationTrailer) }

// findTrailer returns the value of a trailer in the last paragraph of a message. It does not use git's parser, which
// can be configured, and stops at a scissors line in the text above.
func findTrailer(message, key string) string {
	message = strings.TrimSpace(message)
	for line := range strings.Lines(message[strings.LastIndex(message, "\n\n")+1:]) {
		if value, is := strings.CutPrefix(line, key+": "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// WriteState writes a state of a worktree as a commit, in the form of a capture, with the state after as first parent.
func WriteState(ctx context.Context, r *git.Repo, s git.WorktreeSpec, after string, state State) (string, error) {
	parents, err := r.AddIndependent(ctx, []string{after}, []string{state.Head, state.BranchTip, state.OperationCommit})
	if err != nil {
		return "", err
	}
	return r.CommitTree(ctx, s, state.Tree, parents, s.Message+state.Trailers())
}
