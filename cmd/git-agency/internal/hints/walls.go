package hints

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency"
)

// Walls names the walls that may have made a command fail; the kernel does not report whether one did. A command
// that was ended by a signal or a timeout, or never started, did not fail because of a wall.
func Walls(refused string, res gitagency.ExecResult) []string {
	if res.TimedOut || slices.Contains([]int{0, ExitTimedOut, ExitCannotExecute, ExitCommandNotFound, 128 + int(syscall.SIGINT), 128 + int(syscall.SIGTERM)}, res.ExitCode) ||
		slices.Contains([]string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM", "SIGPIPE"}, res.Signal) {
		return nil
	}
	var facts []string
	for _, w := range []struct{ wall, means string }{
		{"read-only-root", "files outside the sandbox are read-only or hidden"},
		{"private-tmp", "/tmp is private"},
		{"network:loopback", "there is no network"},
		{"network:proxy", "only some hosts can be reached" + refused},
	} {
		if slices.Contains(res.Walls, w.wall) {
			facts = append(facts, w.means)
		}
	}
	for _, l := range res.Limits {
		if l.Limit != gitagency.TimeoutLimit {
			facts = append(facts, fmt.Sprintf("%s is limited to %s", l.Limit, l.Limit.Format(l.Value)))
		}
	}
	if len(facts) == 0 || len(res.Walls) == 0 {
		return nil
	}
	return []string{"walls were up: " + strings.Join(facts, ", ")}
}
