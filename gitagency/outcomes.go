package gitagency

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fixOutcomes maps finding codes to the state after the fix, where that is always the same.
var fixOutcomes = map[string]string{
	"data-dir-open":        "only you can look into it",
	"moved-repository":     "records and trees come to where the repository is now",
	"damaged-repo":         "it is written anew",
	"stale-lock":           "the lock goes",
	"interrupted-creation": "every trace of it goes",
	"empty-record":         "the directory goes",
	"moved-tree":           "the record names the new place",
	"moved-data":           "record, tree and git know each other again",
	"interrupted-archive":  "the rest goes; what is in no branch is kept as a ref",
	"half-archived":        "the worktree stays as it is",
	"missing-marker":       "it is written again",
	"unlinked-tree":        "tree and repository are tied together again",
	"missing-branch":       "it is made again where the tree was last",
	"leftovers":            "the file goes",
	"interrupted-land":     "it is finished if the branch had moved, else undone",
	"stray-landing":        "it goes, and what may have been moved is finished if the branch had moved, else undone",
	"interrupted-discard":  "the rest goes; what was in it is kept as a ref",
	"interrupted-put":      "what it replaced comes back, and what it put goes, unless it was done or somebody has changed it since",
	"interrupted-rollback": "it is finished; the state in which it was left is snapshotted first",
	"interrupted-verify":   "the sandbox is discarded; what was in it is kept as a ref",
	"half-discarded":       "the sandbox stays as it is",
	"copied-entry":         "this repository forgets it; the tree stays",
	"damaged-entry":        "what can be known is written anew; an entry that was never used goes",
	"initializing-entry":   "it is unlocked, so that git can work with it",
	"orphan-log":           "the log goes",
	"leftover-scratch":     "it goes",
	"visible-markers":      "the line is added again",
}

// ShellQuote quotes a word for pasting into a shell. Unprintable characters are escaped, so that they stay visible and
// cannot control the terminal.
func ShellQuote(word string) string {
	switch {
	case word != "" && strings.Trim(word, shellSafeChars) == "" && word[0] != '=': // some shells expand =x to a command path
		return word
	case utf8.ValidString(word) && !strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(word) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

const shellSafeChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
