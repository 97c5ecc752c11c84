// Package rootfs looks into an unpacked root file system, such as that of a container image. It follows symbolic links as
// a program does for which it is the root directory, so that none leads out of it.
//
// It must never write there, and it knows nothing of walls: package confine mounts the directory.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Path is the PATH of commands in a root file system of which no other is known.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PathOf returns the PATH of an environment, or Path if it has none.
func PathOf(env []string) string {
	found := Path
	for _, kv := range env {
		if value, is := strings.CutPrefix(kv, "PATH="); is && value != "" {
			found = value
		}
	}
	return found
}

// MaxEntries bounds the entries of a directory that is listed, because files of the machine are mounted among them.
const MaxEntries = 4096

// listed are the directories of a root file system that are listed.
var listed = []string{"/", "/etc", "/usr", "/usr/local", "/usr/local/bin", "/var"}

// Check returns the reason why a directory cannot be a root file system; nil if it can.
func Check(dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it does not exist")
	case err != nil:
		return err
	case !fi.IsDir():
		return errors.New("it is no directory")
	}
	for _, name := range listed {
		entries, err := count(dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDirectory):
		case err != nil:
			return fmt.Errorf("its directory %s cannot be listed: %w", name, err)
		case entries > MaxEntries:
			return fmt.Errorf("its directory %s has more than %d entries", name, MaxEntries)
		}
	}
	for _, programs := range []string{"bin", "usr/bin", "usr/local/bin"} {
		if _, err := open(dir, programs); err == nil {
			return nil
		}
	}
	return errors.New("it has neither bin nor usr/bin, so it is no root file system")
}

var errNoDirectory = errors.New("it is no directory")

// LookPath finds a program in the root file system at dir as the kernel does there: an absolute path, or a name on a PATH.
// It returns the path that the program has there.
func LookPath(dir, searchPath, program string) (string, error) {
	if path.IsAbs(program) {
		return program, checkExecutable(dir, program)
	}
	if strings.Contains(program, "/") {
		return "", fmt.Errorf("%s is neither a name nor an absolute path", program)
	}
	for _, at := range strings.Split(searchPath, ":") {
		if candidate := path.Join(at, program); path.IsAbs(at) && checkExecutable(dir, candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s is not on the PATH of %s", program, dir)
}

// checkExecutable returns an error that says why a path in the root file system at dir is no program.
func checkExecutable(dir, program string) error {
	fi, err := open(dir, program)
	switch {
	case err != nil:
		return fmt.Errorf("%s in %s: %w", program, dir, err)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s in %s is not a regular file", program, dir)
	case fi.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s in %s is not executable", program, dir)
	}
	return nil
}

// User is the user that commands run as.
type User struct {
	UID, GID   int
	Name, Home string
}

// File is a file of a root file system with another content.
type File struct{ Path, Text string }

// maxUsers bounds the size of the lists of users and groups that are read.
const maxUsers = 64 << 10

// NameUser returns the lists of users and groups of the root file system at dir, each completed with the ids of u where they
// are missing: many programs fail if their user has no name. A list in which nothing is missing is left out.
func NameUser(dir string, u User) (files []File) {
	for _, list := range []struct {
		path  string
		id    int
		entry func(name string) string
	}{
		{"/etc/passwd", u.UID, func(name string) string {
			return fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", name, u.UID, u.GID, field(u.Home))
		}},
		{"/etc/group", u.GID, func(name string) string { return fmt.Sprintf("%s:x:%d:\n", name, u.GID) }},
	} {
		text, err := readFile(dir, list.path, maxUsers)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // such as a list for root alone: the commands cannot read it either
		}
		var names []string
		known := false
		for line := range strings.Lines(text) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
			names = append(names, fields[0])
			known = known || len(fields) > 2 && fields[2] == strconv.Itoa(list.id)
		}
		if known {
			continue
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		files = append(files, File{list.path, text + list.entry(unusedName(u.Name, list.id, names))})
	}
	return files
}

// unusedName returns a name for an id: the one given, or one made from the id if that is used or is none.
func unusedName(name string, id int, used []string) string {
	if id == 0 {
		name = "root"
	}
	if name = field(name); name != "" && !slices.Contains(used, name) {
		return name
	}
	return "u" + strconv.Itoa(id)
}

// field returns a text as a field of a list; empty if it cannot be one.
func field(text string) string {
	if strings.ContainsAny(text, ":\n\x00") {
		return ""
	}
	return text
}
