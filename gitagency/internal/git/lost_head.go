package git

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// LostHeadError is a HEAD that leads to no commit that is there, in a worktree whose branch does not either: a file was
// damaged, or objects were taken away.
type LostHeadError struct {
	Name string // a full ref; empty where HEAD names a commit itself
	OID  string // where that is; empty when it cannot be read
}

func (e *LostHeadError) Error() string {
	who := "HEAD"
	if e.Name != "" {
		who = strings.TrimPrefix(e.Name, "refs/heads/") + ", which is checked out,"
	}
	if e.OID == "" {
		return who + " leads to no commit: it cannot be read"
	}
	return fmt.Sprintf("%s leads to no commit: it is at %.12s, which is not there", who, e.OID)
}

// LostHead refuses a worktree whose HEAD leads nowhere with a *LostHeadError. known is where HEAD was found to be, which
// then is where it was once. Where only HEAD is lost, what the branch holds is still known to be work.
func (r *Repo) LostHead(ctx context.Context, s Subject, known string) error {
	return r.lostHead(s, known, func(names ...string) ([]Object, error) { return r.Lookup(ctx, names...) })
}

// lostHead is LostHead for who has a git at hand that can be asked.
func (r *Repo) lostHead(s Subject, known string, lookup func(names ...string) ([]Object, error)) error {
	if at, ok := r.HeadAtOnce(s); ok && at == known || s.Memory != "" {
		return nil
	}
	name, err := r.headName(s)
	if err != nil {
		return err
	}
	found, err := lookup(name+"^{commit}", s.Branch+"^{commit}")
	if err != nil || !found[0].Missing() || !found[1].Missing() {
		return err
	}
	if isOID(name) {
		return &LostHeadError{OID: name}
	}
	at, _ := r.tipAtOnce(name)
	if fi, err := os.Lstat(r.RefPath(name)); at == "" && (err != nil || fi.IsDir()) {
		return nil // a branch without a commit, as git has them too
	}
	return &LostHeadError{Name: name, OID: at}
}

// RestoreRef makes a ref that is not there, or leads to no commit that is, lead to one.
func (r *Repo) RestoreRef(ctx context.Context, ref, oid, reason string) error {
	found, err := r.Lookup(ctx, ref+"^{commit}")
	if err != nil {
		return err
	}
	at, ok := r.tipAtOnce(ref)
	fi, statErr := os.Lstat(r.RefPath(ref))
	if !ok && found[0].Missing() && statErr == nil && fi.Mode().IsRegular() { // git does not write over what it cannot read
		if err := durable.Remove(r.RefPath(ref)); err != nil {
			return err
		}
		at, _ = r.tipAtOnce(ref)
	}
	if at == "" || !found[0].Missing() {
		return r.CreateRef(ctx, ref, oid, reason)
	}
	return r.MoveRef(ctx, ref, oid, at, reason)
}
