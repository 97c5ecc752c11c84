package git

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

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

// IsDryRun reports whether all writes go into the directory of DryRunRepo.
func (r *Repo) IsDryRun() bool { return r.dryRunDir != "" }

// QuoteAlternate quotes a path for the colon-separated list in GIT_ALTERNATE_OBJECT_DIRECTORIES.
func QuoteAlternate(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
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
