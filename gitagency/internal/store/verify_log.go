package store

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// VerifyLogPath is where lies what was written when the landing of an invocation was last verified.
func (s Store) VerifyLogPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verify.log")
}

// VerifyingDir is held by who verifies something in a sandbox that is there for that alone, as long as it is theirs.
func (s Store) VerifyingDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verifying")
}

// CreateVerifyLog begins it anew. Whoever has the old one open writes to the end of the new one.
func (s Store) CreateVerifyLog(repoID, invocationID string) (*os.File, error) {
	return os.OpenFile(s.VerifyLogPath(repoID, invocationID), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
}
