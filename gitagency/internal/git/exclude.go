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

// Exclude makes sure that line stands in info/exclude, which serves every worktree at once. What it
// returns takes that back, byte for byte, unless somebody changed the file since; it is nil when
// there was nothing to add.
func (r *Repo) Exclude(line string) (undo func() error, err error) {
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
	}, writeExclude(path, after) // which can fail and still have happened
}

// The ways info/exclude was before a line was added to it. One that is there already adds nothing.
const (
	ExcludeAbsent  = "absent"
	ExcludeUnended = "unended" // its last line had no end
	ExcludeEnded   = "ended"
)

// ExcludeState says how info/exclude is now, for whoever has to take a line back later without having
// been there: empty when the line is in it.
func (r *Repo) ExcludeState(line string) (string, error) {
	_, data, err := r.readExclude()
	switch {
	case err != nil || hasLine(data, line):
		return "", err
	case data == nil:
		return ExcludeAbsent, nil
	case len(data) > 0 && data[len(data)-1] != '\n':
		return ExcludeUnended, nil
	}
	return ExcludeEnded, nil
}

// Unexclude takes a line back that Exclude added to a file that was like that before. A file that
// somebody has added to since stays.
func (r *Repo) Unexclude(line, before string) error {
	path, data, err := r.readExclude()
	if err != nil || before == "" {
		return err
	}
	rest, last := bytes.CutSuffix(data, []byte(line+"\n"))
	if !last || len(rest) > 0 && rest[len(rest)-1] != '\n' {
		return nil
	}
	if before == ExcludeUnended {
		rest = bytes.TrimSuffix(rest, []byte("\n"))
	}
	if before == ExcludeAbsent && len(rest) == 0 {
		return durable.Remove(path)
	}
	return writeExclude(path, rest)
}

// readExclude resolves a symlink first: some people keep the file elsewhere, and a rename would
// replace their link.
func (r *Repo) readExclude() (path string, data []byte, err error) {
	path = filepath.Join(r.CommonDir, "info", "exclude")
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", nil, err // it leads nowhere, for now
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
