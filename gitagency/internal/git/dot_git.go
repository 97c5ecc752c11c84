package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DotGitTarget returns the git directory that the .git of a worktree points at; empty when it points at none. For a
// main worktree that is its own .git directory.
func DotGitTarget(tree string) (string, error) {
	dotGit := filepath.Join(tree, ".git")
	fi, err := os.Lstat(dotGit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case fi.IsDir():
		return dotGit, nil
	}
	data, err := ReadSmallFile(tree, ".git")
	if err != nil {
		return "", err
	}
	return parseDotGit(tree, data), nil
}

// missingGitDir returns the git directory that the .git of the innermost worktree around a directory names, if that does
// not exist; else empty.
func missingGitDir(dir string) string {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		at, err := DotGitTarget(dir)
		if err != nil || at == "" {
			continue
		}
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			return at
		}
		return ""
	}
	return ""
}

// parseDotGit reads a .git file as git does; it returns "" when git would not accept it.
func parseDotGit(tree string, data []byte) string {
	path, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	switch {
	case !ok || path == "":
		return ""
	case !filepath.IsAbs(path):
		return filepath.Join(tree, path)
	}
	return path
}
