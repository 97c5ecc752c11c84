package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// Sandbox is the worktree of one invocation: commands run in it, files are uploaded to it, snapshots are taken of it.
// Every method reads the current state on disk, so a Sandbox may be kept for any time and used by several goroutines.
type Sandbox struct {
	ID string // invocation id

	sandbox *sandbox.Sandbox
}

// Denial is a network access that the walls of a sandbox refused, with the number of attempts.
type Denial = sandbox.Denial

// Denials lists what the walls of a sandbox refused, the latest last. It also works for an invocation whose sandbox
// is gone. For a broken invocation it returns the list together with an error.
func (r *Repository) Denials(query string) ([]Denial, error) {
	return sandbox.Denials(r.core, query)
}

// Directories lists the subdirectories of a directory of the sandbox, which is named as in ExecOptions.Cwd. The list
// has only names that Cwd accepts: neither .git nor symbolic links. It takes no lock, so an entry may be gone a
// moment later.
func (s *Sandbox) Directories(path string) (names []string, err error) {
	return s.sandbox.Directories(path)
}

// ExecOptions describes a command to run in a sandbox.
type ExecOptions = sandbox.ExecOptions

// DefaultGrace is the default time between SIGTERM and SIGKILL.
const DefaultGrace = sandbox.DefaultGrace

// ExecResult reports how a command ended.
type ExecResult = sandbox.ExecResult

// Exec runs a command in the sandbox and returns when it and all processes it started, daemons included, have ended.
// A command that fails or times out is not an error.
//
// A limit that is wider than that of the sandbox is an *InvalidError; a limit that cannot be enforced on this
// machine, or anything else that could not be set up, is a *SetupError.
//
// These errors come with a result: *CannotRunError; ErrStopped, when the sandbox is being ended; the cause of ctx,
// when that ended first; *OutputError, when the output could not be passed on; ErrSupervisorKilled, when some process may still
// run. With any other error nothing was run.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExecResult, error) {
	return s.sandbox.Exec(ctx, opts)
}

// CaptureLimit is the number of bytes of each output stream that a result holds.
const CaptureLimit = proc.CaptureLimit

// ForwardRequest selects ports of a sandbox that become reachable from this machine.
type ForwardRequest = sandbox.ForwardRequest

// Port is a port of a sandbox and the port of this machine that is forwarded to it.
type Port = sandbox.Port

// ParsePort parses "P" or "P:H", a port of a sandbox and a port of this machine. "P" stands for "P:P".
func ParsePort(text string) (Port, error) {
	return sandbox.ParsePort(text)
}

// Forward makes ports of the sandbox reachable on 127.0.0.1, for all users of this machine. It returns nil when the
// last command in the sandbox has ended, and the cause of ctx when that ends first; it has closed all connections
// then. It does not keep the sandbox from being discarded.
func (s *Sandbox) Forward(ctx context.Context, req ForwardRequest) (err error) {
	return s.sandbox.Forward(ctx, req)
}

// Sandbox returns the sandbox of an invocation, given its id or a unique prefix. It fails if the invocation is broken
// or has ended.
func (r *Repository) Sandbox(query string) (*Sandbox, error) {
	s, err := sandbox.Open(r.core, query)
	if err != nil {
		return nil, err
	}
	return &Sandbox{ID: s.ID, sandbox: s}, nil
}

// WorkDir returns the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string {
	return s.sandbox.WorkDir()
}

// Teardown ends the sandbox as Discard does: it ends the commands, keeps the content under a ref and removes the
// sandbox. It succeeds if the sandbox, or a part of it, is gone already.
func (s *Sandbox) Teardown(ctx context.Context) error {
	return doctor.Teardown(ctx, s.sandbox)
}

// SyncResult is the result of Sync.
type SyncResult = sandbox.SyncResult

// Sync merges the integration branch into the sandbox's branch, as git merge would: by a merge commit, or by a fast-forward
// if the sandbox has no commits of its own. Conflicts stay in the sandbox as an unfinished merge with conflict markers,
// and are returned as a *ConflictsError together with the result; resolving and committing them there completes the merge.
//
// No git process runs in the sandbox, so nothing that an agent configured there runs. The merge is made in memory, and the
// sandbox is then moved to the state that git would have left, in the same way as by a rollback. A snapshot of the state
// before is taken first, so that a rollback can undo the sync.
//
// Sync refuses while commands run in the sandbox (*RunningError), while a git operation is in progress, if HEAD is not on
// the sandbox's branch (*OffBranchError), and if tracked files have uncommitted changes (*UncommittedError). Untracked
// files stay; Sync refuses if the merge would overwrite one. Ignored files in the way are kept in the snapshot and then
// replaced.
func (s *Sandbox) Sync(ctx context.Context) (SyncResult, error) {
	return s.sandbox.Sync(ctx)
}

// ForbiddenSyscalls lists the system calls that the seccomp filter refuses behind walls, some with the refused
// arguments in parentheses.
func ForbiddenSyscalls() []string {
	return sandbox.ForbiddenSyscalls()
}

// File is a regular file, a directory or a symbolic link to upload to a sandbox.
type File = sandbox.File

// UploadRequest selects what to upload to a sandbox.
type UploadRequest = sandbox.UploadRequest

// UploadProgress is the progress of an upload.
type UploadProgress = sandbox.UploadProgress

// UploadFiles uploads files to the sandbox, all of them or none; see Upload.
func (s *Sandbox) UploadFiles(ctx context.Context, files []File) error {
	return s.sandbox.UploadFiles(ctx, files)
}

// Upload uploads files to the sandbox. If anything fails, takes longer than OperationTimeout or is cancelled, the
// sandbox is left as it was.
//
// Paths are relative to the sandbox; missing parent directories are created. Existing files are replaced, never
// written through. A path that leaves the sandbox or has a reserved name is a *ConfinementError, and so is a symbolic
// link that leaves the sandbox.
func (s *Sandbox) Upload(ctx context.Context, req UploadRequest) (err error) {
	return s.sandbox.Upload(ctx, req)
}

// Locate resolves a path in the sandbox, relative to its top, and reports whether it is a directory. The path is
// relative, or absolute and inside the sandbox, and need not exist.
func (s *Sandbox) Locate(ctx context.Context, path string) (inside string, isDir bool, err error) {
	return s.sandbox.Locate(ctx, path)
}
