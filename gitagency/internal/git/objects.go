package git

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Object is the answer to one name given to Lookup.
type Object struct {
	OID  string
	Type string // commit, tree, blob or tag
}

// Missing reports that nothing goes by that name.
func (o Object) Missing() bool { return o.OID == "" }

// Lookup resolves any number of names (refs, "<rev>^{commit}", "<rev>:<path>") in one process.
func (r *Repo) Lookup(ctx context.Context, names ...string) ([]Object, error) {
	for _, n := range names {
		if strings.ContainsAny(n, "\n\x00") {
			return nil, fmt.Errorf("not a name of an object: %q", n)
		}
	}
	// What somebody wants to have in the place of an object, by a ref, is not that object.
	out, err := r.read(ctx, place{stdin: strings.Join(names, "\n") + "\n", env: []string{"GIT_NO_REPLACE_OBJECTS=1"}},
		"cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(names) {
		return nil, fmt.Errorf("git cat-file: %d answers to %d questions", len(lines), len(names))
	}
	objects := make([]Object, len(names))
	for i, line := range lines {
		if strings.HasPrefix(line, names[i]+" ") && !isOID(names[i]) {
			continue // "<name> missing" or "<name> ambiguous"
		}
		oid, typ, ok := strings.Cut(line, " ")
		if !ok || !isOID(oid) {
			return nil, fmt.Errorf("git cat-file answered %q", line)
		}
		if typ != "missing" {
			objects[i] = Object{OID: oid, Type: typ}
		}
	}
	return objects, nil
}

// CommittedAt says when commits were made. What is no commit, or not there, is not in the answer.
func (r *Repo) CommittedAt(ctx context.Context, oids ...string) (map[string]time.Time, error) {
	if len(oids) == 0 {
		return nil, nil
	}
	objects, err := r.Lookup(ctx, oids...)
	if err != nil {
		return nil, err
	}
	p := place{}
	for _, o := range objects {
		if o.Type == "commit" {
			p.stdin += o.OID + "\n"
		}
	}
	if p.stdin == "" {
		return nil, nil
	}
	out, err := r.read(ctx, p, "rev-list", "--no-walk", "--timestamp", "--stdin")
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

// ResolveCommit resolves a commit-ish in the worktree the caller stands in, so that HEAD and @{u}
// mean what they mean there, and says which branch it names, if any. ok is false when there is no
// such commit.
func (r *Repo) ResolveCommit(ctx context.Context, commitish string) (oid, branch string, ok bool, err error) {
	here := place{gitDir: r.GitDir}
	name := proc.Meanwhile(func() ([]byte, error) {
		return r.read(ctx, here, "rev-parse", "--symbolic-full-name", "--end-of-options", commitish)
	})
	out, err := r.read(ctx, here, "rev-parse", "--verify", "--quiet", "--end-of-options", commitish)
	full, nameErr := name()
	if exitedWith(err, 1, 128) || err == nil && !isOID(strings.TrimSpace(string(out))) {
		return "", "", false, nil // not there, or a range and the like
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

// HeadBranch is the branch HEAD names in the caller's worktree, also when it is unborn.
func (r *Repo) HeadBranch() string {
	var w Worktree
	_ = readHead(r.GitDir, &w) // without one there is no branch either
	return strings.TrimPrefix(w.Branch, "refs/heads/")
}

// MainBranch is the full ref that HEAD of the main worktree names; empty when it is detached.
func (r *Repo) MainBranch() string {
	var w Worktree
	_ = readHead(r.CommonDir, &w) // without one there is no branch either
	return w.Branch
}

// lastLine: rev-parse may repeat --end-of-options before the answer, depending on its version.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

func isOID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// IsAncestor reports whether every commit of a is in b.
func (r *Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if a == "" || b == "" {
		return false, nil
	}
	_, err := r.read(ctx, place{}, "merge-base", "--is-ancestor", a, b)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}
