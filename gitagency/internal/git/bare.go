package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// InitBare creates a bare repository in an existing directory, for nothing but objects and refs: without hooks and
// templates. It does not run "git init", so that neither the version nor the configuration of git changes the result.
func InitBare(dir string) error {
	if err := InitBareAs(dir, object.SHA1); err != nil {
		return err
	}
	return durable.Sync(filepath.Join(dir, "HEAD"), filepath.Join(dir, "config"), dir)
}

// InitBareAs is InitBare for an object format, without fsync.
func InitBareAs(dir string, format object.Format) error {
	config := "[core]\n\tbare = true\n\trepositoryformatversion = 1\n"
	if format == object.SHA256 {
		config += "[extensions]\n\tobjectFormat = sha256\n"
	}
	for _, name := range []string{"objects", "refs"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{"HEAD": "ref: refs/heads/none\n", "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// OpenBare opens a repository that InitBare has created or will create; until then only the user's configuration is
// read. The repository that env points at does not matter.
func OpenBare(ctx context.Context, dir string, env []string) (*Repo, error) {
	repo := &Repo{CommonDir: dir, GitDir: dir, Env: scrubEnv(env)}
	run := Runner{Dir: "/", Env: append(scrubEnv(env), "GIT_DIR="+dir)}
	version := proc.Async(func() (Version, error) { return readVersion(ctx, run) })
	config, err := readConfig(ctx, run)
	v, verr := version()
	switch {
	case verr != nil || err != nil:
		return nil, errors.Join(verr, err)
	case !v.AtLeast(MinimumVersion):
		return nil, &TooOldError{Have: v}
	}
	repo.Version, repo.Config = v, config
	return repo, nil
}

// ForBareDir returns a Repo for another bare repository of InitBare, with the same version, configuration and
// environment.
func (r *Repo) ForBareDir(dir string) *Repo {
	sibling := *r
	sibling.CommonDir, sibling.GitDir = dir, dir
	return &sibling
}

// EnclosingRepo returns the innermost directory, dir itself or a parent, that is a git directory or contains one;
// empty when there is none. In dir itself a .git of any kind counts.
func EnclosingRepo(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		is, err := IsGitDir(at)
		if err != nil || is {
			return at, err
		}
		dot := filepath.Join(at, ".git")
		fi, err := os.Lstat(dot)
		switch {
		case err != nil && !IsNotExist(err):
			return "", err
		case err == nil && (at == dir || !fi.IsDir()):
			return at, nil
		case err == nil:
			if is, err := IsGitDir(dot); err != nil || is { // git ignores a .git directory that is no git directory
				return at, err
			}
		}
		if at == filepath.Dir(at) {
			return "", nil
		}
	}
}
