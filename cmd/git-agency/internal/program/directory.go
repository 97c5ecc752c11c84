package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// CurrentDir returns the caller's directory, which a command may remove.
func (p *Program) CurrentDir() (string, error) {
	if p.Options.Dir != "" {
		return p.Options.Dir, nil
	}
	return gitagency.CurrentDir()
}

// HintRemovedDir reports whether the caller's directory was removed with the sandbox of one of these invocations, which
// have ended, and then prints which directory to change to.
func (p *Program) HintRemovedDir(repo *gitagency.Repository, dir string, ids []string) bool {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return false
	}
	p.PrintHint("the current directory was removed; type: cd " + quote.Shell(integrationTree(repo, dir, ids)))
	return true
}

// integrationTree returns the integration tree of the invocation whose sandbox contained dir; the main worktree, or the
// directory of a bare repository, if there is no such tree.
func integrationTree(repo *gitagency.Repository, dir string, ids []string) string {
	elements := strings.Split(dir, string(os.PathSeparator)) // one of them is the id
	for _, id := range ids {
		if !slices.Contains(elements, id) {
			continue
		}
		inv, err := repo.Invocation(id)
		if err != nil {
			break
		}
		wt, err := repo.Worktree(inv.WorktreeID)
		if err != nil {
			break
		}
		if info, err := os.Stat(wt.TreePath); err == nil && info.IsDir() {
			return wt.TreePath
		}
	}
	if top := filepath.Dir(repo.CommonDir); filepath.Base(repo.CommonDir) == ".git" {
		return top
	}
	return repo.CommonDir
}
