package hints

import (
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Retry is the command line that failed, to be typed again with changes.
type Retry struct {
	Args          []string // words after "git agency"
	HasConfigArgs bool     // settings were given with -c; they are not repeated, since they may be secret
}

// Command returns the command line again, without some flags and with one more setting unless that is empty.
func (r Retry) Command(setting string, without ...string) string {
	again := "git"
	if r.HasConfigArgs {
		again += " -c …"
	}
	if setting != "" {
		again += " -c " + quote.Shell(setting)
	}
	again += " agency"
	for _, word := range dropFlags(r.Args, without) {
		again += " " + quote.Shell(word)
	}
	if r.HasConfigArgs {
		return "with the settings that -c gave: " + again
	}
	return again
}

// runs reports whether the command line runs a command, or one of a group. Flags of the program stand before it.
func (r Retry) runs(command string) bool {
	i := slices.IndexFunc(r.Args, func(word string) bool { return !strings.HasPrefix(word, "-") })
	return i >= 0 && r.Args[i] == command
}

// moreTime returns the hint to repeat a timed-out operation with a longer timeout.
func (r Retry) moreTime() string {
	return "allow it more time: " + r.Command("agency.operationTimeout=1h")
}

// dropFlags returns words without some flags and their values.
func dropFlags(words, flags []string) []string {
	var left []string
	for i := 0; i < len(words); i++ {
		name, _, attached := strings.Cut(words[i], "=")
		switch {
		case !slices.Contains(flags, "-"+strings.TrimLeft(name, "-")) || !strings.HasPrefix(name, "-"):
			left = append(left, words[i])
		case !attached:
			i++
		}
	}
	return left
}
