package git

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// AddExclude makes sure that info/exclude, which applies to every worktree, has the line. undo restores the file byte
// for byte, unless it was changed since; it is nil when the line was there already.
func (r *Repo) AddExclude(line string) (undo func() error, err error) {
	path, before, err := r.readExclude()
	if err == nil {
		err = durable.RemoveTemps(filepath.Dir(path))
	}
	if err != nil || hasLine(before, line) {
		return nil, err
	}
	after := slices.Clone(before)
	if len(after) > 0 && after[len(after)-1] != '\n' {
		after = append(after, '\n')
	}
	after = append(after, line+"\n"...)
	return func() error {
		_, now, err := r.readExclude()
		switch {
		case err != nil || !bytes.Equal(now, after):
			return err
		case before == nil:
			return durable.Remove(path)
		default:
			return writeExclude(path, before)
		}
	}, writeExclude(path, after) // a failed write can still have happened
}

// States of info/exclude before a line was added. The state is empty when the line was there already.
const (
	ExcludeAbsent         = "absent"
	ExcludeNoFinalNewline = "unended" // its last line had no newline
	ExcludeFinalNewline   = "ended"
)

// ExcludeState returns the present state of info/exclude, which RemoveExclude needs in a later process. It is empty
// when the line is in the file.
func (r *Repo) ExcludeState(line string) (string, error) {
	_, data, err := r.readExclude()
	switch {
	case err != nil || hasLine(data, line):
		return "", err
	case data == nil:
		return ExcludeAbsent, nil
	case len(data) > 0 && data[len(data)-1] != '\n':
		return ExcludeNoFinalNewline, nil
	}
	return ExcludeFinalNewline, nil
}

// RemoveExclude removes a line that AddExclude added to a file of the given state. A file that was extended since is
// left alone.
func (r *Repo) RemoveExclude(line, before string) error {
	path, data, err := r.readExclude()
	if err != nil || before == "" {
		return err
	}
	rest, last := bytes.CutSuffix(data, []byte(line+"\n"))
	if !last || len(rest) > 0 && rest[len(rest)-1] != '\n' {
		return nil
	}
	if before == ExcludeNoFinalNewline {
		rest = bytes.TrimSuffix(rest, []byte("\n"))
	}
	if before == ExcludeAbsent && len(rest) == 0 {
		return durable.Remove(path)
	}
	return writeExclude(path, rest)
}

// readExclude resolves a symlink first: some users keep the file elsewhere, and a rename would replace their link.
func (r *Repo) readExclude() (path string, data []byte, err error) {
	path = filepath.Join(r.CommonDir, "info", "exclude")
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", nil, err // a dangling symlink
		}
	}
	data, err = durable.ReadFile(path, 1<<24)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return path, data, err
}

func writeExclude(path string, data []byte) error {
	perm := fs.FileMode(0o644)
	if fi, err := os.Stat(path); err == nil {
		perm = fi.Mode().Perm()
	} else if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return durable.WriteFile(path, data, perm)
}

func hasLine(data []byte, line string) bool {
	for l := range strings.Lines(string(data)) {
		if strings.TrimRight(l, "\r\n") == line {
			return true
		}
	}
	return false
}
