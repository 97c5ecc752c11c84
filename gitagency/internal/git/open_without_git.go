package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// OpenWithoutGit is Open without starting git, because one process takes longer than many a command's whole work. It
// accepts only standard repositories with plain settings and a plain environment; ordinary is false for everything else,
// errors included, and the caller uses Open. The version of git is neither known nor checked.
func OpenWithoutGit(dir string, env []string) (_ *Repo, ordinary bool) {
	system, ok := systemConfigFiles(env)
	if !ok || slices.ContainsFunc(env, influencesGit) {
		return nil, false
	}
	repo, ok := findStandardRepo(dir)
	if !ok || !utf8.ValidString(repo.CommonDir) {
		return nil, false
	}
	global, ok := globalConfigFiles(env)
	if !ok {
		return nil, false
	}
	repo.Config = config.Settings{}
	for _, file := range slices.Concat(system, global) {
		if !repo.addConfigFile(file.path, "file:"+file.path, file.scope) {
			return nil, false
		}
	}
	origin := "file:" + filepath.Join(repo.CommonDir, "config")
	if repo.CommonDir == filepath.Join(repo.TopLevel, ".git") {
		origin = "file:.git/config" // the spelling of git
	}
	if !repo.addConfigFile(filepath.Join(repo.CommonDir, "config"), origin, "local") {
		return nil, false
	}
	if v := repo.Config.Value(config.FormatVersionKey); v != "0" && v != "1" {
		return nil, false
	}
	repo.Env = scrubEnv(env)
	return repo, true
}

// influencesGit reports whether a variable may change which repository or settings git finds, or what it does with
// them.
func influencesGit(kv string) bool {
	name, value, _ := strings.Cut(kv, "=")
	if !strings.HasPrefix(name, "GIT_") {
		return false
	}
	switch name {
	case "GIT_EXEC_PATH": // a value that git itself sets
		return !slices.Contains(systemGitDirs, value)
	case "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", // read by systemConfigFiles and globalConfigFiles
		"GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_PAGER_IN_USE", "GIT_ASKPASS", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS":
		return false
	}
	for _, p := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return true
}

// configFile is a configuration file of git and its scope.
type configFile struct{ path, scope string }

// systemConfigFiles returns the system configuration file. Its path is compiled into git and only known for a git of
// the distribution.
func systemConfigFiles(env []string) (files []configFile, ok bool) {
	switch proc.Getenv(env, "GIT_CONFIG_NOSYSTEM") {
	case "1", "true":
		return nil, true
	case "", "0", "false":
	default:
		return nil, false
	}
	if path, set := proc.LookupEnv(env, "GIT_CONFIG_SYSTEM"); set {
		return []configFile{{path, "system"}}, filepath.IsAbs(path)
	}
	return []configFile{{"/etc/gitconfig", "system"}}, IsSystemGit(env)
}

// IsSystemGit reports whether the first git in PATH belongs to the distribution, which has its system configuration
// at a known path.
func IsSystemGit(env []string) bool {
	for _, dir := range filepath.SplitList(proc.Getenv(env, "PATH")) {
		if fi, err := os.Stat(filepath.Join(dir, "git")); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return runtime.GOOS == "linux" && slices.Contains(systemGitDirs, dir)
		}
	}
	return false
}

// systemGitDirs are the directories of a distribution's git. "git agency" puts the exec path of git first in PATH.
var systemGitDirs = []string{"/usr/bin", "/bin", "/usr/lib/git-core", "/usr/libexec/git-core"}

