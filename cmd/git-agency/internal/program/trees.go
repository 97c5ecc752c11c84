package program

import (
	"errors"
	"fmt"
	"os"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/background"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/gitagency"
)

// RemoveInBackground starts another process to remove what is left of sandboxes that have ended: it runs the command that
// ended them on the same ids again, which removes their trees. ids are all that have ended, deferred those with a tree, and
// dir is the caller's directory.
func (p *Program) RemoveInBackground(repo *gitagency.Repository, dir, command string, ids, deferred []string, cleanupLock *os.File) {
	if p.HintRemovedDir(repo, dir, ids) {
		dir = repo.CommonDir
	}
	if len(deferred) == 0 {
		return
	}
	defer cleanupLock.Close() // from now on only that process holds it
	again := append([]string{p.Args[0], command}, deferred...)
	if err := background.Start(again, dir, p.Options.Env, cleanupLock); err != nil {
		p.Warn("remains of the ended sandboxes stay until 'git agency prune': " + err.Error())
	}
}

// WarnRemovedTrees names the adopted worktrees whose trees do not exist any more, and says what to type. concerns limits it
// to some ids of worktrees.
func (p *Program) WarnRemovedTrees(repo *gitagency.Repository, concerns func(id string) bool) error {
	worktrees, err := repo.Worktrees(true)
	if err != nil {
		return err
	}
	for _, w := range worktrees {
		var broken *gitagency.BrokenError
		if !errors.As(w.Err(), &broken) || broken.RemovedTree == "" || !concerns(w.ID) {
			continue
		}
		if broken.MovedTo != "" {
			p.Warn(fmt.Sprintf("worktree %s was moved: its record names %s", w.Name, broken.RemovedTree))
		} else {
			p.Warn(fmt.Sprintf("worktree %s does not exist any more: %s is gone", w.Name, broken.RemovedTree))
		}
		for _, line := range hints.For(broken, hints.Retry{}) {
			p.PrintHint(line)
		}
	}
	return nil
}
