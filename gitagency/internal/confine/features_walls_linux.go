package confine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

const needsPIDs = "needs pid namespaces"

// missingNamespace returns what is missing for a sandbox's namespaces; empty when nothing is.
func missingNamespace(users, pids Feature) string {
	switch {
	case users.State == Missing:
		return needsUsers
	case pids.State == Missing:
		return needsPIDs
	}
	return ""
}

// networkFeature says whether network namespaces with a loopback work, given the results for the other namespaces.
func networkFeature(t namespaceTrial, k kernelFacts, users, pids Feature) Feature {
	f := Feature{Name: NetworkNamespaces, State: Missing}
	switch {
	case t.startErr == nil && t.listenErr == nil:
		f.State, f.Detail = OK, "with their own loopback"
	case t.startErr == nil:
		f.Detail = "one can be created, but listening on its loopback fails: " + oneLineText(t.listenErr)
	case missingNamespace(users, pids) != "":
		f.Detail = missingNamespace(users, pids)
	case errors.Is(t.startErr, unix.ENOSPC) && k.sysctl[maxNetNamespaces.path] == maxNetNamespaces.off:
		f.Detail = fmt.Sprintf("%s: %s is 0; to allow it: sudo sysctl %s=%s", errnoText(t.startErr), maxNetNamespaces.name(), maxNetNamespaces.name(), maxNetNamespaces.on)
	case errors.Is(t.startErr, unix.EINVAL):
		f.Detail = errnoText(t.startErr) + ": this kernel was built without them (CONFIG_NET_NS)"
	case isNamespaceRefusal(t.startErr):
		f.Detail = errnoText(t.startErr)
	default:
		f.State, f.Detail = Unknown, "unknown: "+oneLineText(t.startErr)
	}
	return f
}

// maxNetNamespaces is the limit for the number of network namespaces.
var maxNetNamespaces = sysctl{"user/max_net_namespaces", "0", "10000", nil}

// mountFeature says whether mounts can be created and restricted one by one, as the walls need it.
func mountFeature(calls, walls error, release string, users, pids Feature) Feature {
	f := Feature{Name: MountAPI, State: Missing}
	switch {
	case calls != nil && isOlder(release, 5, 12):
		f.Detail = "this kernel, " + release + ", does not have all of it (Linux 5.12 does)"
	case calls != nil:
		f.Detail = oneLineText(calls) + ": probably denied by a seccomp filter, as in containers; run git-agency outside of the container, or with a filter that allows it"
	case walls == nil:
		f.State, f.Detail = OK, "mounts were created and restricted one by one"
	case missingNamespace(users, pids) != "":
		f.Detail = missingNamespace(users, pids)
	default:
		f.State, f.Detail = Unknown, "the kernel has it, but no walls could be built with it"
	}
	return f
}

// joinFeature says whether a second command can join the namespaces of the first.
func joinFeature(t namespaceTrial, k kernelFacts, users, pids Feature) Feature {
	f := Feature{Name: JoiningNamespaces, State: Missing}
	switch {
	case t.startErr != nil && missingNamespace(users, pids) != "":
		f.Detail = missingNamespace(users, pids)
	case t.startErr != nil:
		f.State, f.Detail = Unknown, "not tested: there was no namespace to join"
	case t.labelDirErr != nil:
		f.State, f.Detail = Unknown, "no directory for the test: "+oneLineText(t.labelDirErr)
	case t.joinErr == nil:
		f.State, f.Detail = OK, "several commands can run behind the same walls"
	case errors.Is(t.joinErr, unix.ENOSYS):
		f.Detail = oneLineText(t.joinErr) + ": this kernel does not have it (Linux 5.6 does), or a seccomp filter hides it"
	case !errors.Is(t.joinErr, unix.EPERM):
		f.State, f.Detail = Unknown, "unknown: "+oneLineText(t.joinErr)
	case k.sysctl[ptraceScope.path] == ptraceScope.off:
		f.Detail = fmt.Sprintf("%s: %s is %s, which can be changed only at boot", errnoText(t.joinErr), ptraceScope.name(), ptraceScope.off)
	case k.hasSeccomp:
		f.Detail = oneLineText(t.joinErr) + ": probably denied by a seccomp filter, as in containers"
	default:
		f.Detail = oneLineText(t.joinErr) + ": denied by a security module"
	}
	if t.cleanupErr != nil {
		f.Detail += "; clean-up: " + oneLineText(t.cleanupErr)
	}
	return f
}

// ptraceScope is the setting for which processes may take descriptors from another: with 3, none.
var ptraceScope = sysctl{"kernel/yama/ptrace_scope", "3", "1", nil}

// wallsFeature says whether all walls work together, and else which part does not.
func wallsFeature(err error, parts []Feature) Feature {
	f := Feature{Name: AllWalls, State: Missing}
	if err == nil {
		f.State, f.Detail = OK, "all of them were built and removed"
		return f
	}
	for _, p := range parts {
		if p.State == Missing && p.Name != Overlay && p.Name != JoiningNamespaces { // not part of this trial
			f.Detail = "needs " + strings.ReplaceAll(p.Name, "-", " ")
			return f
		}
	}
	var refused *walls.RefusedError
	if errors.As(err, &refused) {
		f.Detail = refused.Wall + ": " + refused.Why
	} else {
		f.Detail = oneLineText(err)
	}
	return f
}

// landlockRestrictFeature says whether a Landlock that the kernel has did restrict a thread.
func landlockRestrictFeature(f Feature, err error) Feature {
	switch {
	case err == nil:
		return f
	case errors.Is(err, unix.E2BIG):
		return Feature{f.Name, Missing, f.Detail + ", but this process already has the maximum number of rulesets"}
	}
	return Feature{f.Name, Missing, f.Detail + ", but it cannot be used: " + oneLineText(err)}
}

// seccompFilterFeature says whether our filter did restrict a thread, in a kernel that has seccomp filters.
func seccompFilterFeature(f Feature, err error) Feature {
	if err == nil {
		return f
	}
	return Feature{f.Name, Missing, f.Detail + ", but the filter of git-agency does not work: " + oneLineText(err)}
}

// oneLineText returns an error on one line.
func oneLineText(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
