package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// CheckObjectsExist checks that objects which were written before the ref to them still exist. A concurrent "git gc
// --prune=now" may have computed reachability before the ref was created, and have deleted them since.
func (r *Repo) CheckObjectsExist(ctx context.Context, objects ...string) error {
	var ask []string
	for _, oid := range objects {
		if _, err := os.Lstat(r.LoosePath(oid)); err != nil { // it may be in a pack by now
			ask = append(ask, oid)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	found, err := r.Lookup(ctx, ask...)
	if err != nil {
		return err
	}
	for i, o := range found {
		if o.Missing() {
			return fmt.Errorf("object %s was deleted right after it was written; a process prunes the repository, such as 'git gc --prune=now'", ask[i])
		}
	}
	return nil
}

// PackReachable packs the objects that are reachable from commit and not from known. A concurrent gc deletes loose
// objects, and packs that existed when it computed reachability: a pack that is made after the ref is safe from every
// gc that began before it, however long that takes.
func (r *Repo) PackReachable(ctx context.Context, commit, known string) (err error) {
	p := RunOptions{Stdin: commit + "\n--not\n" + known + "\n", Config: []string{"-c", "core.attributesFile=/dev/null"}}
	args := []string{"pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0"}
	objects := filepath.Join(r.CommonDir, "objects")
	if _, partial := r.Config.Last("extensions.partialclone"); partial { // objects that a remote has may be missing
		args = append(args, "--exclude-promisor-objects")
	} else {
		// Git reads the delta attribute, and an attributes file of the repository may be a pipe, on which it would
		// block.
		m, err := r.NewMirror(commit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		p.GitDir, p.Env = m.Dir, []string{"GIT_OBJECT_DIRECTORY=" + objects}
	}
	_, err = r.RunWrite(ctx, p, append(args, filepath.Join(objects, "pack", "pack"))...)
	return err
}

// Object is the object that a name given to Lookup resolves to.
type Object struct {
	OID  string
	Type string // commit, tree, blob or tag
}

// Missing reports that the name resolves to no object.
func (o Object) Missing() bool { return o.OID == "" }

// Lookup resolves any number of names (refs, "<rev>^{commit}", "<rev>:<path>") in one process.
func (r *Repo) Lookup(ctx context.Context, names ...string) ([]Object, error) {
	if found, answered, err := r.lookups.lookup(ctx, r, names); answered {
		return found, err
	}
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Lookup(names...)
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
	p := RunOptions{}
	for _, o := range objects {
		if o.Type == "commit" {
			p.Stdin += o.OID + "\n"
		}
	}
	if p.Stdin == "" {
		return nil, nil
	}
	out, err := r.RunRead(ctx, p, "rev-list", "--no-walk", "--timestamp", "--stdin")
	if err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	for line := range strings.Lines(string(out)) {
		seconds, oid, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || !object.IsOID(oid) {
			return nil, fmt.Errorf("git rev-list answered %q", line)
		}
		times[oid] = time.Unix(n, 0)
	}
	return times, nil
}

// ResolveCommit resolves a commit-ish in the caller's worktree, so that HEAD and @{u} have their meaning there, and
// returns the branch that it names, if any. ok is false when there is no such commit.
func (r *Repo) ResolveCommit(ctx context.Context, commitish string) (oid, branch string, ok bool, err error) {
	here := RunOptions{GitDir: r.GitDir}
	name := proc.Async(func() ([]byte, error) {
		return r.RunRead(ctx, here, "rev-parse", "--symbolic-full-name", "--end-of-options", commitish)
	})
	out, err := r.RunRead(ctx, here, "rev-parse", "--verify", "--quiet", "--end-of-options", commitish)
	full, nameErr := name()
	if ExitedWith(err, 1, 128) || err == nil && !object.IsOID(strings.TrimSpace(string(out))) {
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
	head, _ := ReadHead(r.GitDir) // an unreadable HEAD names no branch
	return strings.TrimPrefix(head.Branch, "refs/heads/")
}

// lastLine returns the last line of rev-parse, which in some versions repeats --end-of-options before its answer.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// IsAncestor reports whether a is b or an ancestor of b. It is false when one of them is empty.
func (r *Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if a == "" || b == "" {
		return false, nil
	}
	if a == b {
		return true, nil
	}
	_, err := r.RunRead(ctx, RunOptions{}, "merge-base", "--is-ancestor", a, b)
	if ExitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// TreeChange is a path that differs between two trees.
type TreeChange struct {
	Status           byte // A, D, M, or T for a change of type
	OldMode, NewMode string
	OldOID, NewOID   string
	Path             string
}

// TreeChanges lists the paths that differ between two trees, within r.ReadLimits: git reads a subtree as often as it occurs.
func (r *Repo) TreeChanges(ctx context.Context, p RunOptions, from, to string) ([]TreeChange, error) {
	p.Reading = r.ReadingOf(fmt.Sprintf("comparing the trees %.12s and %.12s", from, to))
	p.Env = append(slices.Clone(p.Env), "GIT_NO_REPLACE_OBJECTS=1")
	out, err := r.RunRead(ctx, p, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", from, to)
	if err != nil {
		return nil, err
	}
	var changes []TreeChange
	parts := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		fields := strings.Fields(strings.TrimPrefix(parts[i], ":")) // "<mode> <mode> <oid> <oid> <status>"
		if len(fields) != 5 {
			return nil, fmt.Errorf("git diff-tree answered %q", parts[i])
		}
		changes = append(changes, TreeChange{Status: fields[4][0], OldMode: fields[0], NewMode: fields[1], OldOID: fields[2], NewOID: fields[3], Path: parts[i+1]})
	}
	return changes, nil
}

// ObjectID is a binary object name of fixed size, so that a million of them take little memory.
type ObjectID [sha256.Size]byte

func ParseObjectID(oid string) (id ObjectID, ok bool) {
	if !object.IsOID(oid) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(oid))
	return id, err == nil
}

// PartialCloneObjects lists the objects that a partial clone has; its remote has promised to have the others. Of any other
// repository it is nil.
func (r *Repo) PartialCloneObjects(ctx context.Context) (map[ObjectID]struct{}, error) {
	_, err := r.RunRead(ctx, RunOptions{}, "config", "--get-regexp", `^(remote\..*\.promisor|extensions\.partialclone)$`)
	if ExitedWith(err, 1) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := r.RunRead(ctx, RunOptions{}, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
	if err != nil {
		return nil, err
	}
	here := map[ObjectID]struct{}{}
	for line := range bytes.Lines(out) {
		if id, ok := ParseObjectID(string(bytes.TrimSuffix(line, []byte("\n")))); ok {
			here[id] = struct{}{}
		}
	}
	return here, nil
}

// ShallowCommits lists the commits at which the history of a shallow repository ends: their parents are not here.
func (r *Repo) ShallowCommits() (map[string]bool, error) {
	data, err := durable.ReadFile(filepath.Join(r.CommonDir, "shallow"), 1<<26)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	cut := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		cut[strings.TrimSpace(line)] = true
	}
	return cut, err
}

// ObjectFormat returns the hash function of the repository's objects.
func (r *Repo) ObjectFormat() object.Format {
	if r.Config.Value(config.ObjectFormatKey) == string(object.SHA256) {
		return object.SHA256
	}
	return object.SHA1
}
