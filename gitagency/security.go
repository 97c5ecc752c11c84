package gitagency

import "github.com/git-agency/git-agency/gitagency/internal/confine"

// ForbiddenCalls lists what no program behind walls may ask of the kernel: names of system calls, some with
// what of them is refused in parentheses.
func ForbiddenCalls() []string { return confine.Forbidden() }
