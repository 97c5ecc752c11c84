package store

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// VerifyLogPath returns the path of the output of the last verification of an invocation's landing.
func (s Store) VerifyLogPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verify.log")
}

// VerifyLockDir returns the directory that a verification keeps locked as long as it uses its temporary sandbox.
func (s Store) VerifyLockDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verifying")
}

// CreateVerifyLog truncates or creates the log. A process that has the old one open appends to the new one.
func (s Store) CreateVerifyLog(repoID, invocationID string) (*os.File, error) {
	return os.OpenFile(s.VerifyLogPath(repoID, invocationID), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
}
