package handoff

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// FilteredFile is a file of the git directory that contains secrets.
type FilteredFile struct {
	Name     string // relative to the git directory
	Original string
	Text     string // without secrets
}

// WriteFilteredFiles writes files without secrets to the upper directory of the overlay over the git directory, where
// they take the place of the originals. A file that the sandbox has changed or removed stays as it is; the others follow
// the originals. No command runs meanwhile. record is a directory that the sandbox cannot write to, with copies of the
// files that were written.
//
// The upper directory may contain symbolic links of the sandbox, which must not lead out of it.
func WriteFilteredFiles(upper, record string, files []FilteredFile) error {
	written, err := listFiles(record)
	if err != nil || len(files)+len(written) == 0 {
		return err
	}
	if err := os.MkdirAll(record, 0o700); err != nil {
		return err
	}
	recordRoot, err := os.OpenRoot(record)
	if err != nil {
		return err
	}
	defer recordRoot.Close()
	upperRoot, err := os.OpenRoot(upper)
	if err != nil {
		return err
	}
	defer upperRoot.Close()
	for _, f := range files {
		if err := (filteredCopy{upperRoot, recordRoot, f.Name}).write(f); err != nil {
			return err
		}
	}
	for _, name := range written {
		if !slices.ContainsFunc(files, func(f FilteredFile) bool { return f.Name == name }) {
			if err := (filteredCopy{upperRoot, recordRoot, name}).remove(); err != nil {
				return err
			}
		}
	}
	return nil
}

// filteredCopy is a file in the upper directory, and its copy in the record.
type filteredCopy struct {
	upper, record *os.Root
	name          string
}

func (c filteredCopy) write(f FilteredFile) error {
	if have, exists := readRegular(c.upper, c.name); exists {
		last, recorded := readRegular(c.record, c.name)
		if have != f.Original && !(recorded && have == last) || have == f.Text && recorded && last == f.Text {
			return nil
		}
	}
	// The record first: a file in the upper directory without one would count as changed by the sandbox.
	for _, root := range []*os.Root{c.record, c.upper} {
		if err := replaceIn(root, c.name, f.Text); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file that needs no filter any more, so that the original shows.
func (c filteredCopy) remove() error {
	have, exists := readRegular(c.upper, c.name)
	if last, recorded := readRegular(c.record, c.name); exists && recorded && have == last {
		if err := c.upper.Remove(c.name); err != nil {
			return err
		}
	}
	return c.record.Remove(c.name)
}

// readRegular reads a regular file. For anything else that exists, such as a whiteout, the text matches no file.
func readRegular(root *os.Root, name string) (text string, exists bool) {
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	const limit = 1 << 20
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > limit {
		return "\x00", true
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return "\x00", true
	}
	return string(data), true
}

// replaceIn writes a file and its directories, in place of what is there.
func replaceIn(root *os.Root, name, text string) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// listFiles lists the files below a directory, which may not exist.
func listFiles(dir string) (names []string, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var name string
			name, err = filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	return names, err
}
