package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// userNamespaceFeature says whether user namespaces work, and otherwise what forbids them.
func userNamespaceFeature(t userTrial, k kernelFacts) Feature {
	f := Feature{Name: UserNamespaces}
	switch o := t.used; {
	case o.succeeded():
		f.State, f.Detail = OK, k.describeUser()
	case o.refusedErr == nil:
		f.State, f.Detail = Unknown, whyUnknown(o)
	case t.made.succeeded():
		f.State, f.Detail = Missing, "one can be created, but without capabilities: "+explainUserNamespace(o.refusedErr, k)
	default:
		f.State, f.Detail = Missing, explainUserNamespace(o.refusedErr, k)
	}
	return f
}

// pidNamespaceFeature says whether pid namespaces work, given the result for user namespaces.
func pidNamespaceFeature(o runOutcome, users Feature) Feature {
	f := Feature{Name: PIDNamespaces}
	switch {
	case o.succeeded():
		f.State, f.Detail = OK, "with their own /proc"
	case users.State == Missing:
		f.State, f.Detail = Missing, needsUsers
	case o.refusedErr != nil:
		f.State, f.Detail = Missing, errnoText(o.refusedErr)
	case o.stderrLine != "":
		f.State, f.Detail = Missing, "one can be created, but /proc cannot be mounted in it, as in many containers: "+o.stderrLine
	default:
		f.State, f.Detail = Unknown, whyUnknown(o)
	}
	return f
}

// overlayFeature says whether an ordinary user can mount an overlay, given the result for user namespaces.
func overlayFeature(t overlayTrial, users Feature) Feature {
	f := Feature{Name: Overlay}
	switch o := t.mount; {
	case t.dirErr != nil:
		f.State, f.Detail = Unknown, "no directory for the test: "+t.dirErr.Error()
	case o.succeeded() && t.mounted:
		f.State, f.Detail = OK, "mounted in a user namespace, on the file system of "+t.tempDir
	case o.succeeded():
		f.State, f.Detail = Unknown, "mount succeeded, but nothing was mounted"
	case users.State == Missing:
		f.State, f.Detail = Missing, needsUsers
	case o.refusedErr != nil:
		f.State, f.Detail = Missing, errnoText(o.refusedErr)
	case o.stderrLine == "":
		f.State, f.Detail = Unknown, whyUnknown(o)
	case !t.kernelHasIt:
		f.State, f.Detail = Missing, "this kernel has no overlay, or did not load it; try: sudo modprobe overlay"
	case t.badFilesystem != "":
		f.State, f.Detail = Unknown, fmt.Sprintf("%s is on %s, which cannot be the upper layer of an overlay; set TMPDIR to a directory on another file system", t.tempDir, t.badFilesystem)
	case isOlder(t.release, 5, 11):
		f.State, f.Detail = Missing, "not permitted in a user namespace before Linux 5.11; this is "+t.release
	default:
		f.State, f.Detail = Missing, "not permitted in a user namespace: "+o.stderrLine
	}
	if t.cleanupErr != nil {
		f.Detail += "; clean-up: " + t.cleanupErr.Error()
	}
	return f
}

const needsUsers = "needs user namespaces"

// whyUnknown says why a trial gave no result.
func whyUnknown(o runOutcome) string {
	switch {
	case o.missingProgram != "":
		return fmt.Sprintf("not tested: no program %q on PATH", o.missingProgram)
	case o.otherErr != nil:
		return "unknown: " + o.otherErr.Error()
	default:
		return "unknown: " + o.stderrLine
	}
}

// isNamespaceRefusal tells an error about namespaces from one about, for example, the process limit.
func isNamespaceRefusal(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.EPERM, unix.EACCES, // forbidden
		unix.ENOSPC, unix.EUSERS, // too many
		unix.EINVAL, unix.ENOSYS, // not supported
	}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// explainUserNamespace gives the kernel's reason not to create a user namespace, or one without capabilities, and the
// setting that causes it and how to change that, where it can be told.
func explainUserNamespace(err error, k kernelFacts) string {
	why := errnoText(err)
	for _, s := range userNamespaceSysctls {
		if k.sysctl[s.path] == s.off && slices.ContainsFunc(s.errs, func(e unix.Errno) bool { return errors.Is(err, e) }) {
			return fmt.Sprintf("%s: %s is %s; to allow it: sudo sysctl %s=%s", why, s.name(), s.off, s.name(), s.on)
		}
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return why + ": this kernel was built without them (CONFIG_USER_NS)"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return why + ": user.max_user_namespaces of this or an outer namespace has been reached, or they are nested too deeply"
	case (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && k.hasSeccomp:
		return why + ": probably denied by a seccomp filter, as in containers; run git-agency outside of the container, or with a filter that allows them"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return why + ": denied by a security module, or because this runs in a chroot"
	}
	return why
}

// userNamespaceSysctls are the settings known to forbid user namespaces. Most kernels have only the second.
var userNamespaceSysctls = []sysctl{
	{"kernel/unprivileged_userns_clone", "0", "1", []unix.Errno{unix.EPERM}},
	{"user/max_user_namespaces", "0", "10000", []unix.Errno{unix.ENOSPC, unix.EUSERS}},
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "0", []unix.Errno{unix.EPERM, unix.EACCES}},
}

