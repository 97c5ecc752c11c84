package git

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Object is the object that a name given to Lookup resolves to.
type Object struct {
	OID  string
	Type string // commit, tree, blob or tag
}

// Missing reports that the name resolves to no object.
func (o Object) Missing() bool { return o.OID == "" }

// Lookup resolves any number of names (refs, "<rev>^{commit}", "<rev>:<path>") in one process.
func (r *Repo) Lookup(ctx context.Context, names ...string) ([]Object, error) {
	t, err := r.openCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return t.lookup(names...)
}

// CommitTimes returns the committer dates of commits. Ids that are missing, or are not commits, are left out.
func (r *Repo) CommitTimes(ctx context.Context, oids ...string) (map[string]time.Time, error) {
	if len(oids) == 0 {
		return nil, nil
	}
	objects, err := r.Lookup(ctx, oids...)
	if err != nil {
		return nil, err
	}
	p := runOptions{}
	for _, o := range objects {
		if o.Type == "commit" {
			p.stdin += o.OID + "\n"
		}
	}
	if p.stdin == "" {
		return nil, nil
	}
	out, err := r.runRead(ctx, p, "rev-list", "--no-walk", "--timestamp", "--stdin")
	if err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	for line := range strings.Lines(string(out)) {
		seconds, oid, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || !isOID(oid) {
			return nil, fmt.Errorf("git rev-list answered %q", line)
		}
		times[oid] = time.Unix(n, 0)
	}
	return times, nil
}

// ResolveCommit resolves a commit-ish in the caller's worktree, so that HEAD and @{u} have their meaning there, and
// returns the branch that it names, if any. ok is false when there is no such commit.
func (r *Repo) ResolveCommit(ctx context.Context, commitish string) (oid, branch string, ok bool, err error) {
	here := runOptions{gitDir: r.GitDir}
	name := proc.Async(func() ([]byte, error) {
		return r.runRead(ctx, here, "rev-parse", "--symbolic-full-name", "--end-of-options", commitish)
	})
	out, err := r.runRead(ctx, here, "rev-parse", "--verify", "--quiet", "--end-of-options", commitish)
	full, nameErr := name()
	if exitedWith(err, 1, 128) || err == nil && !isOID(strings.TrimSpace(string(out))) {
		return "", "", false, nil // missing, or a range and the like
	}
	if err != nil {
		return "", "", false, err
	}
	found, err := r.Lookup(ctx, strings.TrimSpace(string(out))+"^{commit}")
	if err != nil || found[0].Missing() {
		return "", "", false, err
	}
	if nameErr == nil {
		if b, isBranch := strings.CutPrefix(lastLine(full), "refs/heads/"); isBranch {
			branch = b
		}
	}
	return found[0].OID, branch, true, nil
}

// HeadBranch returns the branch that HEAD of the caller's worktree names, which may be unborn.
func (r *Repo) HeadBranch() string {
	var w Worktree
	_ = readHead(r.GitDir, &w) // an unreadable HEAD names no branch
	return strings.TrimPrefix(w.Branch, "refs/heads/")
}

// MainBranch returns the full ref that HEAD of the main worktree names; empty when it is detached.
func (r *Repo) MainBranch() string {
	var w Worktree
	_ = readHead(r.CommonDir, &w) // an unreadable HEAD names no branch
	return w.Branch
}

// lastLine returns the last line of rev-parse, which in some versions repeats --end-of-options before its answer.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// isOID reports whether s is a full SHA-1 or SHA-256 id in lower-case hex.
func isOID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// IsAncestor reports whether a is b or an ancestor of b. It is false when one of them is empty.
func (r *Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if a == "" || b == "" {
		return false, nil
	}
	_, err := r.runRead(ctx, runOptions{}, "merge-base", "--is-ancestor", a, b)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}
