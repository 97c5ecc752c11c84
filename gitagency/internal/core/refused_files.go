package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// refusedFiles is the saved reason why a command refused the files of a sandbox, for 'show' and 'doctor'. Exactly one of
// Exceeded and Invalid is set.
type refusedFiles struct {
	Exceeded *fault.ReadLimitError   `json:"exceeded,omitempty"`
	Invalid  *fault.InvalidTreeError `json:"invalid,omitempty"`
	Limits   string                  `json:"limits,omitempty"` // the limits that were in force
	File     string                  `json:"file,omitempty"`   // fingerprint of the invalid file
}

func (r *Repository) refusedFilesPath(id string) string {
	return filepath.Join(r.Git.AdminDir(id), "agency-refused-files")
}

// SaveFilesRefusal saves why a command that read the files of a sandbox refused them, if it did: err is nil if it did not.
// checked says whether it also refuses files that must not be committed. SaveFilesRefusal returns err, joined with a
// failure to save it.
func (r *Repository) SaveFilesRefusal(id string, err error, checked bool) error {
	refused := refusedFiles{Limits: r.limitsText()}
	switch {
	case err == nil:
		saved := r.readRefusedFiles(id)
		if saved == nil || saved.Invalid != nil && !checked {
			return nil
		}
		if err := durable.Remove(r.refusedFilesPath(id)); err != nil {
			r.Warn("sandbox %s: %v", id, err)
		}
		return nil
	case errors.As(err, &refused.Exceeded):
	case errors.As(err, &refused.Invalid):
		refused.File = r.fileFingerprint(id, refused.Invalid.Path)
	default:
		return err
	}
	data, encodeErr := json.Marshal(refused)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	saveErr := durable.WriteFile(r.refusedFilesPath(id), append(data, '\n'), 0o600)
	if saveErr == nil || errors.Is(saveErr, fs.ErrNotExist) { // the worktree has been unregistered
		return err
	}
	return errors.Join(err, saveErr)
}

// RefusedFiles returns why the last command that read the files of a sandbox refused them; nil if it did not, or if the
// limits that they exceeded or the file that it names have changed since.
func (r *Repository) RefusedFiles(id string) error {
	saved := r.readRefusedFiles(id)
	switch {
	case saved == nil:
		return nil
	case saved.Exceeded != nil && saved.Limits == r.limitsText():
		return saved.Exceeded
	case saved.Invalid != nil && saved.File != "" && saved.File == r.fileFingerprint(id, saved.Invalid.Path):
		return saved.Invalid
	}
	return nil
}

// readRefusedFiles returns nil if nothing is saved, or what is saved cannot be read: the next refusal replaces it.
func (r *Repository) readRefusedFiles(id string) *refusedFiles {
	data, err := durable.ReadFile(r.refusedFilesPath(id), 1<<20)
	saved := &refusedFiles{}
	if err != nil || json.Unmarshal(data, saved) != nil {
		return nil
	}
	return saved
}

// fileFingerprint returns a fingerprint of the stat data of a file in a sandbox; empty when it does not exist.
func (r *Repository) fileFingerprint(id, path string) string {
	dir, err := r.WrittenDir(id) // a file that is refused is new or changed
	if err != nil {
		return ""
	}
	tree, err := guard.OpenTree(dir)
	if err != nil {
		return ""
	}
	defer tree.Close()
	fi, err := tree.Lstat(path)
	if err != nil {
		return ""
	}
	return durable.StatFingerprint(fi)
}

func (r *Repository) limitsText() string { return fmt.Sprintf("%+v", r.Git.ReadLimits) }
