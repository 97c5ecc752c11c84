package confine

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// namespaceRefusedError is the error of proc.Walls.StartNamespace when the kernel refuses the namespaces.
func namespaceRefusedError(errno unix.Errno) error {
	return &proc.WallError{Err: fmt.Errorf("namespaces: %w", forkExecError(errno))}
}

func TestNetworkFeature(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trial       namespaceTrial
		kernel      kernelFacts
		users, pids State
		state       State
		detail      string
	}{
		{namespaceTrial{}, kernelFacts{}, OK, OK, OK, "with their own loopback"},
		{namespaceTrial{listenErr: errors.New("listen: no")}, kernelFacts{}, OK, OK, Missing, "one can be created, but listening on its loopback fails: listen: no"},
		{namespaceTrial{startErr: namespaceRefusedError(unix.EPERM)}, kernelFacts{}, Missing, Missing, Missing, "needs user namespaces"},
		{namespaceTrial{startErr: errors.New("mount /proc: no")}, kernelFacts{}, OK, Missing, Missing, "needs pid namespaces"},
		{
			namespaceTrial{startErr: namespaceRefusedError(unix.ENOSPC)},
			kernelFacts{sysctl: map[string]string{"user/max_net_namespaces": "0"}},
			OK, OK, Missing, "no space left on device: user.max_net_namespaces is 0; to allow it: sudo sysctl user.max_net_namespaces=10000",
		},
		{namespaceTrial{startErr: namespaceRefusedError(unix.ENOSPC)}, kernelFacts{sysctl: map[string]string{"user/max_net_namespaces": "9"}}, OK, OK, Missing, "no space left on device"},
		{namespaceTrial{startErr: namespaceRefusedError(unix.EINVAL)}, kernelFacts{}, OK, OK, Missing, "invalid argument: this kernel was built without them (CONFIG_NET_NS)"},
		{namespaceTrial{startErr: errors.New("lightning\nand thunder")}, kernelFacts{}, OK, OK, Unknown, "unknown: lightning; and thunder"},
	} {
		requireFeature(t, fmt.Sprintf("%+v", c), networkFeature(c.trial, c.kernel, Feature{State: c.users}, Feature{State: c.pids}), Feature{NetworkNamespaces, c.state, c.detail})
	}
}

func TestMountFeature(t *testing.T) {
	t.Parallel()
	absent := os.NewSyscallError("mount_setattr", unix.ENOSYS)
	for _, c := range []struct {
		calls, walls error
		release      string
		users, pids  State
		state        State
		detail       string
	}{
		{nil, nil, "6.1.0", OK, OK, OK, "mounts were created and restricted one by one"},
		{absent, absent, "5.10.0-28-amd64", OK, OK, Missing, "this kernel, 5.10.0-28-amd64, does not have all of it (Linux 5.12 does)"},
		{absent, absent, "6.1.0", OK, OK, Missing, "mount_setattr: function not implemented: probably denied by a seccomp filter, as in containers; run git-agency outside of the container, or with a filter that allows it"},
		{nil, errors.New("no"), "6.1.0", Missing, Missing, Missing, "needs user namespaces"},
		{nil, errors.New("no"), "6.1.0", OK, Missing, Missing, "needs pid namespaces"},
		{nil, errors.New("no"), "6.1.0", OK, OK, Unknown, "the kernel has it, but no walls could be built with it"},
	} {
		requireFeature(t, fmt.Sprintf("%+v", c), mountFeature(c.calls, c.walls, c.release, Feature{State: c.users}, Feature{State: c.pids}), Feature{MountAPI, c.state, c.detail})
	}
}

