package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
)

// Probe tries all features concurrently. env gives the PATH and TMPDIR. An error means that ctx ended first; a feature
// that does not work is reported as a Feature.
func Probe(ctx context.Context, env []string) ([]Feature, error) {
	return prober{env: env, timeout: 3 * time.Second}.probe(ctx)
}

// prober tries features.
type prober struct {
	env     []string
	timeout time.Duration // for one program, which needs milliseconds
}

func (l prober) probe(ctx context.Context) ([]Feature, error) {
	var (
		users     userTrial
		pids      runOutcome
		overlay   overlayTrial
		namespace namespaceTrial
		walls     error
		all       sync.WaitGroup
	)
	all.Go(func() { users = l.tryUserNamespace(ctx) })
	all.Go(func() { pids = l.tryPIDNamespace(ctx) })
	all.Go(func() { overlay = l.tryOverlay(ctx) })
	all.Go(func() { namespace = l.tryNamespace(ctx) })
	all.Go(func() { walls = l.tryWalls(ctx) })
	landlock, seccomp := landlockFeature(landlock.ABI()), seccompFeature(seccomp.Available())
	if landlock.State == OK {
		landlock = landlockRestrictFeature(landlock, onDisposableThread(tryLandlock))
	}
	if seccomp.State == OK {
		seccomp = seccompFilterFeature(seccomp, onDisposableThread(trySeccomp))
	}
	cgroups := cgroupFeature(findDelegatedCgroup(hostCgroupFS(), memoryController, pidsController))
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, errors.Join(err, overlay.cleanupErr, namespace.cleanupErr)
	}
	k := readKernelFacts(os.DirFS("/proc"), os.Geteuid())
	user := userNamespaceFeature(users, k)
	pid := pidNamespaceFeature(pids, user)
	features := []Feature{
		user, pid, networkFeature(namespace, k, user, pid), mountFeature(checkMountAPI(), walls, kernelRelease(), user, pid), overlayFeature(overlay, user),
		landlock, seccomp, joinFeature(namespace, k, user, pid),
	}
	return append(features, wallsFeature(walls, features), cgroups), nil
}

// runOutcome is the result of a program run in its own namespaces. The zero value means success.
type runOutcome struct {
	missingProgram string // program that was not found
	refusedErr     error  // the kernel refused the namespaces
	otherErr       error  // error that says nothing about namespaces
	stderrLine     string // the program failed: first line of its standard error
}

func (o runOutcome) succeeded() bool { return o == runOutcome{} }

// runUnshared runs a program in its own namespaces.
func (l prober) runUnshared(ctx context.Context, dir string, ns proc.Unshare, program string, args ...string) runOutcome {
	path, err := proc.LookPath(l.env, program)
	if err != nil {
		return runOutcome{missingProgram: program}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("%s did not end within %s", program, l.timeout))
	defer cancel()
	res, err := proc.Run(ctx, proc.Command{
		Argv:    append([]string{path}, args...),
		Dir:     dir,
		Env:     []string{"LC_ALL=C", "PATH=" + proc.Getenv(l.env, "PATH")},
		Unshare: &ns,
		Grace:   100 * time.Millisecond,
	})
	var notStarted *proc.NotStartedError
	switch {
	case context.Cause(ctx) == nil && errors.As(err, &notStarted) && isNamespaceRefusal(notStarted.Err):
		return runOutcome{refusedErr: notStarted.Err}
	case err != nil:
		return runOutcome{otherErr: err}
	case res.ExitCode != 0:
		return runOutcome{stderrLine: firstStderrLine(program, res)}
	}
	return runOutcome{}
}

// firstStderrLine returns the first line of the standard error of a failed program.
func firstStderrLine(program string, res proc.Result) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n")
	if line == "" {
		return fmt.Sprintf("%s: exit status %d", program, res.ExitCode)
	}
	return strings.TrimSuffix(line, ".")
}

// userTrial is a user namespace in which a mount namespace was unshared, and, where that failed, one that was only
// created.
type userTrial struct{ used, made runOutcome }

func (l prober) tryUserNamespace(ctx context.Context) userTrial {
	t := userTrial{used: l.runUnshared(ctx, "/", proc.Unshare{Mount: true}, "true")}
	if t.used.refusedErr != nil {
		t.made = l.runUnshared(ctx, "/", proc.Unshare{}, "true")
	}
	return t
}

// tryPIDNamespace also mounts the /proc of the new namespace. Without that a process still sees all others, and where
// parts of /proc are masked, as in most containers, the kernel refuses to mount a new one.
func (l prober) tryPIDNamespace(ctx context.Context) runOutcome {
	return l.runUnshared(ctx, "/", proc.Unshare{Mount: true, PID: true}, "mount", "-n", "-i", "-t", "proc", "proc", "/proc")
}

// overlayTrial is an overlay mounted in a temporary directory.
type overlayTrial struct {
	tempDir       string // directory for temporary files
	dirErr        error  // the temporary directory could not be created
	mount         runOutcome
	mounted       bool   // the overlay was really mounted
	badFilesystem string // type of the file system of tempDir, if overlays cannot write to it
	kernelHasIt   bool   // the kernel has overlay
	release       string // of the kernel
	cleanupErr    error  // the temporary directory could not be removed
}

// tempDir returns the directory for temporary files.
func (l prober) tempDir() string {
	if dir := proc.Getenv(l.env, "TMPDIR"); filepath.IsAbs(dir) {
		return dir
	}
	return "/tmp"
}

func (l prober) tryOverlay(ctx context.Context) (t overlayTrial) {
	t.tempDir = l.tempDir()
	dir, err := os.MkdirTemp(t.tempDir, "git-agency-probe-")
	if err != nil {
		t.dirErr = err
		return t
	}
	defer func() { t.cleanupErr = durable.RemoveTree(dir) }() // no process still writes there: runUnshared waits
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.dirErr = err
			return t
		}
	}
	// Relative paths need no escaping of option separators. A volatile overlay is not synced on unmount, which would
	// write back the whole file system.
	t.mount = l.runUnshared(ctx, dir, proc.Unshare{Mount: true}, "mount", "-n", "-i", "-t", "overlay",
		"-o", "userxattr,index=on,volatile,lowerdir=lower,upperdir=upper,workdir=work", "overlay", "merged")
	t.mount.stderrLine = strings.ReplaceAll(t.mount.stderrLine, dir+"/", "") // the directory is gone when the message is read
	// The mount is gone with its namespace; the directory that the kernel creates in work remains.
	if fi, err := os.Lstat(filepath.Join(dir, "work", "work")); err == nil {
		t.mounted = fi.IsDir()
	}
	// Only now: the trial makes the kernel load the module.
	t.kernelHasIt = kernelHasOverlay(os.DirFS("/proc"))
	t.badFilesystem, t.release = unsupportedFilesystem(dir), kernelRelease()
	return t
}

// unsupportedFilesystem names the type of file system of dir when overlays cannot write to it, or returns "".
func unsupportedFilesystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
		unix.NFS_SUPER_MAGIC:       "nfs",
		unix.FUSE_SUPER_MAGIC:      "fuse",
		unix.V9FS_MAGIC:            "9p",
	}[int64(st.Type)]
}

func kernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
