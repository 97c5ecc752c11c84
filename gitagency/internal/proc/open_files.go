package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MinOpenFiles is the smallest limit of open files (RLIMIT_NOFILE) with which every command works. Walls with many grants
// need more.
const MinOpenFiles = 64

// OpenFilesError reports a limit of open files below MinOpenFiles.
type OpenFilesError struct{ Limit uint64 }

func (e *OpenFilesError) Error() string {
	return fmt.Sprintf("at least %d open files are needed, but the limit is %d", MinOpenFiles, e.Limit)
}

// CheckOpenFiles returns an *OpenFilesError if this process may not have enough files open.
func CheckOpenFiles() error {
	if limit := OpenFilesLimit(); limit < MinOpenFiles {
		return &OpenFilesError{limit}
	}
	return nil
}

// OpenFilesLimit returns how many files this process may have open. Package os has raised the soft limit to the hard
// one, and restores it for every program that is started.
func OpenFilesLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return MinOpenFiles // only an invalid argument is an error
	}
	return uint64(limit.Cur)
}
