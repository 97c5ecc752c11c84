package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

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

// UploadFiles uploads files to the sandbox, all of them or none; see Upload.
func (s *Sandbox) UploadFiles(ctx context.Context, files []File) error {
	return s.Upload(ctx, UploadRequest{Files: files})
}

// Upload uploads files to the sandbox. If anything fails, takes longer than agency.operationTimeout or is cancelled,
// the sandbox is left as it was.
//
// Paths are relative to the sandbox; missing parent directories are created. Existing files are replaced, never
// written through. A path that leaves the sandbox or has a reserved name is a *ConfinementError, and so is a symbolic
// link that leaves the sandbox.
func (s *Sandbox) Upload(ctx context.Context, req UploadRequest) (err error) {
	if err := s.CheckNoOpenJob(); err != nil {
		return err
	}
	ctx, cancel, err := s.Repo.Settings.WithOperationTimeout(ctx, "put")
	if err != nil {
		return err
	}
	defer cancel()
	h, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := h.Close(); e != nil && err == nil { // the upload itself succeeded
			s.Repo.Warn("sandbox %s: %v", s.ID, e)
		}
	}()
	files := make([]upload.File, len(req.Files))
	for i, f := range req.Files {
		files[i] = upload.File(f)
	}
	var progress func(upload.Progress)
	if req.Progress != nil {
		progress = func(p upload.Progress) { req.Progress(UploadProgress(p)) }
	}
	timeout, err := s.Repo.Settings.LockTimeout()
	if err != nil {
		return err
	}
	if err := s.withTree(ctx, h, func(tree *guard.Tree) error {
		to := s.UploadTarget(tree)
		to.LockTimeout = timeout
		return upload.Put(ctx, to, s.Repo.BeginTx("put"), files, progress)
	}); err != nil {
		return fmt.Errorf("put files into %s: %w", s.ID, err)
	}
	event := putEvent{s.Repo.EventTime(), "put", 0}
	for _, f := range req.Files {
		if f.Mode.Type() != fs.ModeDir {
			event.Files++
		}
	}
	s.Repo.AppendEvent(s.ID, event)
	return nil
}

// UploadTarget returns the sandbox as a target of uploads.
func (s *Sandbox) UploadTarget(tree *guard.Tree) upload.Target {
	return upload.Target{Tree: tree, LockDir: s.Repo.Store.PutLockDir(s.Repo.ID, s.ID)}
}

type putEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Files int       `json:"files"`
}

// Locate resolves a path in the sandbox, relative to its top, and reports whether it is a directory. The path is
// relative, or absolute and inside the sandbox, and need not exist.
func (s *Sandbox) Locate(ctx context.Context, path string) (inside string, isDir bool, err error) {
	h, err := s.open(ctx)
	if err != nil {
		return "", false, err
	}
	err = s.withTree(ctx, h, func(tree *guard.Tree) (err error) {
		inside, isDir, err = tree.ResolvePath(path)
		return err
	})
	return inside, isDir, errors.Join(err, h.Close())
}
