package confine

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// forkExecError is the error os/exec returns when fork or exec fails with errno.
func forkExecError(errno unix.Errno) error {
	return &os.PathError{Op: "fork/exec", Path: "/usr/bin/true", Err: errno}
}

func TestUserNamespaceFeature(t *testing.T) {
	t.Parallel()
	set := func(path, value string) kernelFacts {
		return kernelFacts{uid: 1000, sysctl: map[string]string{path: value}}
	}
	both := func(errno unix.Errno) userTrial {
		return userTrial{used: runOutcome{refusedErr: forkExecError(errno)}, made: runOutcome{refusedErr: forkExecError(errno)}}
	}
	powerless := func(errno unix.Errno) userTrial { return userTrial{used: runOutcome{refusedErr: forkExecError(errno)}} }
	for _, c := range []struct {
		trial  userTrial
		kernel kernelFacts
		state  State
		detail string
	}{
		{userTrial{}, kernelFacts{uid: 1000}, OK, "tested as uid 1000"},
		{userTrial{}, set("kernel/apparmor_restrict_unprivileged_userns", "1"), OK, "tested as uid 1000"}, // a profile allows it
		{userTrial{}, kernelFacts{}, OK, "tested as root"},
		{
			userTrial{},
			kernelFacts{sysctl: map[string]string{"kernel/unprivileged_userns_clone": "0"}},
			OK, "tested as root; other users are refused: kernel.unprivileged_userns_clone is 0; to allow it: sudo sysctl kernel.unprivileged_userns_clone=1",
		},
		{
			both(unix.EPERM), set("kernel/unprivileged_userns_clone", "0"),
			Missing, "operation not permitted: kernel.unprivileged_userns_clone is 0; to allow it: sudo sysctl kernel.unprivileged_userns_clone=1",
		},
		{
			both(unix.ENOSPC), set("user/max_user_namespaces", "0"),
			Missing, "no space left on device: user.max_user_namespaces is 0; to allow it: sudo sysctl user.max_user_namespaces=10000",
		},
		{
			both(unix.EACCES), set("kernel/apparmor_restrict_unprivileged_userns", "1"),
			Missing, "permission denied: kernel.apparmor_restrict_unprivileged_userns is 1; to allow it: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
		},
		{
			powerless(unix.EPERM), set("kernel/apparmor_restrict_unprivileged_userns", "1"),
			Missing, "one can be created, but without capabilities: operation not permitted: kernel.apparmor_restrict_unprivileged_userns is 1; to allow it: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
		},
		{powerless(unix.EPERM), kernelFacts{}, Missing, "one can be created, but without capabilities: operation not permitted: denied by a security module, or because this runs in a chroot"},
		// A setting with an allowing value, or whose refusal has another errno, is not named.
		{both(unix.EPERM), set("kernel/unprivileged_userns_clone", "1"), Missing, "operation not permitted: denied by a security module, or because this runs in a chroot"},
		{both(unix.EPERM), set("user/max_user_namespaces", "0"), Missing, "operation not permitted: denied by a security module, or because this runs in a chroot"},
		{
			both(unix.EPERM),
			kernelFacts{hasSeccomp: true},
			Missing, "operation not permitted: probably denied by a seccomp filter, as in containers; run git-agency outside of the container, or with a filter that allows them",
		},
		{both(unix.ENOSPC), set("user/max_user_namespaces", "96360"), Missing, "no space left on device: user.max_user_namespaces of this or an outer namespace has been reached, or they are nested too deeply"},
		{both(unix.EUSERS), kernelFacts{}, Missing, "too many users: user.max_user_namespaces of this or an outer namespace has been reached, or they are nested too deeply"},
		{both(unix.EINVAL), kernelFacts{}, Missing, "invalid argument: this kernel was built without them (CONFIG_USER_NS)"},
		{both(unix.ENOSYS), kernelFacts{}, Missing, "function not implemented: this kernel was built without them (CONFIG_USER_NS)"},
		// The error of the second trial is not reported.
		{
			userTrial{used: runOutcome{refusedErr: forkExecError(unix.EINVAL)}, made: runOutcome{otherErr: errors.New("lightning")}},
			kernelFacts{},
			Missing, "invalid argument: this kernel was built without them (CONFIG_USER_NS)",
		},
		{userTrial{used: runOutcome{missingProgram: "true"}}, kernelFacts{}, Unknown, `not tested: no program "true" on PATH`},
		{userTrial{used: runOutcome{otherErr: errors.New("lightning")}}, kernelFacts{}, Unknown, "unknown: lightning"},
		{userTrial{used: runOutcome{stderrLine: "true: exit status 1"}}, kernelFacts{}, Unknown, "unknown: true: exit status 1"},
	} {
		requireFeature(t, fmt.Sprintf("%+v %+v", c.trial, c.kernel), userNamespaceFeature(c.trial, c.kernel), Feature{UserNamespaces, c.state, c.detail})
	}
}

