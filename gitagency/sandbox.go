package gitagency

import (
	"context"
	"io"
	"io/fs"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// Sandbox is the worktree of one invocation: commands run in it, files are uploaded to it, snapshots are taken of it.
// Every method reads the current state on disk, so a Sandbox may be kept for any time and used by several goroutines.
type Sandbox struct {
	ID string // invocation id

	sandbox *sandbox.Sandbox
}

// Sandbox returns the sandbox of an invocation, given its id or a unique prefix. It fails if the invocation is broken
// or has ended.
func (r *Repository) Sandbox(query string) (*Sandbox, error) {
	s, err := sandbox.Open(r.core, query)
	if err != nil {
		return nil, publicError(err)
	}
	return &Sandbox{ID: s.ID, sandbox: s}, nil
}

// WorkDir returns the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string { return s.sandbox.WorkDir() }

// Directories lists the subdirectories of a directory of the sandbox, which is named as in ExecOptions.Cwd. The list
// has only names that Cwd accepts: neither .git nor symbolic links. It takes no lock, so an entry may be gone a
// moment later.
func (s *Sandbox) Directories(path string) (names []string, err error) {
	return edge(s.sandbox.Directories(path))
}

// Locate resolves a path in the sandbox, relative to its top, and reports whether it is a directory. The path is
// relative, or absolute and inside the sandbox, and need not exist.
func (s *Sandbox) Locate(ctx context.Context, path string) (inside string, isDir bool, err error) {
	inside, isDir, err = s.sandbox.Locate(ctx, path)
	return inside, isDir, publicError(err)
}

// File is a regular file, a directory or a symbolic link to upload to a sandbox.
type File struct {
	Path string // relative to the top of the sandbox; missing parent directories are created

	// Content is the content of a file, or the target of a symbolic link.
	Content []byte

	// Open, if set, provides the content instead of Content. It is called once, just before the file is written.
	Open func() (io.ReadCloser, error)

	// Mode has the type, one of regular, fs.ModeDir and fs.ModeSymlink, and the permissions, which are set regardless
	// of the umask. The default permissions are 0644, for a directory 0755. An existing directory keeps its own.
	Mode fs.FileMode
}

func (f File) internal() sandbox.File { return sandbox.File(f) }

// UploadRequest selects what to upload to a sandbox.
type UploadRequest struct {
	Files    []File               // required
	Progress func(UploadProgress) // called as data is written, never concurrently; may be nil
}

// UploadProgress is the progress of an upload.
type UploadProgress struct {
	Files, Total int   // number of files written, and of all files
	Bytes        int64 // bytes written so far
}

func (req UploadRequest) internal() sandbox.UploadRequest {
	upload := sandbox.UploadRequest{Files: convertAll(req.Files, File.internal)}
	if req.Progress != nil {
		upload.Progress = func(p sandbox.UploadProgress) { req.Progress(UploadProgress(p)) }
	}
	return upload
}

// UploadFiles uploads files to the sandbox, all of them or none; see Upload.
func (s *Sandbox) UploadFiles(ctx context.Context, files []File) error {
	return s.Upload(ctx, UploadRequest{Files: files})
}

// Upload uploads files to the sandbox. If anything fails, takes longer than agency.operationTimeout or is cancelled, the
// sandbox is left as it was.
//
// Paths are relative to the sandbox; missing parent directories are created. Existing files are replaced, never
// written through. A path that leaves the sandbox or has a reserved name is a *ConfinementError, and so is a symbolic
// link that leaves the sandbox.
func (s *Sandbox) Upload(ctx context.Context, req UploadRequest) error {
	return publicError(s.sandbox.Upload(ctx, req.internal()))
}

// Port is a port of a sandbox and the port of this machine that is forwarded to it.
type Port struct {
	Inside  uint16
	Outside uint16 // 0: any free port
}

func (p Port) internal() sandbox.Port { return sandbox.Port(p) }

// ParsePort parses "P" or "P:H", a port of a sandbox and a port of this machine. "P" stands for "P:P".
func ParsePort(text string) (Port, error) {
	port, err := sandbox.ParsePort(text)
	return Port(port), publicError(err)
}

// ForwardRequest selects ports of a sandbox that become reachable from this machine.
type ForwardRequest struct {
	Ports []Port // required

	// Listening is called once all ports are reachable, with one address for each, in the order of Ports.
	Listening func(addresses []string) error

	// Failed is called for each connection that could not be made, at any time and from many goroutines. It may be
	// nil.
	Failed func(Port, error)
}

func (req ForwardRequest) internal() sandbox.ForwardRequest {
	forward := sandbox.ForwardRequest{Ports: convertAll(req.Ports, Port.internal), Listening: req.Listening}
	if req.Failed != nil {
		forward.Failed = func(p sandbox.Port, err error) { req.Failed(Port(p), publicError(err)) }
	}
	return forward
}

// Forward makes ports of the sandbox reachable on 127.0.0.1, for all users of this machine. It returns nil when the
// last command in the sandbox has ended, and the cause of ctx when that ends first; it has closed all connections
// then. It does not keep the sandbox from being discarded.
func (s *Sandbox) Forward(ctx context.Context, req ForwardRequest) error {
	return publicError(s.sandbox.Forward(ctx, req.internal()))
}

// SyncResult is the result of Sync.
type SyncResult struct {
	Invocation   string     `json:"invocation_id"`
	Commit       string     `json:"integration_commit"` // integration commit that was merged
	Branch       string     `json:"integration_branch"` // branch of that commit; empty if the worktree is on no branch
	Head         string     `json:"head"`               // new commit of the sandbox's branch
	Already      bool       `json:"already"`            // the sandbox had that commit; nothing changed
	FastForward  bool       `json:"fast_forward"`       // the sandbox had no commits of its own; its branch moved to the integration commit
	Conflicts    []Conflict `json:"conflicts"`          // unresolved conflicts left in the sandbox; empty, not null
	Previous     string     `json:"left"`               // snapshot of the state before; empty if nothing changed
	PreviousName string     `json:"left_name"`          // name of that snapshot, for rollback
	Added        int        `json:"added"`              // new files in the sandbox
	Changed      int        `json:"changed"`
	Removed      int        `json:"removed"`
}

func newSyncResult(r sandbox.SyncResult) SyncResult {
	return SyncResult{
		Invocation: r.Invocation, Commit: r.Commit, Branch: r.Branch, Head: r.Head, Already: r.Already, FastForward: r.FastForward,
		Conflicts: convertAll(r.Conflicts, newConflict), Previous: r.Previous, PreviousName: r.PreviousName,
		Added: r.Added, Changed: r.Changed, Removed: r.Removed,
	}
}

// Sync merges the integration branch into the sandbox's branch, as git merge would: by a merge commit, or by a fast-forward
// if the sandbox has no commits of its own. Conflicts stay in the sandbox as an unfinished merge with conflict markers,
// and are returned as a *ConflictsError together with the result; resolving and committing them there completes the merge.
//
// No git process runs in the sandbox, so nothing that an agent configured there runs. The merge is made in memory, and the
// sandbox is then moved to the state that git would have left, in the same way as by a rollback. A snapshot of the state
// before is taken first, so that a rollback can undo the sync.
//
// Sync refuses while commands run in the sandbox (reason.Running), while a git operation is in progress, if HEAD is not on
// the sandbox's branch (reason.OffBranch), and if tracked files have uncommitted changes (*UncommittedError). Untracked
// files stay; Sync refuses if the merge would overwrite one. Ignored files in the way are kept in the snapshot and then
// replaced.
func (s *Sandbox) Sync(ctx context.Context) (SyncResult, error) {
	result, err := s.sandbox.Sync(ctx)
	return newSyncResult(result), publicError(err)
}

// Teardown ends the sandbox as Discard does: it ends the commands, keeps the content under a ref and removes the
// sandbox. It succeeds if the sandbox, or a part of it, is gone already.
func (s *Sandbox) Teardown(ctx context.Context) error {
	return publicError(doctor.Teardown(ctx, s.sandbox))
}
