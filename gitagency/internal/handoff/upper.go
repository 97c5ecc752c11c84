package handoff

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// CreateUpperDirs creates the overlay upper and work directories of the plan, with the permissions of the directories
// they cover.
func CreateUpperDirs(ctx context.Context, r *core.Repository, id string, p walls.Plan) error {
	for _, l := range p.Overlays {
		if _, err := os.Lstat(l.Work); err == nil {
			continue
		}
		fi, err := os.Stat(l.Path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(l.Upper), 0o700); err != nil {
			return err
		}
		fresh, err := os.MkdirTemp(filepath.Dir(l.Upper), "new-*")
		if err != nil {
			return err
		}
		err = os.Chmod(fresh, fi.Mode().Perm()|0o700)
		if err == nil && l.Path == r.CommonDir {
			if err = BorrowLinkedObjects(r, fresh); err == nil {
				err = copyWorktreeEntry(ctx, r, id, fresh)
			}
		}
		if err == nil {
			err = os.Rename(fresh, l.Upper)
			if err == nil && l.Path == r.CommonDir {
				err = removeCopiedModules(r, id, l.Upper)
			}
		}
		if err != nil {
			err = errors.Join(ignoreExist(err), durable.RemoveTree(fresh)) // another process created it
		}
		if err == nil {
			err = ignoreExist(os.Mkdir(l.Work, 0o700)) // its existence says that both directories are complete
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func ignoreExist(err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// copyWorktreeEntry copies git's worktree entry of the sandbox into a new upper directory and marks it opaque, which
// hides the original. Otherwise lock files that git takes on the host, during an import or git status, would be
// visible in the sandbox, and might stay visible after they are gone: overlayfs does not expect its lower directory
// to change.
func copyWorktreeEntry(ctx context.Context, r *core.Repository, id, upper string) error {
	e := NewOf(r, id, upper)
	admin := r.Git.AdminDir(id)
	if copyable, err := submodule.AllBorrow(filepath.Join(admin, "modules")); err != nil || !copyable {
		return err // the user has cloned submodules there, which may be large; the overlay shows them
	}
	state := AgreedState{RealHead: e.realHead(), RealFingerprint: e.fingerprintReal()}
	found, err := r.Git.Lookup(ctx, core.SandboxRef(id), cmp.Or(state.RealHead, "HEAD")+"^{commit}")
	if err != nil {
		return err
	}
	state.BranchTip, state.SandboxHead = found[0].OID, found[1].OID
	if state.BranchTip == "" || state.SandboxHead == "" {
		return nil
	}
	// Copy the branch too: otherwise it would move in the sandbox when the user moves it on the host, but the index
	// would not.
	ref := filepath.Join(upper, core.SandboxRef(id))
	if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(ref, []byte(state.BranchTip+"\n"), 0o644); err != nil {
		return err
	}
	entry := filepath.Join(upper, "worktrees", id)
	if err := os.MkdirAll(entry, 0o755); err != nil {
		return err
	}
	if err := unix.Setxattr(entry, "user.overlay.opaque", []byte("y"), 0); err != nil {
		return os.NewSyscallError("setxattr", err)
	}
	if err := copyRegularFiles(admin, entry); err != nil {
		return err
	}
	if admin == r.Git.UnlistedAdminDir(id) { // it is elsewhere
		if err := os.WriteFile(filepath.Join(entry, "commondir"), []byte("../..\n"), 0o644); err != nil {
			return err
		}
	}
	if data, err := os.ReadFile(filepath.Join(entry, "index")); err == nil {
		if x, err := index.Read(data, object.FormatOf(state.BranchTip)); err == nil {
			state.IndexFingerprint, state.RealFingerprint = e.skipNestedRepositories(ctx, x, state.BranchTip, state.RealFingerprint)
		}
	}
	if state.UpperFingerprint, err = e.FingerprintUpper(); err != nil {
		return err
	}
	return e.saveState(state)
}

// removeCopiedModules removes the repositories of submodules from git's entry of a sandbox, after they were copied to a new
// upper directory: from then on the copies count, and git on the host must not find older ones.
func removeCopiedModules(r *core.Repository, id, upper string) error {
	if _, err := os.Lstat(filepath.Join(upper, overlay.EntryIn(upper, id), "modules")); err != nil {
		return nil // nothing was copied
	}
	return durable.RemoveTree(filepath.Join(r.Git.AdminDir(id), "modules"))
}

// HideModules moves the repositories of submodules from git's entry of a sandbox to its upper directory, which exists, beside
// those that are there. The directories that both have are no symbolic links.
func HideModules(r *core.Repository, id string) error {
	upper := UpperDir(r, id)
	modules := filepath.Join(upper, overlay.EntryIn(upper, id), "modules")
	if err := ignoreExist(os.Mkdir(modules, 0o777)); err != nil {
		return err
	}
	if err := copyRegularFiles(filepath.Join(r.Git.AdminDir(id), "modules"), modules); err != nil {
		return err
	}
	return removeCopiedModules(r, id, upper)
}

// copyRegularFiles copies regular files and their directories and preserves mtimes. It skips lock files.
func copyRegularFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		fi, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist) || filepath.Ext(e.Name()) == ".lock":
			continue
		case err != nil:
			return err
		case e.IsDir():
			if err := ignoreExist(os.Mkdir(target, fi.Mode().Perm()|0o700)); err != nil {
				return err
			}
			if err := copyRegularFiles(source, target); err != nil {
				return err
			}
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(source)
			if err == nil {
				err = os.WriteFile(target, data, fi.Mode().Perm()|0o600)
			}
			if err == nil {
				err = os.Chtimes(target, fi.ModTime(), fi.ModTime())
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// RecordRestored saves that both sides agree, after a restore wrote the same state to both.
func (e *Exchange) RecordRestored(ctx context.Context) error {
	if overlay.OpaqueEntry(e.upper, e.id) == "" {
		return durable.Remove(e.statePath()) // the overlay shows the real files, as in a new sandbox
	}
	state := AgreedState{RealHead: e.realHead(), RealFingerprint: e.fingerprintReal()}
	found, err := e.repo.Git.Lookup(ctx, core.SandboxRef(e.id), cmp.Or(state.RealHead, "HEAD")+"^{commit}")
	if err != nil {
		return err
	}
	state.BranchTip, state.SandboxHead = found[0].OID, found[1].OID
	data, err := os.ReadFile(filepath.Join(e.repo.Git.AdminDir(e.id), "index"))
	if err != nil {
		return err
	}
	if x, err := index.Read(data, object.FormatOf(state.BranchTip)); err == nil {
		state.IndexFingerprint, state.RealFingerprint = e.skipNestedRepositories(ctx, x, state.BranchTip, state.RealFingerprint)
	}
	if state.UpperFingerprint, err = e.FingerprintUpper(); err != nil {
		return err
	}
	return e.saveState(state)
}
