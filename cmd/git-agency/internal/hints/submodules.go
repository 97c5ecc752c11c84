package hints

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// submoduleHints returns the command by which the user gets the commit of a submodule that cannot land.
func submoduleHints(e *gitagency.StateError, retry Retry) []string {
	again := ", then land again: "
	if retry.runs("worktree") {
		again = ", then finish again: "
	}
	tree := ""
	if len(e.Others) > 0 {
		tree = e.Others[0]
	}
	// Git needs a worktree: that of the submodule need not exist.
	inside := "git --git-dir=" + quote.Shell(e.Other) + " --work-tree=. "
	switch e.Reason {
	case reason.SubmoduleKept:
		return []string{
			"look at it: " + inside + "log -p --not --branches --tags --remotes --not " + e.Commit,
			"give it a branch, which you can push" + again + inside + "branch agency-" + e.ID + " " + e.Commit,
		}
	case reason.SubmoduleGone:
		return []string{"if the remote has it, fetch it" + again + inside + "fetch"}
	case reason.SubmoduleNew:
		if e.Name == "" || tree == "" {
			return nil
		}
		return []string{"clone the new submodule" + again + "git clone --no-checkout --separate-git-dir=" + quote.Shell(e.Other) + " -- " +
			quote.Shell(e.Name) + " " + quote.Shell(filepath.Join(tree, e.Path))}
	}
	if tree == "" {
		return []string{"initialise it in a worktree that has it" + again + "git submodule update --init"}
	}
	return []string{"initialise it" + again + "git -C " + quote.Shell(tree) + " submodule update --init -- " + quote.Shell(e.Path)}
}

// OutdatedSubmodules returns the commands by which submodules of a worktree get to the commits that the worktree has for them
// now. Git does not check out the commit that HEAD is at, unless it is forced.
func OutdatedSubmodules(all []gitagency.OutdatedSubmodule) (hints []string) {
	paths := map[string]string{} // paths of submodules by the command that updates them
	for _, o := range all {
		if o.Source != "" {
			inside := "git -C " + quote.Shell(filepath.Join(o.Tree, o.Path))
			hints = append(hints, "update submodule "+quote.Path(o.Path)+": "+inside+" fetch "+quote.Shell(o.Source)+" "+o.Commit+" && "+inside+" checkout --detach "+o.Commit)
			continue
		}
		update := "git -C " + quote.Shell(o.Tree) + " submodule update --init"
		if o.Empty {
			update += " --force"
		}
		paths[update] += " " + quote.Shell(o.Path)
	}
	for _, update := range slices.Sorted(maps.Keys(paths)) {
		hints = append(hints, "update the submodules of the worktree: "+update+" --"+paths[update])
	}
	return hints
}
