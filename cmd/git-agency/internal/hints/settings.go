package hints

import (
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// invalidSettingHints returns the command that removes an invalid value from the file that has it. Git names files of the
// repository relative to the directory in which it ran, so those are named by their scope.
func invalidSettingHints(e *gitagency.InvalidError) []string {
	where := ""
	file, inFile := strings.CutPrefix(e.Origin, "file:")
	switch {
	case inFile && filepath.IsAbs(file):
		where = "--file " + quote.Shell(file)
	case inFile && (e.Scope == "local" || e.Scope == "worktree"):
		where = "--" + e.Scope
	default: // of the command line, or of another source that is no file
		return nil
	}
	if e.Value == "" {
		return []string{"give it a value: git config " + where + " --edit"}
	}
	return []string{"to remove that value: git config " + where + " --fixed-value --unset-all " + quote.Shell(e.ConfigKey) + " " + quote.Shell(e.Value)}
}
