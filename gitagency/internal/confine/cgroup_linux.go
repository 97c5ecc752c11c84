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

// Cgroups is a place where cgroups can be made that bound what runs in them: below the nearest cgroup above
// us that was handed over to this user, as systemd does for what it calls sessions of a user. A sandbox has
// one there, which bounds all of its commands together, and in it one for each command, as only those
// without others inside may hold processes.
type Cgroups struct {
	parent  string   // the directory in which they are made
	offered []string // the controllers that bound what is in them
	kernel  cgroupKernel
}

// The controllers that limits need.
const (
	memoryController = "memory"
	pidsController   = "pids"
)

// cgroupKernel is where the kernel tells of cgroups, and how one is made, told and removed; tests have others.
type cgroupKernel struct {
	cgroup, mountinfo string // files in /proc/self
	mkdir             func(path string) error
	set               func(dir, file, value string) error
	rmdir             func(path string) error
}

func realCgroups() cgroupKernel {
	return cgroupKernel{
		cgroup: "/proc/self/cgroup", mountinfo: "/proc/self/mountinfo",
		mkdir: func(path string) error { return os.Mkdir(path, 0o755) },
		set:   setKernel,
		rmdir: unix.Rmdir,
	}
}

// findCgroups looks for a place that offers as many of the controllers as can be had. The error says why
// there is none.
func findCgroups(k cgroupKernel, wanted ...string) (*Cgroups, error) {
	top, own, err := k.locate()
	if err != nil {
		return nil, err
	}
	var best *Cgroups
	var why error
	for dir := own; ; dir = filepath.Dir(dir) {
		offered, err := k.offers(dir, wanted)
		if why == nil {
			why = err // the nearest is the one to do something about
		}
		if len(offered) > 0 && (best == nil || len(offered) > len(best.offered)) {
			best = &Cgroups{parent: dir, offered: offered, kernel: k}
		}
		if dir == top || len(offered) == len(wanted) {
			break
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no cgroup here was handed over to this user: %w", why)
	}
	return best, nil
}

// locate finds where cgroups of the second version are to be seen, and which of them is ours.
func (k cgroupKernel) locate() (top, own string, err error) {
	mounts, err := os.ReadFile(k.mountinfo)
	if err != nil {
		return "", "", err
	}
	cgroups, err := os.ReadFile(k.cgroup)
	if err != nil {
		return "", "", err
	}
	path := ""
	for line := range strings.Lines(string(cgroups)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	if !strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") { // one outside of our view
		return "", "", errors.New("this process is in no cgroup of version 2 that can be seen from here")
	}
	scanner := bufio.NewScanner(strings.NewReader(string(mounts)))
	for scanner.Scan() {
		before, after, _ := strings.Cut(scanner.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 6 || len(kind) == 0 || kind[0] != "cgroup2" {
			continue
		}
		root, mount := unescaped(fields[3]), unescaped(fields[4])
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
		if ok && (below == "" || below[0] == '/') {
			return filepath.Clean(mount), filepath.Join(mount, below), nil
		}
	}
	return "", "", errors.New("no cgroups of version 2 are mounted")
}

// unescaped undoes what the kernel does to spaces in names.
func unescaped(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// offers says which controllers bound what is made in a cgroup, by making one there.
func (k cgroupKernel) offers(dir string, wanted []string) (offered []string, err error) {
	// What is moved to below must be allowed to leave from below.
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("%s/cgroup.procs: %w", dir, err)
	}
	has, err := words(dir, "cgroup.controllers")
	if err != nil {
		return nil, err
	}
	handsOn, err := words(dir, "cgroup.subtree_control")
	if err != nil {
		return nil, err
	}
	var why error
	for _, c := range wanted {
		if !slices.Contains(has, c) {
			why = errors.Join(why, fmt.Errorf("%s has no %s controller", dir, c))
			continue
		}
		if err := k.enable(dir, c); err != nil {
			why = errors.Join(why, err)
			continue
		}
		if !slices.Contains(handsOn, c) { // looking changes nothing
			defer func() { _ = k.set(dir, "cgroup.subtree_control", "-"+c) }() // somebody may use it by now
		}
		offered = append(offered, c)
	}
	if len(offered) == 0 {
		return nil, oneLine(why)
	}
	probe := filepath.Join(dir, cgroupPrefix+"probe-"+strconv.Itoa(os.Getpid()))
	if err := k.mkdir(probe); err != nil && !errors.Is(err, os.ErrExist) { // one that was left is as good
		return nil, err
	}
	has, err = words(probe, "cgroup.controllers")
	if err := errors.Join(err, k.rmdir(probe)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(offered, func(c string) bool { return !slices.Contains(has, c) }), oneLine(why)
}

// oneLine joins what went wrong in one line.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// enable hands a controller on to the cgroups in one. The kernel refuses where there are processes beside
// them.
func (k cgroupKernel) enable(dir, controller string) error {
	if has, err := words(dir, "cgroup.subtree_control"); err == nil && slices.Contains(has, controller) {
		return nil
	}
	if err := k.set(dir, "cgroup.subtree_control", "+"+controller); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s holds processes, so that it cannot hand on its %s controller", dir, controller)
		}
		return err
	}
	return nil
}

func words(dir, file string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	return strings.Fields(string(data)), err
}

// setKernel writes to one of the kernel's files, and never makes one.
func setKernel(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

const cgroupPrefix = "git-agency-"

// Cgroup is one for a command.
type Cgroup struct {
	Procs *os.File // where the command has to be put
	Hold  *os.File // whoever has this open is at work in it

	dir    string
	kernel cgroupKernel
}

// Enter makes a cgroup for a command of a sandbox, which is bound by whole together with the sandbox's
// others, and by command besides.
func (c *Cgroups) Enter(sandbox string, whole, command CgroupLimits) (*Cgroup, error) {
	around := filepath.Join(c.parent, cgroupPrefix+sandbox)
	for range 100 { // the last command of the sandbox may be removing it
		group, err := c.enter(around, whole, command)
		if !gone(err) {
			return group, err
		}
	}
	return nil, fmt.Errorf("%s is gone as soon as it is made", around)
}

func (c *Cgroups) enter(around string, whole, command CgroupLimits) (_ *Cgroup, err error) {
	if err := c.kernel.mkdir(around); err != nil && !errors.Is(err, os.ErrExist) {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s is gone", c.parent)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.kernel.rmdir(around) // unless others are in it
		}
	}()
	c.sweep(around)
	for _, controller := range c.offered {
		if err := c.kernel.enable(c.parent, controller); err != nil {
			return nil, err
		}
	}
	for _, controller := range c.offered {
		if err := c.kernel.enable(around, controller); err != nil {
			return nil, err
		}
	}
	// Only now: whoever looks takes back what it had handed on to look, unless it is in use.
	if err := whole.set(c.kernel, around); err != nil {
		return nil, err
	}
	dir, err := c.mkdirNew(around)
	if err != nil {
		return nil, err
	}
	g := &Cgroup{dir: dir, kernel: c.kernel}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if g.Hold, err = os.Open(dir); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(g.Hold.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil { // somebody sweeps
		return nil, errors.Join(os.ErrNotExist, err)
	}
	if err := command.set(c.kernel, dir); err != nil {
		return nil, err
	}
	g.Procs, err = os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	return g, err
}

func (c *Cgroups) mkdirNew(around string) (string, error) {
	for n := 1; ; n++ {
		dir := filepath.Join(around, strconv.Itoa(n))
		if err := c.kernel.mkdir(dir); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

// sweep removes what commands left whose tool was killed.
func (c *Cgroups) sweep(around string) {
	entries, _ := os.ReadDir(around) // what cannot be seen is not removed
	for _, e := range entries {
		dir, err := os.Open(filepath.Join(around, e.Name()))
		if !e.IsDir() || err != nil {
			continue
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = c.kernel.rmdir(dir.Name()) // one that holds processes stays
		}
		_ = dir.Close()
	}
}

// Close removes the cgroup, with what may still be in it, and that of the sandbox unless other commands are
// in that.
func (g *Cgroup) Close() error {
	defer func() {
		for _, f := range []*os.File{g.Procs, g.Hold} { // not before: it would be swept up
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	if err := g.kernel.set(g.dir, "cgroup.kill", "1"); err != nil && !gone(err) { // an older kernel has none
		return err
	}
	err := g.kernel.rmdir(g.dir)
	if errors.Is(err, unix.EBUSY) || gone(err) { // what was killed is still dying; it is swept up later
		err = nil
	}
	_ = g.kernel.rmdir(filepath.Dir(g.dir))
	return err
}

// gone: what became of a cgroup is told in two ways.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// RemoveCgroups removes what is left of the cgroups of a sandbox that nobody is at work in.
func RemoveCgroups(sandbox string) {
	removeCgroups(realCgroups(), sandbox)
}

func removeCgroups(k cgroupKernel, sandbox string) {
	top, own, err := k.locate()
	if err != nil {
		return
	}
	for dir := own; ; dir = filepath.Dir(dir) {
		around := filepath.Join(dir, cgroupPrefix+sandbox)
		(&Cgroups{kernel: k}).sweep(around)
		_ = k.rmdir(around)
		if dir == top {
			return
		}
	}
}

func (l CgroupLimits) set(k cgroupKernel, dir string) error {
	if l.Memory > 0 {
		if err := k.set(dir, "memory.max", strconv.FormatInt(l.Memory, 10)); err != nil {
			return err
		}
		if err := k.set(dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap
			return err
		}
	}
	if l.Processes > 0 {
		return k.set(dir, "pids.max", strconv.Itoa(l.Processes))
	}
	return nil
}
