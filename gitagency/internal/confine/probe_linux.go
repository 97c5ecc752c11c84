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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Probe tries all features concurrently. env gives the PATH and TMPDIR. An error means that ctx ended first; a feature
// that does not work is reported as a Feature.
func Probe(ctx context.Context, env []string) ([]Feature, error) {
	return laboratory{env: env, patience: 3 * time.Second}.probe(ctx)
}

// prober tries features.
type laboratory struct {
	env      []string
	patience time.Duration // for one program, which needs milliseconds
}

func (l laboratory) probe(ctx context.Context) ([]Feature, error) {
	var (
		users     userTrial
		pids      outcome
		overlay   overlayTrial
		namespace roomTrial
		walls     error
		all       sync.WaitGroup
	)
	all.Go(func() { users = l.tryUsers(ctx) })
	all.Go(func() { pids = l.tryPIDs(ctx) })
	all.Go(func() { overlay = l.tryOverlay(ctx) })
	all.Go(func() { namespace = l.tryRoom(ctx) })
	all.Go(func() { walls = l.tryWalls(ctx) })
	landlock, seccomp := judgeLandlock(landlockABI()), judgeSeccomp(seccompFilters())
	if landlock.State == OK {
		landlock = judgeRestriction(landlock, onThreadToLose(restricted))
	}
	if seccomp.State == OK {
		seccomp = judgeFilter(seccomp, onThreadToLose(filtered))
	}
	cgroups := judgeCgroups(findCgroups(realCgroups(), memoryController, pidsController))
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, errors.Join(err, overlay.leftover, namespace.leftover)
	}
	k := readKernel(os.DirFS("/proc"), os.Geteuid())
	user := judgeUsers(users, k)
	pid := judgePIDs(pids, user)
	features := []Feature{
		user, pid, judgeNetwork(namespace, k, user, pid), judgeMounts(mountCalls(), walls, release(), user, pid), judgeOverlay(overlay, user),
		landlock, seccomp, judgeJoining(namespace, k, user, pid),
	}
	return append(features, judgeWalls(walls, features), cgroups), nil
}

// runOutcome is the result of a program run in its own namespaces. The zero value means success.
type outcome struct {
	absent  string // program that was not found
	refused error  // the kernel refused the namespaces
	mishap  error  // error that says nothing about namespaces
	said    string // the program failed: first line of its standard error
}

func (o outcome) fine() bool { return o == outcome{} }

// runUnshared runs a program in its own namespaces.
func (l laboratory) run(ctx context.Context, dir string, ns proc.Namespaces, program string, args ...string) outcome {
	path, err := proc.Look(l.env, program)
	if err != nil {
		return outcome{absent: program}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience, fmt.Errorf("%s did not end within %s", program, l.patience))
	defer cancel()
	res, err := proc.Run(ctx, proc.Command{
		Argv:       append([]string{path}, args...),
		Dir:        dir,
		Env:        []string{"LC_ALL=C", "PATH=" + proc.Variable(l.env, "PATH")},
		Namespaces: &ns,
		Grace:      100 * time.Millisecond,
	})
	var notStarted *proc.NotStartedError
	switch {
	case context.Cause(ctx) == nil && errors.As(err, &notStarted) && refusal(notStarted.Err):
		return outcome{refused: notStarted.Err}
	case err != nil:
		return outcome{mishap: err}
	case res.ExitCode != 0:
		return outcome{said: complaint(program, res)}
	}
	return outcome{}
}

// firstStderrLine returns the first line of the standard error of a failed program.
func complaint(program string, res proc.Result) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n")
	if line == "" {
		return fmt.Sprintf("%s: exit status %d", program, res.ExitCode)
	}
	return strings.TrimSuffix(line, ".")
}

// userTrial is a user namespace in which a mount namespace was unshared, and, where that failed, one that was only
// created.
type userTrial struct{ used, made outcome }

func (l laboratory) tryUsers(ctx context.Context) userTrial {
	t := userTrial{used: l.run(ctx, "/", proc.Namespaces{Mount: true}, "true")}
	if t.used.refused != nil {
		t.made = l.run(ctx, "/", proc.Namespaces{}, "true")
	}
	return t
}

// tryPIDNamespace also mounts the /proc of the new namespace. Without that a process still sees all others, and where
// parts of /proc are masked, as in most containers, the kernel refuses to mount a new one.
func (l laboratory) tryPIDs(ctx context.Context) outcome {
	return l.run(ctx, "/", proc.Namespaces{Mount: true, PID: true}, "mount", "-n", "-i", "-t", "proc", "proc", "/proc")
}

// overlayTrial is an overlay mounted in a temporary directory.
type overlayTrial struct {
	dir      string // directory for temporary files
	dirErr   error  // the temporary directory could not be created
	mount    outcome
	seen     bool   // the overlay was really mounted
	host     string // type of the file system of tempDir, if overlays cannot write to it
	known    bool   // the kernel has overlay
	release  string // of the kernel
	leftover error  // the temporary directory could not be removed
}

// tempDir returns the directory for temporary files.
func (l laboratory) temporary() string {
	if dir := proc.Variable(l.env, "TMPDIR"); filepath.IsAbs(dir) {
		return dir
	}
	return "/tmp"
}

func (l laboratory) tryOverlay(ctx context.Context) (t overlayTrial) {
	t.dir = l.temporary()
	dir, err := os.MkdirTemp(t.dir, "git-agency-probe-")
	if err != nil {
		t.dirErr = err
		return t
	}
	defer func() { t.leftover = durable.RemoveTree(dir) }() // no process still writes there: runUnshared waits
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.dirErr = err
			return t
		}
	}
	// Relative paths need no escaping of option separators. A volatile overlay is not synced on unmount, which would
	// write back the whole file system.
	t.mount = l.run(ctx, dir, proc.Namespaces{Mount: true}, "mount", "-n", "-i", "-t", "overlay",
		"-o", "userxattr,index=on,volatile,lowerdir=lower,upperdir=upper,workdir=work", "overlay", "merged")
	t.mount.said = strings.ReplaceAll(t.mount.said, dir+"/", "") // the directory is gone when the message is read
	// The mount is gone with its namespace; the directory that the kernel creates in work remains.
	if fi, err := os.Lstat(filepath.Join(dir, "work", "work")); err == nil {
		t.seen = fi.IsDir()
	}
	// Only now: the trial makes the kernel load the module.
	t.known = knowsOverlay(os.DirFS("/proc"))
	t.host, t.release = unfit(dir), release()
	return t
}

// unsupportedFilesystem names the type of file system of dir when overlays cannot write to it, or returns "".
func unfit(dir string) string {
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

func release() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// landlockABI returns the kernel's Landlock ABI. Asking restricts nothing.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// checkSeccompErrno asks whether the kernel supports filters that make system calls fail. Asking filters nothing.
func seccompFilters() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}
