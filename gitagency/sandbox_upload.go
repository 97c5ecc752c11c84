package gitagency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// File is something to put into a sandbox: a regular file, a directory or a symbolic link.
type File = guard.File

// UploadRequest says what to put into a sandbox.
type UploadRequest struct {
	Files    []File                // required
	Progress func(done, total int) // hears how many files are written, never two at a time; may be nil
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
	ctx, cancel, err := s.bounded(ctx, "put")
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
	if err := site.Put(ctx, s.repo.begin("put"), req.Files, req.Progress); err != nil {
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
