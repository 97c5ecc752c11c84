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
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// OpenSwiftly is Open without git: one process more would take longer than all that somebody wants to do. It is
// for repositories of which nothing is out of the ordinary, nor of the settings and the environment; whatever else it
// comes upon it leaves to Open, also what is wrong. The version of git is neither known then, nor checked.
func OpenSwiftly(dir string, env []string) (_ *Repo, ordinary bool) {
	system, ok := systemConfig(env)
	if !ok || slices.ContainsFunc(env, steersGit) {
		return nil, false
	}
	repo, ok := findOrdinary(dir)
	if !ok || !utf8.ValidString(repo.CommonDir) {
		return nil, false
	}
	global, ok := globalConfig(env)
	if !ok {
		return nil, false
	}
	repo.Config = Config{}
	for _, file := range slices.Concat(system, global) {
		if !repo.addConfig(file.path, "file:"+file.path, file.scope) {
			return nil, false
		}
	}
	origin := "file:" + filepath.Join(repo.CommonDir, "config")
	if repo.CommonDir == filepath.Join(repo.TopLevel, ".git") {
		origin = "file:.git/config" // as git says it
	}
	if !repo.addConfig(filepath.Join(repo.CommonDir, "config"), origin, "local") {
		return nil, false
	}
	if v := repo.Config.Value(formatVersion); v != "0" && v != "1" {
		return nil, false
	}
	repo.env = scrub(env)
	return repo, true
}

// steersGit reports whether a variable may change what git finds, reads or is asked.
func steersGit(kv string) bool {
	name, value, _ := strings.Cut(kv, "=")
	if !strings.HasPrefix(name, "GIT_") {
		return false
	}
	switch name {
	case "GIT_EXEC_PATH": // as git itself sets it
		return !slices.Contains(systemGits, value)
	case "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", // which are heeded
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

// configFile is a file that git reads settings from.
type configFile struct{ path, scope string }

// systemConfig is that of the machine. Where it is was decided when git was built: of one that came with the
// system, that is known.
func systemConfig(env []string) (files []configFile, ok bool) {
	switch proc.Variable(env, "GIT_CONFIG_NOSYSTEM") {
	case "1", "true":
		return nil, true
	case "", "0", "false":
	default:
		return nil, false
	}
	if path, set := proc.LookupVariable(env, "GIT_CONFIG_SYSTEM"); set {
		return []configFile{{path, "system"}}, filepath.IsAbs(path)
	}
	return []configFile{{"/etc/gitconfig", "system"}}, ofTheSystem(env)
}

// ofTheSystem reports whether the git that runs came with the system: of such it is known where it looks for what holds on
// the whole machine.
func ofTheSystem(env []string) bool {
	for _, dir := range filepath.SplitList(proc.Variable(env, "PATH")) {
		if fi, err := os.Stat(filepath.Join(dir, "git")); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return runtime.GOOS == "linux" && slices.Contains(systemGits, dir)
		}
	}
	return false
}

// systemGits is where a git is that came with the system. By "git agency" its helpers' directory is put first.
var systemGits = []string{"/usr/bin", "/bin", "/usr/lib/git-core", "/usr/libexec/git-core"}

// globalConfig is that of the user.
func globalConfig(env []string) (files []configFile, ok bool) {
	if path, set := proc.LookupVariable(env, "GIT_CONFIG_GLOBAL"); set {
		return []configFile{{path, "global"}}, filepath.IsAbs(path)
	}
	home := proc.Variable(env, "HOME")
	if !filepath.IsAbs(home) {
		return nil, false
	}
	xdg := home + "/.config" // nothing is made of the path, as by git: there may be a link before a ..
	if dir := proc.Variable(env, "XDG_CONFIG_HOME"); dir != "" {
		if xdg = dir; !filepath.IsAbs(xdg) {
			return nil, false
		}
	}
	return []configFile{{xdg + "/git/config", "global"}, {home + "/.gitconfig", "global"}}, true
}

// addConfig reads what matters of a file, if it is there.
func (r *Repo) addConfig(path, origin, scope string) bool {
	if scope != "local" { // whose file may be a link of the user's
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
	entries, err := parseConfigFile(string(data))
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch {
		case e.key == "core.worktree", e.key == "core.bare" && e.value != "false", strings.HasPrefix(e.key, "extensions."):
			return false
		case !wantedKey(e.key):
			continue
		case e.doubtful:
			return false
		}
		r.Config[e.key] = append(r.Config[e.key], Setting{Value: e.value, Scope: scope, Origin: origin, Bare: e.bare})
	}
	return true
}

// findOrdinary looks for a worktree that belongs to us all the way, around a directory.
func findOrdinary(dir string) (*Repo, bool) {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil || !filepath.IsAbs(at) {
		return nil, false
	}
	for device := int64(-1); ; at = filepath.Dir(at) {
		on, ok := deviceOf(at)
		if !ok || device != -1 && on != device { // git stops where another file system begins
			return nil, false
		}
		device = on
		fi, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != "/":
			if _, err := os.Lstat(filepath.Join(at, "HEAD")); !errors.Is(err, fs.ErrNotExist) {
				return nil, false // it may be a repository itself
			}
			continue
		case err != nil || !fi.IsDir() && !fi.Mode().IsRegular():
			return nil, false
		}
		repo := &Repo{TopLevel: at}
		if repo.GitDir, repo.CommonDir, err = gitDirs(at); err != nil {
			return nil, false
		}
		return repo, repo.ordinary(fi)
	}
}

// ordinary reports whether a repository looks like one that git would take for such.
func (r *Repo) ordinary(dotGit fs.FileInfo) bool {
	for _, path := range []string{r.TopLevel, filepath.Join(r.TopLevel, ".git"), r.GitDir, r.CommonDir} {
		if st, err := os.Lstat(path); err != nil || !ours(st) {
			return false
		}
	}
	if dotGit.IsDir() != (r.GitDir == r.CommonDir) {
		return false // as that of a submodule, or one that was put elsewhere
	}
	for _, name := range []string{filepath.Join(r.GitDir, "HEAD"), filepath.Join(r.CommonDir, "config")} {
		if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
			return false
		}
	}
	// Around one whose HEAD says nothing git goes on looking.
	head, err := durable.ReadFile(filepath.Join(r.GitDir, "HEAD"), 1<<10)
	if text := strings.TrimSuffix(string(head), "\n"); err != nil || !strings.HasPrefix(text, "ref: refs/") && !isOID(text) {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if fi, err := os.Lstat(filepath.Join(r.CommonDir, name)); err != nil || !fi.IsDir() || fi.Mode()&0o100 == 0 {
			return false
		}
	}
	return true
}

// deviceOf is the file system that a directory is on.
func deviceOf(dir string) (int64, bool) {
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

// ours reports whether something belongs to us: of others' repositories git wants to be told that they are safe.
func ours(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
