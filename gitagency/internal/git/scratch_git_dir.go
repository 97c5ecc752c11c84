package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// makeScratchGitDir makes a scratch git directory for a worktree: see fillScratchGitDir. Git then sees the files of
// the worktree, but reads no configuration that an agent in it could have written. The returned function deletes the
// directory.
func (r *Repo) makeScratchGitDir(s WorktreeSpec, head string) (runOptions, func() error, error) {
	if fi, err := os.Lstat(s.Dir); s.Dir != "" && (err != nil || !fi.IsDir()) {
		return runOptions{}, nil, errors.Join(fmt.Errorf("%s is not a directory", s.Dir), err)
	}
	// An agent may have removed its own permissions; git would skip such a directory silently. With asIs nothing is
	// changed, and the scan reports the directory.
	for _, dir := range []string{s.Dir, r.AdminDir(s.Name)} {
		if dir == "" || s.inUse {
			continue
		}
		if _, _, err := walkWorktree(dir); errors.Is(err, fs.ErrPermission) {
			if r.dryRunDir != "" {
				return runOptions{}, nil, err
			}
			if err := durable.RestoreOwnerPermissions(dir); err != nil {
				return runOptions{}, nil, err
			}
		}
	}
	dir := filepath.Join(r.agencyDir(), capturePrefix+s.Name)
	if err := durable.RemoveTree(dir); err != nil { // of a capture that was killed
		return runOptions{}, nil, err
	}
	done := func() error { return durable.RemoveTree(dir) }
	env, err := r.fillScratchGitDir(s, head, dir)
	if err != nil {
		return runOptions{}, nil, errors.Join(err, done())
	}
	return runOptions{
		gitDir: dir, workTree: s.Dir,
		env:    env,
		config: []string{"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false"},
	}, done, nil
}

// fillScratchGitDir fills a git directory of our own: a HEAD, and for the rest a commondir that points at the common
// directory. Where the repository's configuration is untrusted it shares only the objects. A git that works there
// needs the returned environment.
func (r *Repo) fillScratchGitDir(s WorktreeSpec, head, dir string) (env []string, err error) {
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

// copyIndexFiles copies the index of a worktree, with the shared files of a split index.
func (r *Repo) copyIndexFiles(name, dir string) error {
	admin := r.AdminDir(name)
	entries, err := os.ReadDir(admin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "index" && !strings.HasPrefix(e.Name(), "sharedindex.") {
			continue
		}
		if err := copyFileWithMtime(filepath.Join(admin, e.Name()), filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyFileWithMtime copies a regular file and its modification time: git re-reads the files of entries that are as
// new as the index (racy git), and would take them for unchanged if the copy looked newer.
func copyFileWithMtime(from, to string) (err error) {
	src, fi, err := openRegular(from)
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

// openRegular opens a regular file. It does not block, because an agent could have put a pipe there.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
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
