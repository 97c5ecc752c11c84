// Package landlock restricts what files the calling thread, and the processes that it starts, can reach. It knows the
// kernel's interface and its versions; its callers decide which paths are allowed.
package landlock

// Versions of the kernel's interface.
const (
	// RenameABI is the first ABI that allows files to be renamed between directories.
	RenameABI = 2
	// NewestABI is the last ABI that rulesets are written for.
	NewestABI = 9
	// ScopesABI is the first ABI that restricts abstract sockets.
	ScopesABI = 6
	// SocketsABI is the first ABI that restricts sockets with a path.
	SocketsABI = 9
)
