package sandbox

import "github.com/git-agency/git-agency/gitagency/internal/confine"

// ForbiddenSyscalls lists the system calls that the seccomp filter refuses behind walls, some with the refused
// arguments in parentheses.
func ForbiddenSyscalls() []string { return confine.DescribeBlockedCalls() }