// sysctl is a setting that, when off, makes the kernel fail with one of errs.
type sysctl struct {
	path, off, on string
	errs          []unix.Errno
}

func (s sysctl) name() string { return strings.ReplaceAll(s.path, "/", ".") }

// kernelFacts are settings of the kernel and of this process that explain a failed trial.
type kernelFacts struct {
	uid        int               // of the user who tried
	sysctl     map[string]string // values of the sysctls that exist
	hasSeccomp bool              // this process runs under a seccomp filter
}

// readKernelFacts reads kernelFacts from a /proc. Unreadable files are skipped: they only serve explanations.
func readKernelFacts(proc fs.FS, uid int) kernelFacts {
	k := kernelFacts{uid: uid, sysctl: map[string]string{}}
	for _, s := range append(slices.Clone(userNamespaceSysctls), maxNetNamespaces, ptraceScope) {
		if value, err := fs.ReadFile(proc, "sys/"+s.path); err == nil {
			k.sysctl[s.path] = strings.TrimSpace(string(value))
		}
	}
	status, _ := fs.ReadFile(proc, "self/status")
	for line := range strings.Lines(string(status)) {
		if mode, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			k.hasSeccomp = strings.TrimSpace(mode) != "0"
		}
	}
	return k
}

// describeUser says for which user namespaces work. Root is refused less than others.
func (k kernelFacts) describeUser() string {
	if k.uid != 0 {
		return fmt.Sprintf("tested as uid %d", k.uid)
	}
	for _, s := range userNamespaceSysctls {
		if k.sysctl[s.path] == s.off {
			return fmt.Sprintf("tested as root; other users are refused: %s is %s; to allow it: sudo sysctl %s=%s", s.name(), s.off, s.name(), s.on)
		}
	}
	return "tested as root"
}

// kernelHasOverlay reports whether overlay is in the list of file systems of a /proc. If that cannot be read, it
// returns true.
func kernelHasOverlay(proc fs.FS) bool {
	data, err := fs.ReadFile(proc, "filesystems")
	return err != nil || slices.Contains(strings.Fields(string(data)), "overlay")
}

// isOlder reports whether a release such as "5.10.0-28-amd64" is before a version. It returns false for one that cannot
// be parsed.
func isOlder(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	x, err1 := strconv.Atoi(first)
	y, err2 := strconv.Atoi(second)
	return err1 == nil && err2 == nil && (x < major || x == major && y < minor)
}

// landlockFeatures lists what Landlock can restrict since which ABI.
var landlockFeatures = []struct {
	abi  int
	what string
}{
	{2, "renames between directories"},
	{3, "truncation"},
	{4, "TCP ports"},
	{5, "ioctl on devices"},
	{6, "signals and abstract sockets"},
}

func landlockFeature(abi int, err error) Feature {
	f := Feature{Name: Landlock, State: Missing}
	switch {
	case err == nil && abi > 0:
		f.State, f.Detail = OK, fmt.Sprintf("ABI %d", abi)
		var without []string
		for _, g := range landlockFeatures {
			if abi < g.abi {
				without = append(without, g.what)
			}
		}
		if len(without) > 0 {
			f.Detail += ", without " + strings.Join(without, ", ")
		}
	case err == nil:
		f.Detail = fmt.Sprintf("the kernel reports ABI %d", abi)
	case errors.Is(err, unix.ENOSYS):
		f.Detail = "this kernel does not have it (Linux 5.13 with CONFIG_SECURITY_LANDLOCK does)"
	case errors.Is(err, unix.EOPNOTSUPP):
		f.Detail = "this kernel has it but it was not enabled at boot; add landlock to lsm= on the kernel command line"
	default:
		f.Detail = errnoText(err)
	}
	return f
}

func seccompFeature(err error) Feature {
	f := Feature{Name: Seccomp, State: Missing}
	switch {
	case err == nil:
		f.State, f.Detail = OK, "filters can make system calls fail"
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		f.Detail = "this kernel does not have it (Linux 4.14 with CONFIG_SECCOMP_FILTER does)"
	case errors.Is(err, unix.EOPNOTSUPP):
		f.Detail = "this kernel has no filters that make system calls fail"
	default:
		f.Detail = errnoText(err)
	}
	return f
}

// errnoText returns the kernel's part of an error, without the program that could not be started.
func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// cgroupFeature says whether there are cgroups that limit memory and processes.
func cgroupFeature(found *DelegatedCgroup, err error) Feature {
	f := Feature{Name: CgroupDelegation, State: OK}
	switch {
	case err != nil:
		f.State, f.Detail = Missing, err.Error()
	case !slices.Contains(found.controllers, memoryController):
		f.State, f.Detail = Missing, found.missingController(memoryController, nil).Error()
	default:
		f.Detail = strings.Join(found.controllers, " and ") + " can be limited in " + found.dir
	}
	return f
}
