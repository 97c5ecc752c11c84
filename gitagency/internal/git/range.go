package git

import (
	"context"
	"fmt"
	"strings"
)

// Commit is a commit of a range.
type Commit struct {
	OID     string
	Tree    string
	Parents []string
	Message string // in UTF-8, whatever it was written in
}

// Subject is the first line of its message.
func (c Commit) Subject() string {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return strings.TrimSpace(subject)
}

// Range lists the commits that lead to one and not to another, every one behind its parents.
func (m *Mirror) Range(ctx context.Context, from, to string) ([]Commit, error) {
	if !isOID(from) || !isOID(to) {
		return nil, fmt.Errorf("not a name of an object: %q", from+" "+to)
	}
	p := m.place()
	p.env = append(p.env, "GIT_NO_REPLACE_OBJECTS=1")
	out, err := m.repo.read(ctx, p, "rev-list", "--topo-order", "--reverse", "--encoding=UTF-8", "--no-commit-header", "--format=%H%n%T%n%P%n%B%x00", to, "--not", from)
	if err != nil {
		return nil, err
	}
	var commits []Commit
	for record := range strings.SplitSeq(string(out), "\x00") {
		parts := strings.SplitN(strings.TrimPrefix(record, "\n"), "\n", 4)
		if len(parts) == 1 && parts[0] == "" {
			continue // behind the last
		}
		if len(parts) != 4 || !isOID(parts[0]) || !isOID(parts[1]) {
			return nil, fmt.Errorf("git rev-list answered %q", record)
		}
		commits = append(commits, Commit{OID: parts[0], Tree: parts[1], Parents: strings.Fields(parts[2]), Message: parts[3]})
	}
	return commits, nil
}
