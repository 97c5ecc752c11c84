package repair

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// MissingHeadError reports a HEAD that points at no existing commit, in a worktree whose branch does not either: a
// file was damaged, or objects were deleted.
type MissingHeadError struct {
	Ref string // full ref; empty where HEAD is detached
	OID string // object that HEAD or the ref names; empty when it cannot be read
}

func (e *MissingHeadError) Error() string {
	who := "HEAD"
	if e.Ref != "" {
		who = strings.TrimPrefix(e.Ref, "refs/heads/") + ", which is checked out,"
	}
	if e.OID == "" {
		return who + " does not point to a commit: it cannot be read"
	}
	return fmt.Sprintf("%s does not point to a commit: object %.12s does not exist", who, e.OID)
}

// CheckHead returns a *MissingHeadError for a worktree whose HEAD and branch point at no existing commit. known is
// the commit that was determined for HEAD, which is an older one if HEAD is missing. A missing HEAD alone is fine,
// because the branch still has the work.
func CheckHead(ctx context.Context, r *git.Repo, s git.WorktreeSpec, known string) error {
	return CheckHeadWith(r, s, known, func(names ...string) ([]git.Object, error) { return r.Lookup(ctx, names...) })
}

// CheckHeadWith is CheckHead with a given lookup function, for callers that have a running cat-file.
func CheckHeadWith(r *git.Repo, s git.WorktreeSpec, known string, lookup func(names ...string) ([]git.Object, error)) error {
	if at, ok := r.HeadFromFiles(s); ok && at == known || s.IndexCache != "" {
		return nil
	}
	name, err := r.HeadRefOrCommit(s)
	if err != nil {
		return err
	}
	found, err := lookup(name+"^{commit}", s.Branch+"^{commit}")
	if err != nil || !found[0].Missing() || !found[1].Missing() {
		return err
	}
	if object.IsOID(name) {
		return &MissingHeadError{OID: name}
	}
	at, _ := r.ReadRefFile(name)
	if fi, err := os.Lstat(r.RefPath(name)); at == "" && (err != nil || fi.IsDir()) {
		return nil // an unborn branch
	}
	return &MissingHeadError{Ref: name, OID: at}
}

// DeleteBrokenRef deletes a ref that only git-agency uses and that points at no existing object, as a crash or a lost
// object leaves it. Every "git gc" would fail on it.
func DeleteBrokenRef(ctx context.Context, r *git.Repo, ref string) error {
	found, err := r.Lookup(ctx, ref)
	if err != nil || !found[0].Missing() {
		return err
	}
	data, err := git.ReadSmallFile(r.CommonDir, ref)
	if err == nil && !object.IsOID(strings.TrimSpace(string(data))) && !strings.HasPrefix(string(data), "ref:") {
		return durable.RemoveIfExists(r.RefPath(ref)) // invalid content: git does not take it for a ref, and does not delete it
	}
	if listed, err := r.Tip(ctx, ref); err != nil || listed == "" {
		return err
	}
	_, err = r.RunWrite(ctx, git.RunOptions{}, "update-ref", "--no-deref", "-d", ref)
	return r.WithPackedRefsLock(err)
}

// RestoreRef makes a ref that does not exist, or points at no existing commit, point at oid.
func RestoreRef(ctx context.Context, r *git.Repo, ref, oid, reason string) error {
	found, err := r.Lookup(ctx, ref+"^{commit}")
	if err != nil {
		return err
	}
	at, ok := r.ReadRefFile(ref)
	fi, statErr := os.Lstat(r.RefPath(ref))
	if !ok && found[0].Missing() && statErr == nil && fi.Mode().IsRegular() { // git does not overwrite a ref file that it cannot parse
		if err := durable.Remove(r.RefPath(ref)); err != nil {
			return err
		}
		at, _ = r.ReadRefFile(ref)
	}
	if at == "" || !found[0].Missing() {
		return r.CreateRef(ctx, ref, oid, reason)
	}
	return r.MoveRef(ctx, ref, oid, at, reason)
}
