package confine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// Restrict drops all privileges of the calling thread, and of the processes it starts, that are left inside the walls
// of p. The caller has locked itself to its thread, which is not the main thread, and lets it end afterwards. None of
// this can be undone; after an error, nothing may be run.
func Restrict(p walls.Plan) error {
	if unix.Gettid() == unix.Getpid() {
		// The capabilities of the main thread decide which processes may access this one in /proc, and it does not end
		// before the others.
		return errors.New("the main thread of a process cannot be restricted")
	}
	if p.NetworkOnly { // with capabilities a program could change the network, or leave it
		return errors.Join(dropCapabilities(), unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	}
	rules, err := newRuleset(p)
	if err != nil {
		return err
	}
	defer rules.Close()
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := rules.Enforce(); err != nil {
		return err
	}
	return seccomp.Install() // last: the filter forbids many of these calls
}

// Bits of linux/securebits.h; each is followed by the bit that locks it.
const (
	noRoot         = 1 << 0
	noSetuidFixup  = 1 << 2
	keepCaps       = 1 << 4
	noAmbientRaise = 1 << 6

	securebits = (noRoot|noSetuidFixup|noAmbientRaise)*3 | keepCaps<<1
)

// dropCapabilities drops all capabilities, and every way to get one back.
func dropCapabilities() error {
	for capability := uintptr(0); ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && capability > 0 {
			break // the kernel knows no more capabilities
		}
		if err != nil {
			return fmt.Errorf("bounding set of capabilities: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0); err != nil {
		return fmt.Errorf("secure bits: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var nothing [2]unix.CapUserData
	if err := unix.Capset(&header, &nothing[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// newRuleset creates the Landlock ruleset. It must be a single one: with two stacked rulesets files cannot be moved
// between directories even where both allow it.
func newRuleset(p walls.Plan) (*landlock.Ruleset, error) {
	if p.LandlockABI < landlock.RenameABI {
		return nil, fmt.Errorf("landlock ABI %d: at least %d is required, to rename files between directories", p.LandlockABI, landlock.RenameABI)
	}
	rules, err := landlock.NewRuleset(p.LandlockABI)
	if err != nil {
		return nil, err
	}
	allow := func(path string, rights landlock.Rights) error {
		open := openNoSymlinks
		if p.Software.Dir != "" {
			open = openInRoot
		}
		fd, err := open(unix.AT_FDCWD, path)
		if err == nil {
			err = errors.Join(rules.Allow(fd, rights), unix.Close(fd))
		}
		if err != nil {
			return fmt.Errorf("landlock rule for %s: %w", path, err)
		}
		return nil
	}
	err = errors.Join(allow("/", landlock.Read), allow("/proc", landlock.WriteFile), allow("/dev", landlock.UseDevice), allow("/dev/shm", landlock.Change))
	private := p.Private
	if p.Home.Path != "" {
		private = append(slices.Clone(private), p.Home.Path)
	}
	for _, path := range private {
		if e := allow(path, landlock.Change); !errors.Is(e, unix.ENOENT) { // missing ones are skipped, as by Apply
			err = errors.Join(err, e)
		}
	}
	for _, path := range p.Writable {
		err = errors.Join(err, allow(path, landlock.Change))
	}
	for _, l := range p.Overlays {
		err = errors.Join(err, allow(l.Path, landlock.Change))
	}
	if err != nil {
		return nil, errors.Join(err, rules.Close())
	}
	return rules, nil
}
