package git

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ReaderOptions returns the options of a git that reads data of an agent within r.ReadLimits, behind walls: it can change
// the files below one directory alone, and can read gitDir, the objects of the repository and the paths in read, but no other
// file of the user's. what names the data, for errors. gitDir has no configuration but what git needs to open it; the
// settings for the interpretation of files are in the environment, those of the repository too if they are trusted.
//
// A git that was taken over through the data can leave any file in the writable directory. What is read there afterwards
// has to be opened without following symlinks, and checked.
func (r *Repo) ReaderOptions(what, write, gitDir string, trusted bool, read ...string) RunOptions {
	// The user's files with rules cannot be read there, and git would fail.
	noRules := []string{"-c", "core.excludesFile=" + os.DevNull, "-c", "core.attributesFile=" + os.DevNull}
	p := RunOptions{GitDir: gitDir, Config: noRules, Reading: readlimit.Reading{Limits: r.ReadLimits, What: what}}
	program, err := proc.LookPath(r.Env, "git")
	if err == nil { // else git fails too
		p.Reading.Walls = readlimit.NewWalls(program, r.Env, slices.Concat(r.ReadableObjects(), []string{gitDir}, read), []string{write})
	}
	p.Env = append(r.configAsEnv(p.Reading.Environment(r.Env, gitDir), trusted), "GIT_NO_REPLACE_OBJECTS=1")
	return p
}

// objectDirs lists the object directories that belong to the repository; the first one takes new objects.
func (r *Repo) objectDirs() []string {
	dirs := []string{filepath.Join(r.CommonDir, "objects")}
	if r.dryRunDir != "" {
		dirs = slices.Insert(dirs, 0, filepath.Join(r.dryRunDir, "objects"))
	}
	return dirs
}

// ReadableObjects lists all directories from which git reads objects. A directory of packs may be a symlink.
func (r *Repo) ReadableObjects() []string {
	var dirs []string
	for _, dir := range slices.Concat(r.objectDirs(), r.Alternates()) {
		dirs = append(dirs, dir, filepath.Join(dir, "pack"))
	}
	return dirs
}

// ObjectsInto returns the environment of a git that reads the objects of the repository and writes new ones into another
// directory.
func (r *Repo) ObjectsInto(dir string) []string {
	var alternates []string
	for _, dir := range r.objectDirs() {
		alternates = append(alternates, QuoteAlternate(dir))
	}
	return []string{"GIT_OBJECT_DIRECTORY=" + dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strings.Join(alternates, ":")}
}
