package gitagency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// File is something to put into a sandbox: a regular file, a directory or a symbolic link.
type File struct {
	Path string // relative to the top of the sandbox; directories on the way are made

	// Content is what a file holds, or where a symbolic link leads.
	Content []byte

	// Open is asked instead of Content, once and only when it is the file's turn.
	Open func() (io.ReadCloser, error)

	// Mode has the type, one of regular, fs.ModeDir and fs.ModeSymlink, and the permissions, which are set
	// whatever the umask says. Without any they are 0644, of a directory 0755. A directory that is there
	// already keeps its own.
	Mode fs.FileMode
}

// UploadRequest says what to put into a sandbox.
type UploadRequest struct {
	Files    []File               // required
	Progress func(UploadProgress) // hears how much is written, never two at a time; may be nil
}

// UploadProgress is how far an upload is.
type UploadProgress struct {
	Files, Total int   // how many files are written, and how many there are
	Bytes        int64 // written so far
}

// UploadFiles puts files into the sandbox, all of them or none; see Upload.
func (s *Sandbox) UploadFiles(ctx context.Context, files []File) error {
	return s.Upload(ctx, UploadRequest{Files: files})
}

// Upload puts files into the sandbox, all of them or, when anything fails, takes longer than
// OperationTimeout or is cancelled, none: then the sandbox is as it was.
//
// Paths are relative to the sandbox, and directories on the way are made. What is there already is replaced
// and never written through. A path that leads out, or is called what nothing in a sandbox may be called, is
// a *ConfinementError, and so is a symbolic link that leads out.
func (s *Sandbox) Upload(ctx context.Context, req UploadRequest) (err error) {
	ctx, cancel, err := s.repo.bounded(ctx, "put")
	if err != nil {
		return err
	}
	defer cancel()
	site, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := site.close(); e != nil && err == nil { // what was put is there
			s.repo.warn("sandbox %s: %v", s.ID, e)
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
	if err := upload.Put(ctx, site.Tree, s.repo.begin("put"), files, progress); err != nil {
		return fmt.Errorf("put files into %s: %w", s.ID, err)
	}
	event := putEvent{s.repo.now(), "put", 0}
	for _, f := range req.Files {
		if f.Mode.Type() != fs.ModeDir {
			event.Files++
		}
	}
	s.repo.record(s.ID, event)
	return nil
}

type putEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Files int       `json:"files"`
}

// Locate says where a path leads in the sandbox, relative to its top, and whether a directory is there. The
// path is relative or an absolute one inside, and need not exist.
func (s *Sandbox) Locate(ctx context.Context, path string) (inside string, isDir bool, err error) {
	site, err := s.open(ctx)
	if err != nil {
		return "", false, err
	}
	if inside, isDir, err = site.Locate(path); err != nil {
		return "", false, errors.Join(err, site.close())
	}
	return inside, isDir, site.close()
}
