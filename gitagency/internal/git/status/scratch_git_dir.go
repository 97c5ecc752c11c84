package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// lazyScratchGitDir returns a function that makes a scratch git directory at its first call, and one that removes it.
func lazyScratchGitDir(r *git.Repo, s git.WorktreeSpec, head string) (scratch func() (git.RunOptions, error), remove func() error) {
	var done func() error
	scratch = sync.OnceValues(func() (p git.RunOptions, err error) {
		p, done, err = makeScratchGitDir(r, s, head)
		return p, err
	})
	return scratch, func() error {
		if done == nil {
			return nil
		}
		return done()
	}
}

// makeScratchGitDir makes a scratch directory for a worktree, and returns the options of a git that reads data of the
// worktree there, behind walls: see Repo.ReaderOptions. It is the git directory; below it are a work tree for copies of
// files and a directory for what git makes of them, the only one that git can change. The returned function deletes all
// of it.
func makeScratchGitDir(r *git.Repo, s git.WorktreeSpec, head string) (git.RunOptions, func() error, error) {
	if fi, err := os.Lstat(s.Dir); s.Dir != "" && (err != nil || !fi.IsDir()) {
		return git.RunOptions{}, nil, errors.Join(fmt.Errorf("%s is not a directory", s.Dir), err)
	}
	// In a worktree that is in use nothing is changed, and the scan reports what cannot be read.
	if !s.InUse {
		if _, err := walkReadable(r, git.WorktreeSpec{Dir: r.AdminDir(s.Name)}); errors.Is(err, fs.ErrPermission) {
			return git.RunOptions{}, nil, err
		}
	}
	dir := filepath.Join(r.AgencyDir(), git.CapturePrefix+s.Name)
	if err := durable.RemoveTree(dir); err != nil { // of a capture that was killed
		return git.RunOptions{}, nil, err
	}
	done := func() error { return durable.RemoveTree(dir) }
	p, err := fillScratchGitDir(r, s, head, dir)
	if err != nil {
		return git.RunOptions{}, nil, errors.Join(err, done())
	}
	return p, done, nil
}

func fillScratchGitDir(r *git.Repo, s git.WorktreeSpec, head, dir string) (git.RunOptions, error) {
	own := s
	own.TrustConfig = false // it has a configuration of its own
	if _, err := r.FillScratchGitDir(own, head, dir); err != nil {
		return git.RunOptions{}, err
	}
	for _, name := range []string{copiesDir, outputDir, filepath.Join(outputDir, objectsDir)} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return git.RunOptions{}, err
		}
	}
	attributes := filepath.Join(dir, "attributes")
	if from := userRuleFile(r, s, "core.attributesfile", "attributes"); filepath.IsAbs(from) {
		if err := git.CopySmallFile(from, attributes); err != nil && !git.IsNotExist(err) {
			return git.RunOptions{}, err
		}
	}
	p := r.ReaderOptions("reading the files of "+s.Dir, filepath.Join(dir, outputDir), dir, s.TrustConfig)
	if limits := conversionLimits(r); limits != r.ReadLimits {
		p.Reading.Limits, p.Reading.What = limits, p.Reading.What+", with a quarter of the time because the repository is locked,"
	}
	p.WorkTree, p.Env = filepath.Join(dir, copiesDir), slices.Concat(p.Env, r.ObjectsInto(filepath.Join(dir, outputDir, objectsDir)))
	p.Config = slices.Concat(p.Config, conversionArgs(), []string{"-c", "core.attributesFile=" + attributes})
	p.NoFsync = true // nothing there lasts
	return p, nil
}

// Directories in the scratch directory.
const (
	copiesDir  = "tree"    // copies of files
	outputDir  = "output"  // what git makes of them: indexes, and
	objectsDir = "objects" // blobs
	filterDir  = "filters" // git directory of a git that runs filters, with a directory for its output
)

// conversionArgs are options for a git that converts files.
func conversionArgs() []string {
	return []string{
		"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false",
		"-c", "core.bigFileThreshold=1024g", // makes every blob a loose object
	}
}

// conversionLimits returns the limits of converting the files of a worktree with rules of an agent: r.ReadLimits, but a
// quarter of the time while the repository is locked. With the default limits, other commands then wait for less time than
// they do by default.
func conversionLimits(r *git.Repo) readlimit.Limits {
	limits := r.ReadLimits
	if len(r.Inherit) > 0 {
		limits.Time /= 4
	}
	return limits
}

// filterOptions returns the options of a git that runs the user's filters on the copied files. It has no walls: a filter
// such as Git LFS needs the user's configuration, files and network.
func filterOptions(r *git.Repo, s git.WorktreeSpec, head string, reader git.RunOptions) (git.RunOptions, error) {
	dir := filepath.Join(reader.GitDir, filterDir)
	env, err := r.FillScratchGitDir(s, head, dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, outputDir, objectsDir), 0o700)
	}
	if err != nil {
		return git.RunOptions{}, err
	}
	p := git.RunOptions{GitDir: dir, WorkTree: reader.WorkTree, Config: conversionArgs(), NoFsync: true, Reading: r.ReadingOf("reading the files of " + s.Dir)}
	p.Env = slices.Concat(env, r.ObjectsInto(filepath.Join(dir, outputDir, objectsDir)))
	return p, nil
}
