package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// GitConfigFile is a configuration file of git that contains secrets, or another file of a git directory with URLs.
type GitConfigFile struct {
	Path     string // with symbolic links resolved
	Original string
	Text     string // without secrets

	Unparsable bool // it is too large, or cannot be parsed, and Text is empty
}

// GitConfigSecrets are the secrets in the configuration files of git that commands behind walls could read.
type GitConfigSecrets struct {
	Files       []GitConfigFile
	SecretFiles []string // files with secrets that settings name, such as cookies

	UserFiles  []GitConfigFile // files of the user and what they include, under the names by which git reads them, without secrets
	NamedFiles []string        // other files that settings of the user name, such as ignore rules
	NamedDirs  []string        // directories that settings of the user name, such as hooks

	Paths []string // all configuration files and the directories of dirSettings, existing or not, with and without symbolic links
}

// FindGitConfigSecrets reads the configuration files of the system, the user and a repository, with all files that they
// include, under whatever condition. With linked, it reads the files of linked worktrees too.
func (r *Reader) FindGitConfigSecrets(commonDir string, linked bool) GitConfigSecrets {
	home := proc.Getenv(r.Env, "HOME")
	w := configWalk{home: home, seen: map[string]bool{}}
	w.ofUser = true
	for _, path := range userConfigFiles(r.Env, home) {
		w.read(path)
	}
	w.ofUser = false
	w.readGitDir(commonDir, linked)
	return w.found
}

const worktreeConfigFile = "config.worktree"

// readGitDir reads the files of a git directory and of the repositories of submodules in it; with linked, also those of its
// linked worktrees.
func (w *configWalk) readGitDir(gitDir string, linked bool) {
	var worktrees []string
	if linked {
		worktrees = subdirs(filepath.Join(gitDir, "worktrees"))
	}
	hasWorktreeConfig := slices.ContainsFunc(w.read(filepath.Join(gitDir, "config")), enablesWorktreeConfig)
	w.readURLFiles(gitDir, worktrees...)
	for _, dir := range append(worktrees, gitDir) {
		if file := filepath.Join(dir, worktreeConfigFile); hasWorktreeConfig || isRegularFile(file) {
			w.read(file)
		}
		w.readSecretFiles(dir)
		w.readModules(filepath.Join(dir, "modules"))
	}
}

// enablesWorktreeConfig reports whether git reads the configuration files of worktrees.
func enablesWorktreeConfig(e config.FileEntry) bool { return e.Key == config.WorktreeConfigKey }

// userConfigFiles lists where the configuration files of the system and of the user may be. Files that git does not read
// in this environment are listed too: a command behind walls can read them.
func userConfigFiles(env []string, home string) []string {
	files := []string{"/etc/gitconfig", "/usr/local/etc/gitconfig", proc.Getenv(env, "GIT_CONFIG_SYSTEM"), proc.Getenv(env, "GIT_CONFIG_GLOBAL")}
	files = append(files, joinAll(home, []string{".gitconfig", ".config/git/config"})...)
	return append(files, joinAll(proc.Getenv(env, "XDG_CONFIG_HOME"), []string{"git/config"})...)
}

// configWalk reads configuration files and those they include.
type configWalk struct {
	home   string
	ofUser bool // the files of the user are being read, not those of a repository
	seen   map[string]bool
	found  GitConfigSecrets

	included int // number of includes that were read
}

// maxIncludes bounds the number of files that are read because others include them.
const maxIncludes = 1000

// read reads a file and what it includes, and returns the settings of the file itself.
func (w *configWalk) read(path string) []config.FileEntry {
	if !filepath.IsAbs(path) || w.seen[path] {
		return nil
	}
	w.seen[path] = true
	w.found.Paths = append(w.found.Paths, path, guard.ResolveOrEmpty(path))
	data, err := durable.ReadFile(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	file := GitConfigFile{Original: string(data)}
	var parseErr error
	file.Text, parseErr = config.RemoveSecrets(file.Original) // empty on error
	file.Unparsable = err != nil || parseErr != nil
	if w.ofUser && err == nil {
		w.found.UserFiles = append(w.found.UserFiles, GitConfigFile{Path: path, Original: file.Original, Text: file.Text})
	}
	if file.Unparsable || file.Text != file.Original {
		if file.Path = guard.ResolveOrEmpty(path); file.Path == "" || !isRegularFile(path) {
			return nil // such as /dev/null
		}
		w.found.Files = append(w.found.Files, file)
	}
	if file.Unparsable {
		return nil
	}
	entries := config.ParseAnyFile(file.Original)
	for _, e := range entries {
		if config.IsIncludeKey(e.Key) && !e.NoValue && w.included < maxIncludes {
			w.included++
			w.read(w.locate(path, e.Value))
		}
		w.addNamed(path, e)
		if secret := ExpandHome(config.SecretFile(e), w.home); filepath.IsAbs(secret) && isRegularFile(secret) {
			w.found.SecretFiles = append(w.found.SecretFiles, secret)
		}
	}
	return entries
}

// Settings with the paths of files and directories that git reads.
var (
	fileSettings = []string{"core.excludesfile", "core.attributesfile", "commit.template", "mailmap.file", "blame.ignorerevsfile", "gpg.ssh.allowedsignersfile"}
	dirSettings  = []string{"core.hookspath", "init.templatedir"}
)

// addNamed adds the file or directory that a setting names.
func (w *configWalk) addNamed(from string, e config.FileEntry) {
	if e.NoValue || e.Value == "" {
		return
	}
	path := w.locate(from, e.Value)
	isDir := slices.Contains(dirSettings, e.Key)
	if isDir {
		w.found.Paths = append(w.found.Paths, path, guard.ResolveOrEmpty(path))
	}
	switch {
	case !w.ofUser: // commands need not see it
	case slices.Contains(fileSettings, e.Key):
		w.found.NamedFiles = append(w.found.NamedFiles, path)
	case isDir:
		w.found.NamedDirs = append(w.found.NamedDirs, path)
	}
}

// isRegularFile reports whether there is a regular file at a path, or at the end of symbolic links.
func isRegularFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// locate returns the absolute path of a file that a setting names.
func (w *configWalk) locate(from, name string) string {
	name = ExpandHome(name, w.home)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(from), name)
	}
	return name
}

// readModules reads the files of the repositories of submodules, whose names may contain slashes.
func (w *configWalk) readModules(dir string) {
	for _, sub := range subdirs(dir) {
		if _, err := os.Lstat(filepath.Join(sub, "HEAD")); err != nil {
			w.readModules(sub)
			continue
		}
		w.readGitDir(sub, true)
	}
}

// subdirs lists the directories in a directory; none if it cannot be read.
func subdirs(dir string) (found []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found
}
