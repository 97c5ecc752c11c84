package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Before the refs move, no ref reaches the new objects: a concurrent "git gc --prune=now" that has already computed which
// objects are reachable deletes them. It deletes loose objects, and packs that existed when it looked. It does not delete a
// pack with a .keep file, which git itself uses while it receives a push, nor a pack that came after the refs had moved.
//
// So while a gc runs, the new objects are put into a pack with a .keep file until the refs have moved; and after that we
// check whether all that we wrote still exists. A pack for every update would be slow, and leave too many packs.

// isGCRunning reports whether a gc is running, on this machine or another, by gc.pid and the same rules as git: a file
// older than 12 hours does not count.
func isGCRunning(r *git.Repo) bool {
	const longest = 12 * time.Hour
	path := filepath.Join(r.CommonDir, "gc.pid")
	fi, err := os.Lstat(path)
	if err != nil || time.Since(fi.ModTime()) > longest {
		return false
	}
	data, err := durable.ReadFile(path, 1<<10)
	var pid int
	var host string
	if n, _ := fmt.Sscan(string(data), &pid, &host); err != nil || n != 2 || pid <= 0 {
		return true
	}
	here, err := os.Hostname()
	return err != nil || host != here || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// keepNewObjects puts all objects that the moved refs will reach into a pack with a .keep file, if a gc is running or the
// merger uses unreferenced objects.
func (tx *Transaction) keepNewObjects(ctx context.Context) error {
	if tx.spec.merger == nil || !tx.spec.merger.UsesUnreferenced && !isGCRunning(tx.repo) {
		return nil
	}
	tx.keptInPack = true
	if err := tx.spec.merger.PackCommits(ctx, tx.spec.Old, tx.spec.newTips(), tx.spec.keepReason()); err != nil {
		return err
	}
	return tx.injectFault("held")
}

// newTips returns the commits that refs will move to.
func (u Update) newTips() []string {
	var commits []string
	for _, m := range u.refMoves() {
		if !git.IsZeroOID(m.New) && m.New != m.Old {
			commits = append(commits, m.New)
		}
	}
	return commits
}

// keepReason is the content of the .keep file, by which removeKeepFiles finds it.
func (u Update) keepReason() string { return "git-agency landing " + u.New }

// restoreLostObjects checks, after the refs have moved, whether a gc deletes or has deleted the new objects: then it packs
// them again from the merger's own copies. A gc that began before that pack came does not delete it.
func (tx *Transaction) restoreLostObjects(ctx context.Context) error {
	if tx.spec.merger == nil || tx.keptInPack {
		return nil
	}
	if !isGCRunning(tx.repo) && !tx.spec.merger.HasLostObjects() {
		return nil
	}
	return tx.spec.merger.PackCommits(ctx, tx.spec.Old, tx.spec.newTips(), "")
}

// removeKeepFiles removes the .keep files of an update.
func removeKeepFiles(r *git.Repo, u Update) error {
	dir := filepath.Join(r.CommonDir, "objects", "pack")
	entries, err := os.ReadDir(dir)
	if err != nil && !git.IsNotExist(err) {
		return err
	}
	err = nil
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".keep" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if data, readErr := durable.ReadFile(path, 1<<10); readErr == nil && strings.TrimSpace(string(data)) == u.keepReason() {
			err = errors.Join(err, durable.RemoveIfExists(path))
		}
	}
	return err
}
