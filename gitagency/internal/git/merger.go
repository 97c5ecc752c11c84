package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Merger makes commits of commits without a worktree, an index or a ref: it is a Mirror, so that neither settings nor
// attributes that somebody in a sandbox without walls could have written have a say. What it makes is seen by nobody else
// until Keep, and goes with Close.
type Merger struct{ *Mirror }

// Merger makes one. like is the id of any object, which says how ids are made.
func (r *Repo) Merger(like string) (*Merger, error) {
	mirror, err := r.Mirror(like)
	if err != nil {
		return nil, err
	}
	return &Merger{mirror}, nil
}

// Merging says what to merge.
type Merging struct {
	Base         string // a commit or tree; empty where history says what both have in common
	Ours, Theirs string // required: commits
}

// Merged is what came of it.
type Merged struct {
	Tree      string     // where there are conflicts, files in it have the markers that git writes
	Conflicts []Conflict // by path; none when it went well
}

// Conflict is a path that a person has to decide on.
type Conflict struct {
	Path   string
	Kinds  []string // as git calls them: "contents", "modify/delete", "rename/rename" and so on
	Stages []Stage
}

// Stage is one side of a conflict: 1 is what both had, 2 ours, 3 theirs.
type Stage struct {
	Number    int
	Mode, OID string
}

// Merge merges two commits.
func (m *Merger) Merge(ctx context.Context, what Merging) (Merged, error) {
	p := m.place()
	if what.Base != "" {
		return Merged{}, errors.New("merge over a base: not there yet")
	}
	out, err := m.repo.change(ctx, p, "merge-tree", "--write-tree", "-z", what.Ours, what.Theirs)
	if err != nil && !exitedWith(err, 1) {
		return Merged{}, err
	}
	return parseMerged(string(out))
}

// parseMerged reads "<tree> NUL", then, after a conflict, "<mode> <oid> <stage> TAB <path> NUL" and an empty one, then
// messages: "<how many> NUL <path> NUL ... <kind> NUL <text> NUL".
func parseMerged(out string) (m Merged, err error) {
	fields := strings.Split(out, "\x00")
	m.Tree = fields[0]
	if !isOID(m.Tree) {
		return m, fmt.Errorf("git merge-tree answered %q", fields[0])
	}
	at := map[string]int{}
	conflict := func(path string) *Conflict {
		i, there := at[path]
		if !there {
			i = len(m.Conflicts)
			at[path] = i
			m.Conflicts = append(m.Conflicts, Conflict{Path: path})
		}
		return &m.Conflicts[i]
	}
	fields = fields[1:]
	for len(fields) > 0 && fields[0] != "" {
		stat, path, _ := strings.Cut(fields[0], "\t")
		var s Stage
		if _, err := fmt.Sscan(stat, &s.Mode, &s.OID, &s.Number); err != nil {
			return m, fmt.Errorf("git merge-tree answered %q", fields[0])
		}
		c := conflict(path)
		c.Stages = append(c.Stages, s)
		fields = fields[1:]
	}
	if len(m.Conflicts) == 0 {
		return m, nil
	}
	for fields = fields[min(1, len(fields)):]; len(fields) > 3; {
		n := 0
		if _, err := fmt.Sscan(fields[0], &n); err != nil || n < 1 || n+2 >= len(fields) {
			return m, fmt.Errorf("git merge-tree answered %q", fields[0])
		}
		if kind, is := strings.CutPrefix(fields[n+1], "CONFLICT ("); is {
			for _, path := range fields[1 : n+1] {
				if _, there := at[path]; there {
					c := conflict(path)
					c.Kinds = append(c.Kinds, strings.TrimSuffix(kind, ")"))
				}
			}
		}
		fields = fields[n+3:]
	}
	return m, nil
}

// NewCommit is a commit that is to be made.
type NewCommit struct {
	Tree              string
	Parents           []string
	Author, Committer Signature
	Message           string
}

// Signature is who did something, and when.
type Signature struct {
	Identity
	When string // as git writes it: "<seconds> <zone>"
}

// Commit makes a commit.
func (m *Merger) Commit(ctx context.Context, c NewCommit) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s <%s> %s\ncommitter %s <%s> %s\n\n%s\n", c.Author.Name, c.Author.Email, c.Author.When, c.Committer.Name, c.Committer.Email, c.Committer.When, strings.TrimRight(c.Message, "\n"))
	format, content := FormatOf(c.Tree), []byte(b.String())
	made := object{kind: "commit", oid: nameObject(format, "commit", content), content: content}
	return made.name(), m.repo.store(ctx, format, []object{made})
}
