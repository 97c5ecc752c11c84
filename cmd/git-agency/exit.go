package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/landing"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/runs"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/setup"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// exitCode maps an error to its exit code.
func exitCode(err error) int {
	var interrupted program.InterruptedError
	var child *program.ChildError
	switch {
	case errors.As(err, &child):
		return child.Code
	case errors.As(err, &interrupted):
		return 128 + int(interrupted.Signal)
	}
	code := hints.ExitCode(err)
	switch {
	case hints.Is[*gitagency.NotPushedError](err), hints.Is[*gitagency.VerifyError](err), code == hints.ExitLocked, code == hints.ExitSetup:
		return code
	case hints.Is[*program.UsageError](err):
		return hints.ExitUsage
	case landing.OnlyConflicts(err) && slices.Contains([]int{hints.ExitFailed, hints.ExitBroken, hints.ExitRefused}, code):
		return hints.ExitConflict
	case hints.Is[*findingsError](err) && slices.Contains([]int{hints.ExitFailed, hints.ExitRefused}, code):
		return hints.ExitBroken
	}
	return code
}

// hintsFor returns the hints on an error: what to type next.
func hintsFor(err error) []string {
	for _, find := range []func(error) (lines []string, known bool){landing.Hints, commandHints, runs.Hints} {
		if lines, known := find(err); known {
			return lines
		}
	}
	return hints.For(err, program.RetryOf(err))
}

// commandHints returns the hints on errors of the command line itself, and on errors of the library that need other hints
// because of the command that they happened in.
func commandHints(err error) (lines []string, known bool) {
	var (
		usage    *program.UsageError
		findings *findingsError
		link     *linkError
		child    *program.ChildError
		put      *putError
	)
	switch {
	case errors.As(err, &child) && child.ShellLine != "":
		lines = []string{"the command is not run by a shell; to use one: -- sh -c " + quote.Shell(child.ShellLine)}
	case errors.As(err, &child) && child.Hidden != "":
		lines = []string{"the walls hide that file; to let the sandbox read it: " + child.Hidden}
	case errors.As(err, &findings) && len(findings.fixable) == 1:
		what := "it"
		if findings.count > 1 {
			what = "the findings with that id"
		}
		lines = []string{"'git agency doctor --fix " + quote.Shell(findings.fixable[0]) + "' repairs " + what}
	case errors.As(err, &findings) && len(findings.fixable) > 1:
		lines = []string{"'git agency doctor --fix <id>' repairs the findings with that id"}
	case hints.Is[*format.Error](err):
		lines = []string{"the fields are " + strings.Join(format.FieldNames(), ", ")}
	case errors.As(err, &usage) && usage.Hint != "":
		lines = []string{usage.Hint}
	case errors.As(err, &usage) && usage.Group != "":
		lines = []string{"'" + usage.Group + " -h' lists the commands"}
	case hints.Is[*snapshotCheckoutError](err):
		return checkoutHints(err)
	case errors.As(err, &link):
		lines = []string{"links are uploaded as links, so they must be relative and stay inside the sandbox"}
		if link.source != "" {
			lines = append(lines, fmt.Sprintf("to upload the target instead: \"$(realpath %s)\"", quote.Shell(link.source)))
		} else {
			lines = append(lines, "to upload the targets instead, make a copy without links first: 'cp -rL'")
		}
	case hints.Is[*sourceError](err): // the message says everything
	case hints.Is[*program.OutputError](err):
		lines = []string{"'git agency ls' and 'git agency worktree ls' show what was created"}
	case hints.Is[*setup.ForeignFileError](err):
		lines = []string{"move it away and try again, or install elsewhere with --prefix"}
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &put):
		lines = []string{"to make a directory of the sandbox writable: git agency exec " + put.id + " -- chmod u+rwx <directory>"}
	case errors.Is(err, fs.ErrPermission) && hints.Is[*installError](err):
		lines = []string{"run it as a user who may write there, or install elsewhere with --prefix"}
	default:
		return nil, false
	}
	return lines, true
}

// checkoutHints returns the hints on a snapshot that could not be copied to a directory.
func checkoutHints(err error) (lines []string, known bool) {
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return []string{"name a directory that does not exist yet, or that is empty"}, true
	case errors.Is(err, fs.ErrNotExist):
		return []string{"its parent directory must exist (see 'mkdir -p'), and it must not be a dangling symbolic link"}, true
	case gitagency.IsReason(err, reason.Overlap):
		return []string{"name a directory outside of every worktree, sandbox and git directory, such as ../copy beside the repository"}, true
	case errors.Is(err, fs.ErrPermission) && !gitagency.IsReason(err, reason.Unreadable):
		return []string{"name a directory where you may write"}, true
	}
	return nil, false
}
