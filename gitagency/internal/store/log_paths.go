package store

import "path/filepath"

// VerifyLogPath returns the path of the output of the last verification of an invocation's landing.
func (s Store) VerifyLogPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verify.log")
}

// VerifyLockDir returns the directory that a verification keeps locked as long as it uses its temporary sandbox.
func (s Store) VerifyLockDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "verifying")
}

// SetupLogPath returns the path of the output of the last agency.setup in a sandbox.
func (s Store) SetupLogPath(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "setup.log")
}

// SetupLockDir returns the directory that is locked while agency.setup runs in a sandbox, and exists only then or after a
// kill.
func (s Store) SetupLockDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "setting-up")
}

// ImportLockDir returns the directory that is locked while the result of a run on another platform is imported, and exists only then or
// after a kill.
func (s Store) ImportLockDir(repoID, invocationID string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), "importing")
}