func TestJoinFeature(t *testing.T) {
	t.Parallel()
	taken := func(errno unix.Errno) namespaceTrial {
		return namespaceTrial{joinErr: os.NewSyscallError("pidfd_getfd", errno)}
	}
	for _, c := range []struct {
		trial  namespaceTrial
		kernel kernelFacts
		users  State
		state  State
		detail string
	}{
		{namespaceTrial{}, kernelFacts{}, OK, OK, "several commands can run behind the same walls"},
		{namespaceTrial{cleanupErr: errors.New("rm: no")}, kernelFacts{}, OK, OK, "several commands can run behind the same walls; clean-up: rm: no"},
		{namespaceTrial{startErr: errors.New("no")}, kernelFacts{}, Missing, Missing, "needs user namespaces"},
		{namespaceTrial{startErr: errors.New("no")}, kernelFacts{}, OK, Unknown, "not tested: there was no namespace to join"},
		{namespaceTrial{labelDirErr: errors.New("mkdir: no")}, kernelFacts{}, OK, Unknown, "no directory for the test: mkdir: no"},
		{
			taken(unix.EPERM),
			kernelFacts{sysctl: map[string]string{"kernel/yama/ptrace_scope": "3"}},
			OK,
			Missing, "operation not permitted: kernel.yama.ptrace_scope is 3, which can be changed only at boot",
		},
		{taken(unix.EPERM), kernelFacts{sysctl: map[string]string{"kernel/yama/ptrace_scope": "1"}}, OK, Missing, "pidfd_getfd: operation not permitted: denied by a security module"},
		{taken(unix.EPERM), kernelFacts{hasSeccomp: true}, OK, Missing, "pidfd_getfd: operation not permitted: probably denied by a seccomp filter, as in containers"},
		{taken(unix.ENOSYS), kernelFacts{}, OK, Missing, "pidfd_getfd: function not implemented: this kernel does not have it (Linux 5.6 does), or a seccomp filter hides it"},
		{taken(unix.ESRCH), kernelFacts{}, OK, Unknown, "unknown: pidfd_getfd: no such process"},
	} {
		requireFeature(t, fmt.Sprintf("%+v", c), joinFeature(c.trial, c.kernel, Feature{State: c.users}, Feature{State: OK}), Feature{JoiningNamespaces, c.state, c.detail})
	}
}

func TestWallsFeatureNamesMissingPart(t *testing.T) {
	t.Parallel()
	whole := []Feature{{UserNamespaces, OK, ""}, {Overlay, Missing, ""}, {JoiningNamespaces, Missing, ""}, {Seccomp, Unknown, ""}}
	for _, c := range []struct {
		err   error
		parts []Feature
		want  Feature
	}{
		{nil, whole, Feature{AllWalls, OK, "all of them were built and removed"}},
		{errors.New("no"), append(whole, Feature{NetworkNamespaces, Missing, ""}), Feature{AllWalls, Missing, "needs network namespaces"}},
		{errors.New("read-only /: no"), whole, Feature{AllWalls, Missing, "read-only /: no"}},
		{&walls.RefusedError{Wall: Landlock, Why: "too old", Remedy: "buy a new one"}, whole, Feature{AllWalls, Missing, "landlock: too old"}},
	} {
		requireFeature(t, fmt.Sprintf("%+v", c), wallsFeature(c.err, c.parts), c.want)
	}
}

func TestIneffectiveLandlockAndSeccompAreMissing(t *testing.T) {
	t.Parallel()
	landlock, seccomp := Feature{Landlock, OK, "ABI 7"}, Feature{Seccomp, OK, "filters can make system calls fail"}
	requireFeature(t, "landlock that works", landlockRestrictFeature(landlock, nil), landlock)
	requireFeature(t, "too many nested rulesets", landlockRestrictFeature(landlock, os.NewSyscallError("landlock_restrict_self", unix.E2BIG)),
		Feature{Landlock, Missing, "ABI 7, but this process already has the maximum number of rulesets"})
	requireFeature(t, "landlock without effect", landlockRestrictFeature(landlock, errIneffective),
		Feature{Landlock, Missing, "ABI 7, but it cannot be used: the kernel accepts it, but does not enforce it"})
	requireFeature(t, "a filter that works", seccompFilterFeature(seccomp, nil), seccomp)
	requireFeature(t, "a filter without effect", seccompFilterFeature(seccomp, errIneffective),
		Feature{Seccomp, Missing, "filters can make system calls fail, but the filter of git-agency does not work: the kernel accepts it, but does not enforce it"})
}

// TestDisposableThreadRestrictsNoOtherThread runs more trials than the sixteen rulesets the kernel allows a thread.
func TestDisposableThreadRestrictsNoOtherThread(t *testing.T) {
	t.Parallel()
	if _, err := landlock.ABI(); err != nil {
		t.Skipf("skipped: no Landlock: %v", err)
	}
	for range 40 {
		if err := onDisposableThread(tryLandlock); err != nil {
			t.Fatal(err)
		}
		if err := onDisposableThread(trySeccomp); err != nil {
			t.Fatal(err)
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		null.Close()
		if err := unix.Chroot(""); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("the filter applies to this thread: %v", err)
		}
	}
}

// TestProbeReportsOKWhereWallsCanBeBuilt compares Probe with TryBuild on the machine that runs the tests.
func TestProbeReportsOKWhereWallsCanBeBuilt(t *testing.T) {
	t.Parallel()
	features := probeFeatures(t, probeEnv(t))
	if err := TryBuild(t.Context(), "none", false); err != nil {
		t.Skipf("skipped: no walls can be built here: %v", err)
	}
	for _, name := range []string{UserNamespaces, PIDNamespaces, NetworkNamespaces, MountAPI, Landlock, Seccomp, JoiningNamespaces, AllWalls} {
		if f := features[name]; f.State != OK {
			t.Errorf("got %+v", f)
		}
	}
}
