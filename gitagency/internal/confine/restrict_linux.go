package confine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Restrict drops all privileges of the calling thread, and of the processes it starts, that are left inside the walls
// of p. The caller has locked itself to its thread, which is not the main thread, and lets it end afterwards. None of
// this can be undone; after an error, nothing may be run.
func Restrict(p Plan) error {
	if unix.Gettid() == unix.Getpid() {
		// The capabilities of the main thread decide which processes may access this one in /proc, and it does not end
		// before the others.
		return errors.New("the main thread of a process cannot be restricted")
	}
	if p.NetworkOnly { // with capabilities a program could change the network, or leave it
		return errors.Join(dropCapabilities(), unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	}
	if p.LandlockABI < 2 {
		return fmt.Errorf("landlock ABI %d: at least 2 is required, to rename files between directories", p.LandlockABI)
	}
	rules, err := newRuleset(p)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return installFilter() // last: the filter forbids many of these calls
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

// Landlock access rights.
const (
	accessRead       = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	accessUseDevice  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	accessWriteFile  = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	accessMakeDevice = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// Rights that a rule for a file may contain.
	accessFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | accessWriteFile | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// handledAccess returns all rights that an ABI can restrict: for files, and scopes for processes outside.
func handledAccess(abi int) (files, scope uint64) {
	files = 1<<13 - 1
	for _, since := range []struct {
		abi  int
		what uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if abi >= since.abi {
			files |= since.what
		}
	}
	if abi >= 6 {
		scope = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return files, scope
}

// newRuleset creates the Landlock ruleset. It must be a single one: with two stacked rulesets files cannot be moved
// between directories even where both allow it.
func newRuleset(p Plan) (int, error) {
	files, scope := handledAccess(p.LandlockABI)
	attr := struct{ files, network, scope uint64 }{files, 0, scope}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock ruleset of ABI %d: %w", p.LandlockABI, errno)
	}
	rules := int(fd)
	grant := func(path string, rights uint64) error {
		if err := addLandlockRule(rules, path, rights&files); err != nil {
			return fmt.Errorf("landlock rule for %s: %w", path, err)
		}
		return nil
	}
	err := errors.Join(grant("/", accessRead), grant("/proc", accessWriteFile), grant("/dev", accessUseDevice), grant("/dev/shm", files&^accessMakeDevice))
	for _, path := range p.Private {
		if e := grant(path, files&^accessMakeDevice); !errors.Is(e, unix.ENOENT) { // missing ones are skipped, as by Apply
			err = errors.Join(err, e)
		}
	}
	for _, path := range p.Writable {
		err = errors.Join(err, grant(path, files&^accessMakeDevice))
	}
	for _, l := range p.Overlays {
		err = errors.Join(err, grant(l.Path, files&^accessMakeDevice))
	}
	if err != nil {
		_ = unix.Close(rules)
		return -1, err
	}
	return rules, nil
}

// addLandlockRule allows access rights at a path and below it.
func addLandlockRule(rules int, path string, rights uint64) error {
	fd, err := openNoSymlinks(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= accessFile
	}
	// The kernel's struct is packed: 12 bytes without a gap, and trailing padding does not matter.
	attr := struct {
		rights uint64
		fd     int32
	}{rights, int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
