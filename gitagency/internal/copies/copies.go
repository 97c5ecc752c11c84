// Package copies keeps copies of the user's files in a directory that commands of a sandbox write to: configuration files
// of git without secrets, settings of tools. A copy follows its original until the sandbox changes it.
//
// The directory may contain anything that an agent made, symbolic links above all. The package must never follow one out
// of it.
package copies

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxSize is the largest size of a file that is copied.
const MaxSize = 16 << 20

// File is a file to copy.
type File struct {
	Name     string      // relative to Set.Dir
	Original string      // content of the original
	Text     string      // content of the copy
	Mode     fs.FileMode // permissions of the copy; zero is 0644
}

// Set is a directory with copies.
type Set struct {
	Dir    string // required: directory with the copies
	Record string // required: directory that the sandbox cannot write to, with what was last copied

	// KeepRemoved leaves out a copy that was made before and is gone. Without it, as in the upper directory of an
	// overlay, where a removed file leaves a whiteout, a missing copy is made.
	KeepRemoved bool

	// Moved is a directory in Dir whose originals may move there. The copies in it stay when the originals are gone; empty
	// for none.
	Moved string
}

// Write makes the copies. One that the sandbox has changed or removed stays as it is; the others follow the originals. No
// command of the sandbox runs meanwhile. It continues after an error with the next file.
func (s Set) Write(files []File) error {
	written, err := listFiles(s.Record)
	if err != nil || len(files)+len(written) == 0 {
		return err
	}
	if err := os.MkdirAll(s.Record, 0o700); err != nil {
		return err
	}
	record, err := os.OpenRoot(s.Record)
	if err != nil {
		return err
	}
	defer record.Close()
	dir, err := os.OpenRoot(s.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	var failed error
	for _, f := range files {
		if err := (fileCopy{dir, record, f.Name}).write(f, s.KeepRemoved); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f.Name, err))
		}
	}
	for _, name := range written {
		switch {
		case slices.ContainsFunc(files, func(f File) bool { return f.Name == name }):
		case s.Moved != "" && strings.HasPrefix(name, s.Moved+"/"):
			failed = errors.Join(failed, record.Remove(name))
		default:
			if err := (fileCopy{dir, record, name}).remove(); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return failed
}

// fileCopy is a copy, and the record of it.
type fileCopy struct {
	dir, record *os.Root
	name        string
}

func (c fileCopy) write(f File, keepRemoved bool) error {
	have, exists := readRegular(c.dir, c.name)
	last, recorded := readRegular(c.record, c.name)
	isMountPoint := keepRemoved && exists && have == "" && !recorded // of a file that was granted
	switch {
	case !exists && recorded && keepRemoved:
		return nil
	case exists && !isMountPoint && (have != f.Original && !(recorded && have == last) || have == f.Text && recorded && last == f.Text):
		return nil
	}
	// The record first: a copy without one would count as changed by the sandbox.
	for _, root := range []*os.Root{c.record, c.dir} {
		if err := replaceIn(root, c.name, f.Text, cmp.Or(f.Mode, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a copy that is not wanted any more, unless the sandbox has changed it.
func (c fileCopy) remove() error {
	have, exists := readRegular(c.dir, c.name)
	if last, recorded := readRegular(c.record, c.name); exists && recorded && have == last {
		if err := c.dir.Remove(c.name); err != nil {
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
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > MaxSize {
		return "\x00", true
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return "\x00", true
	}
	return string(data), true
}

// replaceIn writes a file and its directories, in place of what is there.
func replaceIn(root *os.Root, name, text string, mode fs.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
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