func TestPIDNamespaceFeature(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome runOutcome
		users   State
		state   State
		detail  string
	}{
		{runOutcome{}, OK, OK, "with their own /proc"},
		{runOutcome{}, Unknown, OK, "with their own /proc"},
		{runOutcome{refusedErr: forkExecError(unix.EPERM)}, Missing, Missing, "needs user namespaces"},
		{runOutcome{missingProgram: "mount"}, Missing, Missing, "needs user namespaces"},
		{runOutcome{refusedErr: forkExecError(unix.EINVAL)}, OK, Missing, "invalid argument"},
		{runOutcome{stderrLine: "mount: /proc: permission denied"}, OK, Missing, "one can be created, but /proc cannot be mounted in it, as in many containers: mount: /proc: permission denied"},
		{runOutcome{missingProgram: "mount"}, OK, Unknown, `not tested: no program "mount" on PATH`},
		{runOutcome{otherErr: errors.New("lightning")}, OK, Unknown, "unknown: lightning"},
	} {
		requireFeature(t, fmt.Sprintf("%+v", c), pidNamespaceFeature(c.outcome, Feature{State: c.users}), Feature{PIDNamespaces, c.state, c.detail})
	}
}

func TestOverlayFeature(t *testing.T) {
	t.Parallel()
	said := runOutcome{stderrLine: "mount: merged: permission denied"}
	for _, c := range []struct {
		trial  overlayTrial
		users  State
		state  State
		detail string
	}{
		{overlayTrial{mounted: true}, OK, OK, "mounted in a user namespace, on the file system of /t"},
		{overlayTrial{mounted: true, cleanupErr: errors.New("rm: no")}, OK, OK, "mounted in a user namespace, on the file system of /t; clean-up: rm: no"},
		{overlayTrial{}, OK, Unknown, "mount succeeded, but nothing was mounted"},
		{overlayTrial{dirErr: errors.New("mkdir: no")}, OK, Unknown, "no directory for the test: mkdir: no"},
		{overlayTrial{mount: runOutcome{refusedErr: forkExecError(unix.EPERM)}}, Missing, Missing, "needs user namespaces"},
		{overlayTrial{mount: runOutcome{missingProgram: "mount"}}, Missing, Missing, "needs user namespaces"},
		{overlayTrial{mount: runOutcome{missingProgram: "mount"}}, OK, Unknown, `not tested: no program "mount" on PATH`},
		{overlayTrial{mount: runOutcome{otherErr: errors.New("lightning")}}, OK, Unknown, "unknown: lightning"},
		{overlayTrial{mount: runOutcome{refusedErr: forkExecError(unix.EINVAL)}}, OK, Missing, "invalid argument"},
		{overlayTrial{mount: said}, OK, Missing, "this kernel has no overlay, or did not load it; try: sudo modprobe overlay"},
		{overlayTrial{mount: said, kernelHasIt: true, badFilesystem: "overlayfs"}, OK, Unknown, "/t is on overlayfs, which cannot be the upper layer of an overlay; set TMPDIR to a directory on another file system"},
		{overlayTrial{mount: said, kernelHasIt: true, release: "5.10.0-28-amd64"}, OK, Missing, "not permitted in a user namespace before Linux 5.11; this is 5.10.0-28-amd64"},
		{overlayTrial{mount: said, kernelHasIt: true, release: "6.18.1"}, OK, Missing, "not permitted in a user namespace: mount: merged: permission denied"},
	} {
		c.trial.tempDir = "/t"
		requireFeature(t, fmt.Sprintf("%+v", c), overlayFeature(c.trial, Feature{State: c.users}), Feature{Overlay, c.state, c.detail})
	}
}

