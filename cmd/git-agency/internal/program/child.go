package program

import "fmt"

// ChildError sets the exit code of a command in the sandbox that did not exit with 0. If Err is nil, the command has
// printed its own message and nothing else is printed.
type ChildError struct {
	Code      int
	Err       error
	ShellLine string // shell command line that the user may have meant as the command
	Hidden    string // command that lets the sandbox read its program, which the walls hide
}

func (e *ChildError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ChildError) Unwrap() error { return e.Err }

// Silent reports whether nothing is to be printed.
func (e *ChildError) Silent() bool { return e.Err == nil }