// globalConfigFiles returns the configuration files of the user.
func globalConfigFiles(env []string) (files []configFile, ok bool) {
	if path, set := proc.LookupEnv(env, "GIT_CONFIG_GLOBAL"); set {
		return []configFile{{path, "global"}}, filepath.IsAbs(path)
	}
	home := proc.Getenv(env, "HOME")
	if !filepath.IsAbs(home) {
		return nil, false
	}
	xdg := home + "/.config" // not cleaned, as git does not: a/.. may cross a symlink
	if dir := proc.Getenv(env, "XDG_CONFIG_HOME"); dir != "" {
		if xdg = dir; !filepath.IsAbs(xdg) {
			return nil, false
		}
	}
	return []configFile{{xdg + "/git/config", "global"}, {home + "/.gitconfig", "global"}}, true
}

// addConfigFile adds the wanted settings of a file to Config. It reports false when only git may interpret the file;
// a missing file is fine unless it is the repository's.
func (r *Repo) addConfigFile(path, origin, scope string) bool {
	if scope != "local" { // the user's files may be symlinks
		if path == os.DevNull {
			return true
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	data, err := durable.ReadFile(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return scope != "local"
	}
	if err != nil {
		return false
	}
	entries, err := config.ParsePlainFile(string(data))
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch {
		case e.Key == "core.worktree", e.Key == "core.bare" && e.Value != "false", strings.HasPrefix(e.Key, "extensions."):
			return false
		case !config.IsWantedKey(e.Key):
			continue
		case e.Ambiguous:
			return false
		}
		r.Config[e.Key] = append(r.Config[e.Key], config.Setting{Value: e.Value, Scope: scope, Origin: origin, NoValue: e.NoValue})
	}
	return true
}

// findStandardRepo looks in dir and its parents for a worktree whose directories all belong to the current user.
func findStandardRepo(dir string) (*Repo, bool) {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil || !filepath.IsAbs(at) {
		return nil, false
	}
	for device := int64(-1); ; at = filepath.Dir(at) {
		on, ok := DeviceOf(at)
		if !ok || device != -1 && on != device { // git stops at a file system boundary
			return nil, false
		}
		device = on
		fi, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != "/":
			if _, err := os.Lstat(filepath.Join(at, "HEAD")); !errors.Is(err, fs.ErrNotExist) {
				return nil, false // it may be a bare repository
			}
			continue
		case err != nil || !fi.IsDir() && !fi.Mode().IsRegular():
			return nil, false
		}
		repo := &Repo{TopLevel: at}
		if repo.GitDir, repo.CommonDir, err = resolveGitDirs(at); err != nil {
			return nil, false
		}
		return repo, repo.isStandard(fi)
	}
}

// isStandard reports whether git would accept the repository, and whether its layout is the usual one.
func (r *Repo) isStandard(dotGit fs.FileInfo) bool {
	for _, path := range []string{r.TopLevel, filepath.Join(r.TopLevel, ".git"), r.GitDir, r.CommonDir} {
		if st, err := os.Lstat(path); err != nil || !isOwnedByUser(st) {
			return false
		}
	}
	if dotGit.IsDir() != (r.GitDir == r.CommonDir) {
		return false // a submodule, or a git directory that was moved elsewhere
	}
	for _, name := range []string{filepath.Join(r.GitDir, "HEAD"), filepath.Join(r.CommonDir, "config")} {
		if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
			return false
		}
	}
	// Git skips a repository whose HEAD is invalid, and goes on with the parent directory.
	head, err := durable.ReadFile(filepath.Join(r.GitDir, "HEAD"), 1<<10)
	if text := strings.TrimSuffix(string(head), "\n"); err != nil || !strings.HasPrefix(text, "ref: refs/") && !object.IsOID(text) {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if fi, err := os.Lstat(filepath.Join(r.CommonDir, name)); err != nil || !fi.IsDir() || fi.Mode()&0o100 == 0 {
			return false
		}
	}
	return true
}

// DeviceOf returns the device number of the file system that a directory is on.
func DeviceOf(dir string) (int64, bool) {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return 0, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int64(st.Dev), true
}

// isOwnedByUser reports whether a file belongs to the current user. Git requires safe.directory for repositories of
// others.
func isOwnedByUser(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
