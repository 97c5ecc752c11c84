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

// CreateVerifyLog begins it anew. Whoever has the old one open writes to the end of the new one.
func (s Store) CreateVerifyLog(repoID, invocationID string) (*os.File, error) {
	return os.OpenFile(s.VerifyLogPath(repoID, invocationID), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
}
