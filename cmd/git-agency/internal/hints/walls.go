package hints

import (
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// Walls names what the walls refused to a command, whatever it ended with. lister says how to list it. Only refusals of
// the proxy are known: the kernel does not report which of the errors that a program got were those of a wall.
func Walls(lister string, res gitagency.ExecResult) []string {
	const most = 3
	targets := res.Refused
	if len(targets) == 0 {
		return nil
	}
	more := ""
	if len(targets) > most {
		more = fmt.Sprintf(" and %d more", len(targets)-most)
		targets = targets[:most]
	}
	return []string{"the walls refused connections to " + strings.Join(targets, ", ") + more + lister}
}
