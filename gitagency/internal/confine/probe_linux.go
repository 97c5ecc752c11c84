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

// Probe tries every feature, all at the same time. Programs are looked up and temporary files put where
// env says. An error means that ctx ended first; what does not work is a Feature that says so.
func Probe(ctx context.Context, env []string) ([]Feature, error) {
	return laboratory{env: env, patience: 3 * time.Second}.probe(ctx)
}

// laboratory is where features are tried.
type laboratory struct {
	env      []string
	patience time.Duration // for one program, which needs milliseconds
}

func (l laboratory) probe(ctx context.Context) ([]Feature, error) {
	var (
		users   userTrial
		pids    outcome
		overlay overlayTrial
		room    roomTrial
		walls   error
		all     sync.WaitGroup
	)
	all.Go(func() { users = l.tryUsers(ctx) })
	all.Go(func() { pids = l.tryPIDs(ctx) })
	all.Go(func() { overlay = l.tryOverlay(ctx) })
	all.Go(func() { room = l.tryRoom(ctx) })
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
		return nil, errors.Join(err, overlay.leftover, room.leftover)
	}
	k := readKernel(os.DirFS("/proc"), os.Geteuid())
	user := judgeUsers(users, k)
	pid := judgePIDs(pids, user)
	features := []Feature{
		user, pid, judgeNetwork(room, k, user, pid), judgeMounts(mountCalls(), walls, release(), user, pid), judgeOverlay(overlay, user),
		landlock, seccomp, judgeJoining(room, k, user, pid),
	}
	return append(features, judgeWalls(walls, features), cgroups), nil
}

// outcome is what became of a program that was run in namespaces of its own. The zero value is that it
// ran and was content.
type outcome struct {
	absent  string // the program that is not there to be run
	refused error  // the kernel does not give it such namespaces
	mishap  error  // it went wrong in a way that says nothing about namespaces
	said    string // it failed, in its own words
}

func (o outcome) fine() bool { return o == outcome{} }

// run runs a program in namespaces of its own.
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
	var never *proc.NotStartedError
	switch {
	case context.Cause(ctx) == nil && errors.As(err, &never) && refusal(never.Err):
		return outcome{refused: never.Err}
	case err != nil:
		return outcome{mishap: err}
	case res.ExitCode != 0:
		return outcome{said: complaint(program, res)}
	}
	return outcome{}
}

// complaint is the first line of what a program said when it failed.
func complaint(program string, res proc.Result) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(res.Stderr)), "\n")
	if line == "" {
		return fmt.Sprintf("%s: exit status %d", program, res.ExitCode)
	}
	return strings.TrimSuffix(line, ".")
}

// userTrial is a user namespace made and used, and, where that failed, one merely made.
type userTrial struct{ used, made outcome }

func (l laboratory) tryUsers(ctx context.Context) userTrial {
	t := userTrial{used: l.run(ctx, "/", proc.Namespaces{Mount: true}, "true")}
	if t.used.refused != nil {
		t.made = l.run(ctx, "/", proc.Namespaces{}, "true")
	}
	return t
}

// tryPIDs also mounts the /proc of the new namespace. Without that a process still sees all the others,
// and where parts of /proc are hidden, as in most containers, the kernel refuses a whole one.
func (l laboratory) tryPIDs(ctx context.Context) outcome {
	return l.run(ctx, "/", proc.Namespaces{Mount: true, PID: true}, "mount", "-n", "-i", "-t", "proc", "proc", "/proc")
}

// overlayTrial is an overlay mounted in a directory made for it.
type overlayTrial struct {
	dir      string // where temporary files go
	dirErr   error  // no directory could be made there
	mount    outcome
	seen     bool   // the overlay was really there
	host     string // the kind of file system that dir is on, if overlays cannot write to that kind
	known    bool   // the kernel knows of overlay
	release  string // of the kernel
	leftover error  // the directory could not be removed
}

// temporary is where temporary files go.
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
	defer func() { t.leftover = durable.RemoveTree(dir) }() // nobody is left to write there: run waits
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.dirErr = err
			return t
		}
	}
	// Relative paths need no escaping of what separates options. A volatile overlay is not synced when
	// it goes, which would write out everything that waits for this disk.
	t.mount = l.run(ctx, dir, proc.Namespaces{Mount: true}, "mount", "-n", "-i", "-t", "overlay",
		"-o", "userxattr,index=on,volatile,lowerdir=lower,upperdir=upper,workdir=work", "overlay", "merged")
	t.mount.said = strings.ReplaceAll(t.mount.said, dir+"/", "") // nobody can look there any more
	// The mount went with its namespace; what stays is the directory the kernel makes in work.
	if fi, err := os.Lstat(filepath.Join(dir, "work", "work")); err == nil {
		t.seen = fi.IsDir()
	}
	// Only now: trying is what makes the kernel load it.
	t.known = knowsOverlay(os.DirFS("/proc"))
	t.host, t.release = unfit(dir), release()
	return t
}

// unfit names the kind of file system dir is on when it is one that overlays cannot write to.
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

// landlockABI asks for the version of Landlock. Nothing is restricted by asking.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// seccompFilters asks whether a filter may make a system call fail. Nothing is filtered by asking.
func seccompFilters() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}
