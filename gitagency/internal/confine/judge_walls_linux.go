package confine

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const needsPIDs = "needs pid namespaces"

// missingNamespace returns what is missing for a sandbox's namespaces; empty when nothing is.
func lacking(users, pids Feature) string {
	switch {
	case users.State == Missing:
		return needsUsers
	case pids.State == Missing:
		return needsPIDs
	}
	return ""
}

// networkFeature says whether network namespaces with a loopback work, given the results for the other namespaces.
func judgeNetwork(t roomTrial, k kernel, users, pids Feature) Feature {
	f := Feature{Name: NetworkNamespaces, State: Missing}
	switch {
	case t.opened == nil && t.bound == nil:
		f.State, f.Detail = OK, "with a loopback of their own"
	case t.opened == nil:
		f.Detail = "one can be made, but nothing can listen on its loopback: " + line(t.bound)
	case lacking(users, pids) != "":
		f.Detail = lacking(users, pids)
	case errors.Is(t.opened, unix.ENOSPC) && k.sysctl[maxNetworks.path] == maxNetworks.off:
		f.Detail = fmt.Sprintf("%s: %s is 0; to allow it: sudo sysctl %s=%s", reason(t.opened), maxNetworks.name(), maxNetworks.name(), maxNetworks.on)
	case errors.Is(t.opened, unix.EINVAL):
		f.Detail = reason(t.opened) + ": this kernel was built without them (CONFIG_NET_NS)"
	case refusal(t.opened):
		f.Detail = reason(t.opened)
	default:
		f.State, f.Detail = Unknown, "not known: "+line(t.opened)
	}
	return f
}

// maxNetNamespaces is the limit for the number of network namespaces.
var maxNetworks = sysctl{"user/max_net_namespaces", "0", "10000", nil}

// mountFeature says whether mounts can be created and restricted one by one, as the walls need it.
func judgeMounts(calls, walls error, release string, users, pids Feature) Feature {
	f := Feature{Name: MountAPI, State: Missing}
	switch {
	case calls != nil && older(release, 5, 12):
		f.Detail = "this kernel, " + release + ", does not have all of it (Linux 5.12 does)"
	case calls != nil:
		f.Detail = line(calls) + ": perhaps by the seccomp filter this runs under, as containers have one; run it outside, or with one that allows it"
	case walls == nil:
		f.State, f.Detail = OK, "mounts were made and restricted one by one"
	case lacking(users, pids) != "":
		f.Detail = lacking(users, pids)
	default:
		f.State, f.Detail = Unknown, "the kernel has it, but no walls could be built with it"
	}
	return f
}

// joinFeature says whether a second command can join the namespaces of the first.
func judgeJoining(t roomTrial, k kernel, users, pids Feature) Feature {
	f := Feature{Name: Joining, State: Missing}
	switch {
	case t.opened != nil && lacking(users, pids) != "":
		f.Detail = lacking(users, pids)
	case t.opened != nil:
		f.State, f.Detail = Unknown, "not tried: there was nothing to join"
	case t.untried != nil:
		f.State, f.Detail = Unknown, "no directory to try it with: "+line(t.untried)
	case t.joined == nil:
		f.State, f.Detail = OK, "several commands can run behind the same walls"
	case errors.Is(t.joined, unix.ENOSYS):
		f.Detail = line(t.joined) + ": this kernel does not have it (Linux 5.6 does), or a seccomp filter hides it"
	case !errors.Is(t.joined, unix.EPERM):
		f.State, f.Detail = Unknown, "not known: "+line(t.joined)
	case k.sysctl[tracers.path] == tracers.off:
		f.Detail = fmt.Sprintf("%s: %s is %s, which can be changed only by starting the machine with another", reason(t.joined), tracers.name(), tracers.off)
	case k.filtered:
		f.Detail = line(t.joined) + ": perhaps by the seccomp filter this runs under, as containers have one"
	default:
		f.Detail = line(t.joined) + ": by a security module"
	}
	if t.leftover != nil {
		f.Detail += "; clean-up: " + line(t.leftover)
	}
	return f
}

// ptraceScope is the setting for which processes may take descriptors from another: with 3, none.
var tracers = sysctl{"kernel/yama/ptrace_scope", "3", "1", nil}

// wallsFeature says whether all walls work together, and else which part does not.
func judgeWalls(err error, parts []Feature) Feature {
	f := Feature{Name: AllWalls, State: Missing}
	if err == nil {
		f.State, f.Detail = OK, "all of them were built, and taken down"
		return f
	}
	for _, p := range parts {
		if p.State == Missing && p.Name != Overlay && p.Name != Joining { // not part of this trial
			f.Detail = "needs " + strings.ReplaceAll(p.Name, "-", " ")
			return f
		}
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		f.Detail = refused.Wall + ": " + refused.Why
	} else {
		f.Detail = line(err)
	}
	return f
}

// landlockRestrictFeature says whether a Landlock that the kernel has did restrict a thread.
func judgeRestriction(f Feature, err error) Feature {
	switch {
	case err == nil:
		return f
	case errors.Is(err, unix.E2BIG):
		return Feature{f.Name, Missing, f.Detail + ", but this runs behind as many rulesets as there can be"}
	}
	return Feature{f.Name, Missing, f.Detail + ", but it cannot be used: " + line(err)}
}

// seccompFilterFeature says whether our filter did restrict a thread, in a kernel that has seccomp filters.
func judgeFilter(f Feature, err error) Feature {
	if err == nil {
		return f
	}
	return Feature{f.Name, Missing, f.Detail + ", but ours does not: " + line(err)}
}

// oneLineText returns an error on one line.
func line(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
