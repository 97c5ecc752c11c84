package git

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// ListedCommit is a commit of ListCommits. Author and Subject are bytes that the author chose, Time too.
type ListedCommit struct {
	ID      string
	Time    time.Time // committer date; zero if it cannot be read
	Author  string    // name
	Subject string
}

// ListCommits lists the newest commits that are reachable from some commits and not from others, parents first. Ids that
// are empty or missing are left out on both sides.
func (r *Repo) ListCommits(ctx context.Context, from, without []string, most int) ([]ListedCommit, error) {
	var names, revisions []string // names of objects, and what rev-list gets if they exist
	for i, oid := range slices.Concat(from, without) {
		switch {
		case oid == "":
			continue
		case !object.IsOID(oid):
			return nil, fmt.Errorf("not an object id: %q", oid)
		}
		prefix := "^"
		if i < len(from) {
			prefix = ""
		}
		names, revisions = append(names, oid), append(revisions, prefix+oid+"\n")
	}
	if len(names) == 0 {
		return nil, nil
	}
	objects, err := r.Lookup(ctx, names...)
	if err != nil {
		return nil, err
	}
	p := RunOptions{Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}, Reading: r.ReadingOf("listing commits")}
	for i, o := range objects {
		if o.Type == "commit" {
			p.Stdin += revisions[i]
		}
	}
	out, err := r.RunRead(ctx, p, "rev-list", "--topo-order", "--reverse", "--max-count="+strconv.Itoa(most),
		"--no-commit-header", "--format=%H%x00%ct%x00%an%x00%s", "--stdin")
	if err != nil {
		return nil, err
	}
	var commits []ListedCommit
	for line := range strings.Lines(string(out)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\x00", 4)
		if len(fields) != 4 {
			return nil, fmt.Errorf("git rev-list answered %q", line)
		}
		c := ListedCommit{ID: fields[0], Author: fields[2], Subject: fields[3]}
		if seconds, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			c.Time = time.Unix(seconds, 0).UTC()
		}
		commits = append(commits, c)
	}
	return commits, nil
}
