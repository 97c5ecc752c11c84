package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// SymrefTarget returns the ref that a symbolic ref points to; empty when the ref is not symbolic.
func (r *Repo) SymrefTarget(ctx context.Context, ref string) (string, error) {
	if r.ReadLooseRef(ref) != "" {
		return "", nil
	}
	out, err := r.RunRead(ctx, RunOptions{}, "symbolic-ref", "--quiet", ref)
	if ExitedWith(err, 1) {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// IsZeroOID reports whether an object id is empty or all zeros: no object.
func IsZeroOID(oid string) bool { return strings.Trim(oid, "0") == "" }

// RefIsAt reports whether a ref's value (empty: the ref does not exist) is oid (zeros: the ref must not exist).
func RefIsAt(now, oid string) bool { return now == oid || now == "" && IsZeroOID(oid) }

// RefMovedError reports a ref that is not at the expected object. Nothing has changed.
type RefMovedError struct {
	Ref, Want, Have string // object ids; empty: the ref does not exist
}

func (e *RefMovedError) Error() string {
	return fmt.Sprintf("%s is at %s and not at %s", e.Ref, cmp.Or(e.Have, "nothing"), cmp.Or(e.Want, "nothing"))
}

// SymrefError reports a symbolic ref. It is ambiguous whether to move the ref or its target.
type SymrefError struct{ Ref, Target string }

func (e *SymrefError) Error() string {
	return fmt.Sprintf("%s is a symbolic ref to %s", e.Ref, e.Target)
}

// AppendHeadReflog appends an entry to the HEAD reflog of a linked worktree, as a git in that worktree would. The
// caller holds the repository lock.
func (r *Repo) AppendHeadReflog(name, from, to string, who object.Identity, at time.Time, why string) error {
	path := filepath.Join(r.AdminDir(name), "logs", "HEAD")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %s <%s> %d +0000\t%s\n", from, to, who.Name, who.Email, at.Unix(), why)
	return errors.Join(err, f.Close())
}

// Refs returns the refs below the given prefixes, or all refs, and the object each points at.
func (r *Repo) Refs(ctx context.Context, prefixes ...string) (map[string]string, error) {
	if len(prefixes) == 0 {
		prefixes = []string{"refs/"}
	}
	if refs, ok := r.readRefFiles(prefixes); ok {
		return refs, nil
	}
	out, err := r.RunRead(ctx, RunOptions{}, slices.Concat([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, prefixes)...)
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		oid, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || !object.IsOID(oid) {
			return nil, fmt.Errorf("git for-each-ref answered %q", line)
		}
		refs[ref] = oid
	}
	return refs, nil
}

// RefsContaining returns the refs below the given prefixes from which a commit is reachable.
func (r *Repo) RefsContaining(ctx context.Context, commit string, prefixes ...string) ([]string, error) {
	out, err := r.RunRead(ctx, RunOptions{}, slices.Concat([]string{"for-each-ref", "--format=%(refname)", "--contains=" + commit}, prefixes)...)
	return strings.Fields(string(out)), err // names of refs contain no white space
}

// CreateRef creates a ref that must not exist yet. A git that runs out of space leaves the reflog that it has created for
// the ref, and CreateRef removes it.
func (r *Repo) CreateRef(ctx context.Context, ref, oid, reason string) error {
	_, before := os.Lstat(r.ReflogPath(ref))
	err := r.MoveRef(ctx, ref, oid, strings.Repeat("0", len(oid)), reason)
	if _, locked := os.Lstat(r.RefPath(ref) + ".lock"); ChangedNothing(err) && before != nil && locked != nil {
		err = errors.Join(err, r.removeOrphanReflog(context.WithoutCancel(ctx), ref))
	}
	return err
}

// MoveRef moves a ref from old to oid, or fails if it is not at old. An old of zeros means that the ref must not
// exist.
func (r *Repo) MoveRef(ctx context.Context, ref, oid, old, reason string) error {
	_, err := r.RunWrite(ctx, RunOptions{}, "update-ref", "--no-deref", "--create-reflog", "-m", reason, ref, oid, old)
	return err
}

// DeleteRef deletes a ref if it is at old. A ref that does not exist is fine.
func (r *Repo) DeleteRef(ctx context.Context, ref, old string) error {
	if there, err := r.refExists(ctx, ref); err != nil || !there {
		return err
	}
	_, err := r.RunWrite(ctx, RunOptions{}, "update-ref", "--no-deref", "-d", ref, old)
	return r.WithPackedRefsLock(err)
}

// DeleteOwnedRef deletes a ref that only git-agency uses, if it is at old, and the leftovers of a killed git.
func (r *Repo) DeleteOwnedRef(ctx context.Context, ref, old string) error {
	// A stale lock would keep git from deleting the ref; an orphan reflog from creating it again.
	if err := r.RemoveRefLeftovers(ctx, ref); err != nil {
		return err
	}
	if err := r.DeleteRef(ctx, ref, old); err != nil {
		return err
	}
	return r.RemoveRefLeftovers(ctx, ref)
}

// RemoveRefLeftovers removes the leftovers of a killed git for a ref that only git-agency uses: a stale lock file,
// and the reflog of a ref that was never created. The caller must know that no git works on the ref any more.
func (r *Repo) RemoveRefLeftovers(ctx context.Context, ref string) error {
	if err := os.Remove(r.RefPath(ref) + ".lock"); err != nil && !IsNotExist(err) {
		return err
	}
	return r.removeOrphanReflog(ctx, ref)
}

// removeOrphanReflog removes the reflog of a ref that does not exist, and the directories that git created for both,
// unless they have other entries. Git does the same and copes with losing the race.
func (r *Repo) removeOrphanReflog(ctx context.Context, ref string) error {
	log := r.ReflogPath(ref)
	if _, err := os.Lstat(log); !IsNotExist(err) {
		if there, err := r.refExists(ctx, ref); err != nil || there {
			return err
		}
		if err := os.Remove(log); err != nil && !IsNotExist(err) {
			return err
		}
	}
	for _, dir := range []string{filepath.Dir(r.RefPath(ref)), filepath.Dir(log)} {
		for base := filepath.Base(dir); base != "heads" && base != "refs"; base = filepath.Base(dir) {
			if err := syscall.Rmdir(dir); err != nil && !IsNotExist(err) { // git may have removed it
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return nil
}

// DeleteOwnedRefs is DeleteOwnedRef for all refs below a prefix that only git-agency uses, in one git. refs maps the
// existing refs to the objects they must be at.
func (r *Repo) DeleteOwnedRefs(ctx context.Context, prefix string, refs map[string]string) error {
	all := RunOptions{}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if err := os.Remove(r.RefPath(ref) + ".lock"); err != nil && !IsNotExist(err) {
			return err
		}
		all.Stdin += fmt.Sprintf("option no-deref\x00delete %s\x00%s\x00", ref, refs[ref])
	}
	if all.Stdin != "" {
		if _, err := r.RunWrite(ctx, all, "update-ref", "-z", "--stdin"); err != nil {
			return r.WithPackedRefsLock(err)
		}
	}
	scraps, err := r.RefLeftovers(prefix, nil)
	if err != nil {
		return err
	}
	for ref := range scraps {
		if err := r.RemoveRefLeftovers(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// RefLeftovers maps the refs below a prefix that do not exist to the lock file or reflog that a killed git left of
// them; refs are those that exist.
func (r *Repo) RefLeftovers(prefix string, refs map[string]string) (map[string]string, error) {
	scraps := map[string]string{}
	for root, suffix := range map[string]string{
		r.RefPath(prefix):    ".lock",
		r.ReflogPath(prefix): "",
	} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil && IsNotExist(err) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			name, is := strings.CutSuffix(strings.TrimPrefix(path, root+"/"), suffix)
			ref := prefix + filepath.ToSlash(name)
			_, there := refs[ref]
			if _, err := os.Lstat(r.RefPath(ref)); err == nil {
				there = true // a broken ref, which git does not list
			}
			if is && !there {
				scraps[ref] = path
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return scraps, nil
}

// SyncRef fsyncs the directory of a ref; git syncs the content of the ref only. A ref that is packed, or not stored
// as a file, needs nothing.
func (r *Repo) SyncRef(ref string) error {
	dir := filepath.Dir(r.RefPath(ref))
	if _, err := os.Lstat(dir); err != nil {
		return nil
	}
	return durable.SyncDir(dir)
}

// RefPath returns the path of a ref's file when it is loose.
func (r *Repo) RefPath(ref string) string {
	return filepath.Join(r.CommonDir, filepath.FromSlash(ref))
}

// refExists also sees a broken ref, which Lookup does not.
func (r *Repo) refExists(ctx context.Context, ref string) (bool, error) {
	found, err := r.Lookup(ctx, ref)
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(r.RefPath(ref))
	return !found[0].Missing() || err == nil, nil
}

// IsNotExist reports whether a path does not exist, also because one of its parents is a file.
func IsNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Tip returns the object that a ref points at; empty when the ref does not exist. It takes no lock: a caller that
// moves the ref passes the result as the old value, so that git refuses if it has changed.
func (r *Repo) Tip(ctx context.Context, ref string) (string, error) {
	if oid, ok := r.ReadRefFile(ref); ok {
		return oid, nil
	}
	found, err := r.Lookup(ctx, ref)
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
}

// ReadLooseRef reads a loose ref that is not symbolic, as git would. It returns "" where git has to be asked.
func (r *Repo) ReadLooseRef(ref string) string {
	return readLooseRef(unix.AT_FDCWD, filepath.Join(r.CommonDir, ref), ref)
}

// readLooseRef reads the file of a loose ref, whose path is relative to an open directory.
func readLooseRef(dir int, path, ref string) string {
	if !object.IsValidRef(ref) {
		return ""
	}
	data, err := durable.ReadFileIn(dir, path, 1<<10) // follows no symlink, which is a symbolic ref too
	if oid := strings.TrimSuffix(string(data), "\n"); err == nil && object.IsOID(oid) {
		return oid
	}
	return ""
}

// ReflogPath returns the path of the reflog of a ref.
func (r *Repo) ReflogPath(ref string) string {
	return filepath.Join(r.CommonDir, "logs", filepath.FromSlash(ref))
}

// DetachedHead stands for the branch of a HEAD that names none: in snapshot.State.HeadRef and status.Report.Branch.
const DetachedHead = "detached"