func TestLandlockFeature(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		abi    int
		err    error
		state  State
		detail string
	}{
		{1, nil, OK, "ABI 1, without renames between directories, truncation, TCP ports, ioctl on devices, signals and abstract sockets"},
		{3, nil, OK, "ABI 3, without TCP ports, ioctl on devices, signals and abstract sockets"},
		{5, nil, OK, "ABI 5, without signals and abstract sockets"},
		{6, nil, OK, "ABI 6"},
		{99, nil, OK, "ABI 99"},
		{0, nil, Missing, "the kernel reports ABI 0"},
		{0, unix.ENOSYS, Missing, "this kernel does not have it (Linux 5.13 with CONFIG_SECURITY_LANDLOCK does)"},
		{0, unix.EOPNOTSUPP, Missing, "this kernel has it but it was not enabled at boot; add landlock to lsm= on the kernel command line"},
		{0, unix.EPERM, Missing, "operation not permitted"},
	} {
		requireFeature(t, fmt.Sprint(c.abi, c.err), landlockFeature(c.abi, c.err), Feature{Landlock, c.state, c.detail})
	}
}

func TestSeccompFeature(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]Feature{
		nil:             {Seccomp, OK, "filters can make system calls fail"},
		unix.ENOSYS:     {Seccomp, Missing, "this kernel does not have it (Linux 4.14 with CONFIG_SECCOMP_FILTER does)"},
		unix.EINVAL:     {Seccomp, Missing, "this kernel does not have it (Linux 4.14 with CONFIG_SECCOMP_FILTER does)"},
		unix.EOPNOTSUPP: {Seccomp, Missing, "this kernel has no filters that make system calls fail"},
		unix.EPERM:      {Seccomp, Missing, "operation not permitted"},
	} {
		requireFeature(t, fmt.Sprint(err), seccompFeature(err), want)
	}
}

func TestIsNamespaceRefusal(t *testing.T) {
	t.Parallel()
	for errno, want := range map[unix.Errno]bool{
		unix.EPERM: true, unix.EACCES: true, unix.ENOSPC: true, unix.EUSERS: true, unix.EINVAL: true, unix.ENOSYS: true,
		unix.EAGAIN: false, unix.ENOMEM: false, unix.EMFILE: false, unix.ENOENT: false,
	} {
		if isNamespaceRefusal(forkExecError(errno)) != want {
			t.Errorf("%v: %v", errno, !want)
		}
	}
	if isNamespaceRefusal(errors.New("lightning")) {
		t.Error("an unrelated error counts as a refusal")
	}
}

func TestReadKernelFacts(t *testing.T) {
	t.Parallel()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	k := readKernelFacts(fstest.MapFS{
		"sys/user/max_user_namespaces":                     file("0\n"),
		"sys/kernel/apparmor_restrict_unprivileged_userns": file("1\n"),
		"self/status": file("Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t0\n"),
	}, 7)
	if k.uid != 7 || !k.hasSeccomp || len(k.sysctl) != 2 || k.sysctl["user/max_user_namespaces"] != "0" || k.sysctl["kernel/apparmor_restrict_unprivileged_userns"] != "1" {
		t.Errorf("read %+v", k)
	}
	free := fstest.MapFS{"self/status": file("Seccomp:\t0\nSeccomp_filters:\t3\n"), "filesystems": file("nodev\tproc\n\text4\n\toverlayed\n")}
	if k := readKernelFacts(free, 0); k.hasSeccomp || len(k.sysctl) != 0 {
		t.Errorf("read %+v", k)
	}
	if k := readKernelFacts(fstest.MapFS{}, 0); k.hasSeccomp || len(k.sysctl) != 0 {
		t.Errorf("read %+v from nothing", k)
	}
	if kernelHasOverlay(free) {
		t.Error("overlay found in /proc/filesystems without it")
	}
	if !kernelHasOverlay(fstest.MapFS{"filesystems": file("\text4\nnodev\toverlay\n")}) || !kernelHasOverlay(fstest.MapFS{}) {
		t.Error("overlay not found although listed, or although /proc/filesystems is unreadable")
	}
}

func TestIsOlderComparesNumbers(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"5.10.0-28-amd64": true, "4.19": true, "5.9.1": true, "5.4-rc1": true,
		"5.11.0": false, "5.11-rc1": false, "5.100": false, "6.1": false, "10.0.0": false,
		"": false, "5": false, "5.": false, "5.x": false, "x.1": false,
	} {
		if isOlder(release, 5, 11) != want {
			t.Errorf("%q: %v", release, !want)
		}
	}
}

func requireFeature(t *testing.T, what string, got, want Feature) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
	if strings.Contains(got.Detail, "\n") {
		t.Errorf("%s: more than one line: %q", what, got.Detail)
	}
}
