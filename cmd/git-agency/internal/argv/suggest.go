package argv

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
)

// NearestCommand returns the command that was probably meant by a word that names none of the commands, or "".
func NearestCommand(word string, commands []*cli.Command) string {
	var names []string
	for _, cmd := range commands {
		names = append(names, cmd.Names()...)
	}
	if meant := commandSynonyms[word]; slices.Contains(names, meant) {
		return meant
	}
	if near := NearestWord(word, names); near != "" {
		return near
	}
	return findSubcommand(word, commands)
}

// findSubcommand returns the subcommand called word of one of the commands, or "" unless there is exactly one.
func findSubcommand(word string, commands []*cli.Command) string {
	var found []string
	for _, group := range commands {
		for _, cmd := range group.Subcommands {
			if cmd.HasName(word) {
				found = append(found, group.Name+" "+cmd.Name)
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// commandSynonyms maps names that git and other tools use to our commands.
var commandSynonyms = map[string]string{"add": "create", "new": "create", "remove": "rm", "rm": "discard", "restore": "rollback", "revert": "rollback", "undo": "rollback", "undiscard": "restore", "undelete": "restore", "recover": "restore", "export": "checkout", "fork": "start", "delete": "rm", "status": "ls", "info": "show", "gc": "prune", "run": "exec", "cp": "put", "copy": "put", "upload": "put", "fsck": "doctor", "repair": "doctor", "install": "setup"}

// NearestFlag returns the option that was probably meant by the name of an unknown one, as it is typed, or "".
func NearestFlag(name string, flags []cli.Flag) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	meant := flagSynonyms[name]
	if flag, _, _ := strings.Cut(meant, " "); slices.Contains(names, flag) {
		return WithDashes(meant)
	}
	if near := NearestWord(name, names); near != "" {
		return WithDashes(near)
	}
	return ""
}

// flagSynonyms maps options that git and other tools have to ours, with the value if they need one.
var flagSynonyms = map[string]string{
	"squash": "strategy squash", "rebase": "strategy rebase", "merge": "strategy merge",
	"label": "name", "agent": "runner", "network": "outputs", "workdir": "cwd",
}

// NearestWord returns the candidate most similar to word, or "" if none is close enough: within one edit, or two in a
// long word. Failing that, it returns the only candidate that begins with word.
func NearestWord(word string, candidates []string) string {
	best, least := "", min(max(len(word)/3, 1), 2)+1
	for _, c := range candidates {
		if d := editDistance(word, c); d < least && d < len(word) {
			best, least = c, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, word) {
			if best != "" {
				return ""
			}
			best = c
		}
	}
	return best
}

// editDistance counts the letters to insert, remove, replace or swap with their neighbour to turn a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
			default:
				change := rows[i-1][j-1]
				if a[i-1] != b[j-1] {
					change++
				}
				rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, change)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}

// optionalPart matches an innermost pair of brackets in a usage line.
var optionalPart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[[^][]*\]`) })

// MissingArgument returns the argument that a usage line requires after the given ones, or "".
func MissingArgument(usage string, given int) string {
	line, _, _ := strings.Cut(usage, "\n")
	line, _, _ = strings.Cut(line, " -- ")
	for optionalPart().MatchString(line) {
		line = optionalPart().ReplaceAllString(line, "")
	}
	for word := range strings.FieldsSeq(line) {
		if word[0] != '<' && word[0] != '(' {
			continue
		}
		if given == 0 {
			return strings.TrimSuffix(word, "...")
		}
		given--
	}
	return ""
}

// WithDashes returns a flag as it is typed.
func WithDashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
