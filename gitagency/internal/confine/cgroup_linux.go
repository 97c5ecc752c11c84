package confine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DelegatedCgroup is the nearest cgroup above us that was delegated to this user, as systemd does for user sessions.
// Each sandbox has a cgroup in it, which limits all of its commands together, and in that one cgroup per command: only
// leaf cgroups may hold processes.
type DelegatedCgroup struct {
	dir         string   // directory of the delegated cgroup
	controllers []string // controllers that work in its children
	fs          cgroupFS
}

// Controllers that limits need.
const (
	memoryController = "memory"
	pidsController   = "pids"
)

// cgroupFS is the kernel interface for cgroups; tests replace it.
type cgroupFS struct {
	cgroupFile, mountinfoFile string // files in /proc/self
	mkdir                     func(path string) error
	writeFile                 func(dir, file, value string) error
	rmdir                     func(path string) error
}

func hostCgroupFS() cgroupFS {
	return cgroupFS{
		cgroupFile: "/proc/self/cgroup", mountinfoFile: "/proc/self/mountinfo",
		mkdir:     func(path string) error { return os.Mkdir(path, 0o755) },
		writeFile: writeControl,
		rmdir:     unix.Rmdir,
	}
}

// findDelegatedCgroup finds the delegated cgroup that offers most of the wanted controllers. The error says why there is
// none.
func findDelegatedCgroup(k cgroupFS, wanted ...string) (*DelegatedCgroup, error) {
	top, ownDir, err := k.locateOwn()
	if err != nil {
		return nil, err
	}
	var best *DelegatedCgroup
	var reasons error
	for dir := ownDir; ; dir = filepath.Dir(dir) {
		offered, err := k.offeredControllers(dir, wanted)
		if reasons == nil {
			reasons = err // the nearest cgroup is the one that the user can fix
		}
		if len(offered) > 0 && (best == nil || len(offered) > len(best.controllers)) {
			best = &DelegatedCgroup{dir: dir, controllers: offered, fs: k}
		}
		if dir == top || len(offered) == len(wanted) {
			break
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no cgroup is delegated to this user: %w", reasons)
	}
	return best, nil
}

// locateOwn finds the mount point of cgroup v2 and the directory of our own cgroup.
func (k cgroupFS) locateOwn() (top, ownDir string, err error) {
	mounts, err := os.ReadFile(k.mountinfoFile)
	if err != nil {
		return "", "", err
	}
	cgroups, err := os.ReadFile(k.cgroupFile)
	if err != nil {
		return "", "", err
	}
	path := ""
	for line := range strings.Lines(string(cgroups)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	if !strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") { // outside of our cgroup namespace
		return "", "", errors.New("this process is in no cgroup v2 of its cgroup namespace")
	}
	scanner := bufio.NewScanner(strings.NewReader(string(mounts)))
	for scanner.Scan() {
		before, after, _ := strings.Cut(scanner.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 6 || len(kind) == 0 || kind[0] != "cgroup2" {
			continue
		}
		root, mount := unescapeMountinfo(fields[3]), unescapeMountinfo(fields[4])
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
		if ok && (below == "" || below[0] == '/') {
			return filepath.Clean(mount), filepath.Join(mount, below), nil
		}
	}
	return "", "", errors.New("cgroup v2 is not mounted")
}

// unescapeMountinfo decodes the octal escapes of /proc/self/mountinfo.
func unescapeMountinfo(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// offeredControllers returns the wanted controllers that work in children of a cgroup. It finds out by creating a child.
func (k cgroupFS) offeredControllers(dir string, wanted []string) (offered []string, err error) {
	// To move a process into a child we need write access to cgroup.procs of the common ancestor.
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("%s/cgroup.procs: %w", dir, err)
	}
	available, err := readFields(dir, "cgroup.controllers")
	if err != nil {
		return nil, err
	}
	enabled, err := readFields(dir, "cgroup.subtree_control")
	if err != nil {
		return nil, err
	}
	var reasons error
	for _, c := range wanted {
		if !slices.Contains(available, c) {
			reasons = errors.Join(reasons, fmt.Errorf("%s has no %s controller", dir, c))
			continue
		}
		if err := k.enableController(dir, c); err != nil {
			reasons = errors.Join(reasons, err)
			continue
		}
		if !slices.Contains(enabled, c) { // undo it: a probe must not change anything
			defer func() { _ = k.writeFile(dir, "cgroup.subtree_control", "-"+c) }() // fails if the controller is in use by now
		}
		offered = append(offered, c)
	}
	if len(offered) == 0 {
		return nil, oneLineError(reasons)
	}
	probe := filepath.Join(dir, cgroupPrefix+"probe-"+strconv.Itoa(os.Getpid()))
	if err := k.mkdir(probe); err != nil && !errors.Is(err, os.ErrExist) { // one left by an earlier probe will do
		return nil, err
	}
	available, err = readFields(probe, "cgroup.controllers")
	if err := errors.Join(err, k.rmdir(probe)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(offered, func(c string) bool { return !slices.Contains(available, c) }), oneLineError(reasons)
}

// oneLineError joins the lines of an error with semicolons.
func oneLineError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// enableController enables a controller for the children of a cgroup. The kernel refuses with EBUSY where the cgroup
// itself holds processes.
func (k cgroupFS) enableController(dir, controller string) error {
	if has, err := readFields(dir, "cgroup.subtree_control"); err == nil && slices.Contains(has, controller) {
		return nil
	}
	if err := k.writeFile(dir, "cgroup.subtree_control", "+"+controller); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s contains processes, so the %s controller cannot be enabled for its children", dir, controller)
		}
		return err
	}
	return nil
}

func readFields(dir, file string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	return strings.Fields(string(data)), err
}

// writeControl writes to a control file, and never creates one.
func writeControl(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

const cgroupPrefix = "git-agency-"

// Cgroup is the cgroup of one command.
type Cgroup struct {
	Procs *os.File // cgroup.procs, open for writing, to move the command
	Hold  *os.File // directory of the cgroup, locked shared: it is in use while this is open

	dir string
	fs  cgroupFS
}

// NewCommandCgroup creates a cgroup for a command of a sandbox. whole limits all commands of the sandbox together,
// command limits this one.
func (c *DelegatedCgroup) NewCommandCgroup(sandbox string, whole, command CgroupLimits) (*Cgroup, error) {
	sandboxDir := filepath.Join(c.dir, cgroupPrefix+sandbox)
	for range 100 { // the last command of the sandbox may just be removing it
		group, err := c.tryNewCommandCgroup(sandboxDir, whole, command)
		if !isGone(err) {
			return group, err
		}
	}
	return nil, fmt.Errorf("%s was removed each time it was created", sandboxDir)
}

func (c *DelegatedCgroup) tryNewCommandCgroup(sandboxDir string, whole, command CgroupLimits) (_ *Cgroup, err error) {
	if err := c.fs.mkdir(sandboxDir); err != nil && !errors.Is(err, os.ErrExist) {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s no longer exists", c.dir)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.fs.rmdir(sandboxDir) // fails if others are in it
		}
	}()
	c.removeStale(sandboxDir)
	for _, controller := range c.controllers {
		if err := c.fs.enableController(c.dir, controller); err != nil {
			return nil, err
		}
	}
	for _, controller := range c.controllers {
		if err := c.fs.enableController(sandboxDir, controller); err != nil {
			return nil, err
		}
	}
	// Only now: a concurrent probe disables the controllers that it had enabled, unless they are in use.
	if err := whole.writeTo(c.fs, sandboxDir); err != nil {
		return nil, err
	}
	dir, err := c.mkdirNew(sandboxDir)
	if err != nil {
		return nil, err
	}
	g := &Cgroup{dir: dir, fs: c.fs}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if g.Hold, err = os.Open(dir); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(g.Hold.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil { // another process is removing it as stale
		return nil, errors.Join(os.ErrNotExist, err)
	}
	if err := command.writeTo(c.fs, dir); err != nil {
		return nil, err
	}
	g.Procs, err = os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	return g, err
}

func (c *DelegatedCgroup) mkdirNew(sandboxDir string) (string, error) {
	for n := 1; ; n++ {
		dir := filepath.Join(sandboxDir, strconv.Itoa(n))
		if err := c.fs.mkdir(dir); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

// removeStale removes the cgroups of commands whose git-agency process was killed.
func (c *DelegatedCgroup) removeStale(sandboxDir string) {
	entries, _ := os.ReadDir(sandboxDir) // unreadable entries stay
	for _, e := range entries {
		dir, err := os.Open(filepath.Join(sandboxDir, e.Name()))
		if !e.IsDir() || err != nil {
			continue
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = c.fs.rmdir(dir.Name()) // fails if it holds processes
		}
		_ = dir.Close()
	}
}

// Close kills all processes in the cgroup and removes it, and also the sandbox's cgroup unless other commands use it.
func (g *Cgroup) Close() error {
	defer func() {
		for _, f := range []*os.File{g.Procs, g.Hold} { // last: until then removeStale leaves the cgroup alone
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	if err := g.fs.writeFile(g.dir, "cgroup.kill", "1"); err != nil && !isGone(err) { // an older kernel has no cgroup.kill
		return err
	}
	err := g.fs.rmdir(g.dir)
	if errors.Is(err, unix.EBUSY) || isGone(err) { // killed processes are still exiting; removeStale removes it later
		err = nil
	}
	_ = g.fs.rmdir(filepath.Dir(g.dir))
	return err
}

// isGone reports whether a cgroup has been removed, for which there are two error codes.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// RemoveCgroups removes the cgroups of a sandbox that are not in use.
func RemoveCgroups(sandbox string) {
	removeCgroups(hostCgroupFS(), sandbox)
}

func removeCgroups(k cgroupFS, sandbox string) {
	top, ownDir, err := k.locateOwn()
	if err != nil {
		return
	}
	for dir := ownDir; ; dir = filepath.Dir(dir) {
		sandboxDir := filepath.Join(dir, cgroupPrefix+sandbox)
		(&DelegatedCgroup{fs: k}).removeStale(sandboxDir)
		_ = k.rmdir(sandboxDir)
		if dir == top {
			return
		}
	}
}

func (l CgroupLimits) writeTo(k cgroupFS, dir string) error {
	if l.Memory > 0 {
		if err := k.writeFile(dir, "memory.max", strconv.FormatInt(l.Memory, 10)); err != nil {
			return err
		}
		if err := k.writeFile(dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap
			return err
		}
	}
	if l.Processes > 0 {
		return k.writeFile(dir, "pids.max", strconv.Itoa(l.Processes))
	}
	return nil
}
