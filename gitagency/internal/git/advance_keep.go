package git

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
)

// What refs are about to lead to, nothing leads to yet: a git that tidies up at once, as "gc --prune=now" does, may have
// looked for what is needed before, and takes it away. Objects that lie by themselves go then, and so do packs that were
// there when it looked. What does not go is a pack with a file beside it that says to keep it, as there is while a push
// comes in; and one that came when the refs had moved.
//
// So a pack of all that is new is kept while the refs move, if somebody tidies up then; and when they have moved, it is
// looked whether what we wrote is still there. To make a pack every time would be too slow, and too many of them.

// tidying reports whether a gc is at work, on this machine or another, as git tells that itself.
func (r *Repo) tidying() bool {
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

// hold puts all that the refs are to lead to into a pack that nobody takes away, if somebody might.
func (x *Advancing) hold(ctx context.Context) error {
	if x.a.by == nil || !x.a.by.Captured && !x.repo.tidying() {
		return nil
	}
	x.held = true
	if err := x.a.by.pack(ctx, x.a.Old, x.a.leads(), x.a.keeper()); err != nil {
		return err
	}
	return x.at("held")
}

// leads are the commits that the refs are to lead to.
func (a Advance) leads() []string {
	var commits []string
	for _, m := range a.moves() {
		if !isNowhere(m.New) && m.New != m.Old {
			commits = append(commits, m.New)
		}
	}
	return commits
}

// keeper is what the file says that keeps a pack.
func (a Advance) keeper() string { return "git-agency landing " + a.New }

// stillThere looks, when the refs have moved, whether all that they lead to could get lost before, or has been: then it is
// put into a pack, from what the merger has itself. That pack is safe from all who began to tidy up before it.
func (x *Advancing) stillThere(ctx context.Context) error {
	if x.a.by == nil || x.held {
		return nil
	}
	if !x.repo.tidying() && !x.a.by.lost() {
		return nil
	}
	return x.a.by.pack(ctx, x.a.Old, x.a.leads(), "")
}

// letGo takes away the files that keep packs for an Advance.
func (r *Repo) letGo(a Advance) error {
	dir := filepath.Join(r.CommonDir, "objects", "pack")
	entries, err := os.ReadDir(dir)
	if err != nil && !nothingThere(err) {
		return err
	}
	err = nil
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".keep" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if data, readErr := durable.ReadFile(path, 1<<10); readErr == nil && strings.TrimSpace(string(data)) == a.keeper() {
			err = errors.Join(err, removeIfThere(path))
		}
	}
	return err
}
