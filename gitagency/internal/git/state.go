package git

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// State is what a frozen state says of itself. It is read from a commit that anybody could have made: a part that
// names no object is empty.
type State struct {
	Commit  string
	Tree    string // what was on disk
	Parents []string
	Message string // of who took it, without what is said below
	Time    time.Time

	Name  string // of whose state it is: Subject.Name
	Base  string // the commit that the worktree started from
	Head  string // the commit that HEAD was at
	On    string // the branch that HEAD named, a full ref; Detached when it named none; empty where that is not known
	Tip   string // where the worktree's own branch was; empty when it was not there
	Index string // the tree that was staged; empty when none could be written, as in the middle of a merge
	Held  string // the commit that holds what git had under way: see Underway; empty when that was nothing
	Tool  string // what took it
}

// Detached is the State.On of a HEAD that names no branch.
const Detached = "detached"

// The trailers of a frozen state: what it says of itself besides its tree.
const (
	nameTrailer  = "Agency-Invocation"
	baseTrailer  = "Agency-Base"
	headTrailer  = "Agency-Head"
	onTrailer    = "Agency-On"    // absent in those of older tools, which did not say
	tipTrailer   = "Agency-Tip"   // absent when it is where HEAD is
	indexTrailer = "Agency-Index" // absent in the middle of a merge
	heldTrailer  = "Agency-Held"
	toolTrailer  = "Agency-Version"
)

// Same reports whether two states are the same, whoever took them and when.
func (s State) Same(other State) bool {
	return s.Tree == other.Tree && s.Head == other.Head && s.Index == other.Index && s.Held == other.Held && s.On == other.On &&
		cmp.Or(s.Tip, s.Head) == cmp.Or(other.Tip, other.Head)
}

// trailers are what a state says of itself in its message, but for who says it.
func (s State) trailers() string {
	text := ""
	if s.Head != "" { // as of all but a directory that is no worktree
		text += fmt.Sprintf("\n%s: %s", headTrailer, s.Head)
	}
	if s.On != "" {
		text += fmt.Sprintf("\n%s: %s", onTrailer, s.On)
	}
	if s.Tip != "" && s.Tip != s.Head {
		text += fmt.Sprintf("\n%s: %s", tipTrailer, s.Tip)
	}
	if s.Index != "" {
		text += fmt.Sprintf("\n%s: %s", indexTrailer, s.Index)
	}
	if s.Held != "" {
		text += fmt.Sprintf("\n%s: %s", heldTrailer, s.Held)
	}
	return text
}

// ReadState reads what a commit says of the state it holds.
func (r *Repo) ReadState(ctx context.Context, commit string) (State, error) {
	states, err := r.ReadStates(ctx, commit)
	if err != nil {
		return State{}, err
	}
	return states[0], nil
}

// ReadStates is ReadState of several in one git, in their order.
func (r *Repo) ReadStates(ctx context.Context, commits ...string) ([]State, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	p := place{stdin: strings.Join(commits, "\n") + "\n", env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	out, err := r.read(ctx, p, "rev-list", "--no-walk=unsorted", "--stdin", "--no-commit-header", "--format=%H%n%T%n%P%n%ct%n%B%x00")
	if err != nil {
		return nil, err
	}
	found := map[string]State{}
	for record := range strings.SplitSeq(string(out), "\x00") {
		parts := strings.SplitN(strings.TrimPrefix(record, "\n"), "\n", 5)
		if len(parts) != 5 || !isOID(parts[0]) {
			continue // behind the last
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
			return nil, fmt.Errorf("git rev-list says nothing of %s", commit)
		}
		states[i] = s
	}
	return states, nil
}

// parseState reads the message of a frozen state.
func parseState(message string) State {
	s := State{Name: trailer(message, nameTrailer), On: trailer(message, onTrailer), Tool: trailer(message, toolTrailer)}
	s.Message = strings.TrimSpace(message)
	if at := strings.LastIndex(s.Message, "\n\n"); at >= 0 {
		s.Message = strings.TrimSpace(s.Message[:at])
	}
	for key, part := range map[string]*string{
		baseTrailer: &s.Base, headTrailer: &s.Head, tipTrailer: &s.Tip, indexTrailer: &s.Index, heldTrailer: &s.Held,
	} {
		if value := trailer(message, key); isOID(value) {
			*part = value
		}
	}
	if s.Tip == "" {
		s.Tip = s.Head
	}
	if s.On != Detached && !strings.HasPrefix(s.On, "refs/heads/") {
		s.On = ""
	}
	return s
}

// trailer is what the last paragraph of a message says under a key. Git's own reading of it can be
// configured, and ends at what looks like scissors in the words above it.
func trailer(message, key string) string {
	message = strings.TrimSpace(message)
	for line := range strings.Lines(message[strings.LastIndex(message, "\n\n")+1:]) {
		if value, is := strings.CutPrefix(line, key+": "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
