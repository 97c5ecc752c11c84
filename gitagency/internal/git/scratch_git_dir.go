package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// DryRunRepo returns the repository with all writes directed into dir.
func (r *Repo) DryRunRepo(dir string) *Repo {
	rehearsed := *r
	rehearsed.dryRunDir = dir
	objects := QuoteAlternate(filepath.Join(r.CommonDir, "objects"))
	if more, is := proc.LookupEnv(r.Env, "GIT_ALTERNATE_OBJECT_DIRECTORIES"); is { // set in the repository of a merger
		objects += ":" + more
	}
	rehearsed.Env = append(slices.Clone(r.Env),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+objects)
	return &rehearsed
}

// QuoteAlternate quotes a path for the colon-separated list in GIT_ALTERNATE_OBJECT_DIRECTORIES.
func QuoteAlternate(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

// MakeScratchGitDir makes a scratch git directory for a worktree: see FillScratchGitDir. Git then sees the files of
// the worktree, but reads no configuration that an agent in it could have written. The returned function deletes the
// directory.
func (r *Repo) MakeScratchGitDir(s WorktreeSpec, head string) (RunOptions, func() error, error) {
	if fi, err := os.Lstat(s.Dir); s.Dir != "" && (err != nil || !fi.IsDir()) {
		return RunOptions{}, nil, errors.Join(fmt.Errorf("%s is not a directory", s.Dir), err)
	}
	// An agent may have removed its own permissions; git would skip such a directory silently. In a worktree that is in
	// use nothing is changed, and the scan reports the directory.
	for _, dir := range []string{s.Dir, r.AdminDir(s.Name)} {
		if dir == "" || s.InUse {
			continue
		}
		if _, _, err := WalkWorktree(dir); errors.Is(err, fs.ErrPermission) {
			if r.dryRunDir != "" {
				return RunOptions{}, nil, err
			}
			if err := durable.RestoreOwnerPermissions(dir); err != nil {
				return RunOptions{}, nil, err
			}
		}
	}
	dir := filepath.Join(r.AgencyDir(), CapturePrefix+s.Name)
	if err := durable.RemoveTree(dir); err != nil { // of a capture that was killed
		return RunOptions{}, nil, err
	}
	done := func() error { return durable.RemoveTree(dir) }
	env, err := r.FillScratchGitDir(s, head, dir)
	if err != nil {
		return RunOptions{}, nil, errors.Join(err, done())
	}
	return RunOptions{
		GitDir: dir, WorkTree: s.Dir,
		Env:    env,
		Config: []string{"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false"},
	}, done, nil
}

// FillScratchGitDir fills a git directory of our own: a HEAD, and for the rest a commondir that points at the common
// directory. Where the repository's configuration is untrusted it shares only the objects. A git that works there
// needs the returned environment.
func (r *Repo) FillScratchGitDir(s WorktreeSpec, head, dir string) (env []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	env = []string{"GIT_NO_REPLACE_OBJECTS=1"}
	files := map[string]string{"HEAD": head}
	if s.TrustConfig {
		files["commondir"] = r.CommonDir
	} else {
		objects, err := r.fillUntrustedGitDir(head, dir)
		if err != nil {
			return nil, err
		}
		env = append(env, objects...)
	}
	if head == "" {
		files["HEAD"] = "ref: refs/heads/none"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o666); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// CopyIndexFiles copies the index of a worktree, with the shared files of a split index, into a directory.
func (r *Repo) CopyIndexFiles(name, dir string) error {
	admin := r.AdminDir(name)
	entries, err := os.ReadDir(admin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "index" && !strings.HasPrefix(e.Name(), "sharedindex.") {
			continue
		}
		if err := CopyFileWithMtime(filepath.Join(admin, e.Name()), filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// CopyFileWithMtime copies a regular file and its modification time: git re-reads the files of entries that are as
// new as the index (racy git), and would take them for unchanged if the copy looked newer.
func CopyFileWithMtime(from, to string) (err error) {
	src, fi, err := OpenRegular(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return os.Chtimes(to, fi.ModTime(), fi.ModTime())
}

// OpenRegular opens a regular file; the error is fs.ErrNotExist for any other kind. It does not block, because an agent
// could have put a pipe there.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, fi, nil
}
