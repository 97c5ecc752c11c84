package format

import (
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Summary returns the first line of a message. If that line introduces a list, the first item and the number
// of further items are added.
func Summary(message string) string {
	first, rest, _ := strings.Cut(message, "\n")
	if !strings.HasSuffix(first, ":") || rest == "" {
		return strings.TrimSuffix(first, ":")
	}
	list := strings.Split(rest, "\n")
	more, unlisted := len(list)-1, 0
	if n, err := fmt.Sscanf(strings.TrimSpace(list[more]), "and %d more", &unlisted); n == 1 && err == nil {
		more += unlisted - 1
	}
	text := first + " " + strings.TrimSpace(list[0])
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Count returns a number with the matching noun, such as "2 files".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// TimeWithAge formats a time and how long ago it was; a zero time is empty.
func TimeWithAge(now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.RFC3339) + " (" + term.Ago(now, at) + ")"
}

// NameWithID returns "name (id)", or the id alone without a name.
func NameWithID(name, id string) string {
	if name == "" {
		return id
	}
	return name + " (" + id + ")"
}

// IDWithName returns "id (name)" on one line, or the id alone without a name.
func IDWithName(id, name string) string {
	if name == "" {
		return id
	}
	return id + " (" + term.OneLine(name) + ")"
}

// leftOutReasons explains why a file of the sandbox is in no commit.
var leftOutReasons = map[string]string{
	gitagency.LeftOutSecret:     "it looks like a credential",
	gitagency.LeftOutRepository: "it is a repository of its own",
	gitagency.LeftOutSubmodule:  "of a submodule, only the staged commit is kept",

	gitagency.LeftOutGit:        "nothing with the name or the form of a git directory lands",
	gitagency.LeftOutSpecial:    "it is neither a file nor a symbolic link",
	gitagency.LeftOutUnreadable: "it cannot be read",
	gitagency.LeftOutDeep:       "there are too many directories in each other",
	gitagency.LeftOutUnknown:    "it was removed, but could not be read when the sandbox was started",
}

// LeftOut says that a file of the sandbox is in no commit, and why.
func LeftOut(l gitagency.LeftOut) string {
	return "left out " + quote.Path(l.Path) + ": " + leftOutReasons[l.Reason]
}
