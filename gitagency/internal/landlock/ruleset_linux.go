package landlock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights is a set of access rights to files.
type Rights uint64

// Sets of access rights.
const (
	Read       Rights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	UseDevice  Rights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	WriteFile  Rights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	MakeDevice Rights = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// Change is every right but that to make devices.
	Change = ^MakeDevice

	// ofFile are the rights that a rule for a file may contain.
	ofFile Rights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | WriteFile | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// ABI returns the kernel's Landlock ABI. Asking restricts nothing.
func ABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// handled returns all rights that an ABI can restrict: for files, and scopes for processes outside.
func handled(abi int) (files Rights, scope uint64) {
	files = 1<<13 - 1
	for _, since := range []struct {
		abi  int
		what Rights
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{SocketsABI, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if abi >= since.abi {
			files |= since.what
		}
	}
	if abi >= ScopesABI {
		scope = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return files, scope
}

// Ruleset is a set of rules that is not enforced yet. It forbids all that no rule allows.
type Ruleset struct {
	fd    int
	files Rights
}

// NewRuleset creates a ruleset that restricts all that an ABI can restrict.
func NewRuleset(abi int) (*Ruleset, error) {
	files, scope := handled(abi)
	attr := struct {
		files          Rights
		network, scope uint64
	}{files, 0, scope}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock ruleset of ABI %d: %w", abi, errno)
	}
	return &Ruleset{int(fd), files}, nil
}

// Allow allows rights, as far as the ABI knows them, at a path that is open, and below it.
func (s *Ruleset) Allow(fd int, rights Rights) error {
	rights &= s.files
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFile
	}
	// The kernel's struct is packed: 12 bytes without a gap, and trailing padding does not matter.
	attr := struct {
		rights Rights
		fd     int32
	}{rights, int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Enforce restricts the calling thread, which has given up new privileges, for ever.
func (s *Ruleset) Enforce() error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.fd), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// Close releases the ruleset. Threads that it restricts stay restricted.
func (s *Ruleset) Close() error { return unix.Close(s.fd) }
