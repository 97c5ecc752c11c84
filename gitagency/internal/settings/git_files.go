package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// readURLFiles reads the files of a git directory and of its worktrees in which git keeps URLs: of the last fetch, of remotes
// in the old form, and in reflogs, whose messages have the arguments of git pull and git fetch. A pull mostly writes to the
// reflog of HEAD too, so where there are many of other refs, those are read only if one of HEAD has a secret.
func (w *configWalk) readURLFiles(gitDir string, worktrees ...string) {
	inReflog := false
	for _, dir := range append(worktrees, gitDir) {
		w.readURLFile(filepath.Join(dir, "FETCH_HEAD"), config.StripURLSecrets)
		inReflog = w.readURLFile(filepath.Join(dir, "logs", "HEAD"), config.StripReflog) || inReflog
	}
	readAll := func(name string, strip func(string) string) {
		walkFiles(filepath.Join(gitDir, name), func(path string) { w.readURLFile(path, strip) })
	}
	readAll("remotes", config.StripURLSecrets)
	readAll("branches", config.StripURLSecrets)
	var reflogs []string
	walkFiles(filepath.Join(gitDir, "logs/refs"), func(path string) { reflogs = append(reflogs, path) })
	for _, path := range reflogs {
		if inReflog || len(reflogs) <= fewReflogs {
			w.readURLFile(path, config.StripReflog)
		}
	}
}

// fewReflogs is the number of reflogs that are always read, which takes some 20 us each.
const fewReflogs = 100

// readURLFile adds a file if its URLs have secrets, which strip removes, and reports whether it did.
func (w *configWalk) readURLFile(path string, strip func(string) string) bool {
	data, err := durable.ReadFile(path, copies.MaxSize)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false
	}
	file := GitConfigFile{Original: string(data), Text: strip(string(data)), Unparsable: err != nil}
	if !file.Unparsable && file.Text == file.Original {
		return false
	}
	if file.Path = guard.ResolveOrEmpty(path); !isRegularFile(file.Path) {
		return false
	}
	w.found.Files = append(w.found.Files, file)
	return true
}

// secretGitDirs are directories in a git directory whose files may contain secrets, and that commands do not need: logs of
// git-lfs have its environment, git-annex keeps credentials there.
var secretGitDirs = []string{"lfs/logs", "annex/creds"}

// readSecretFiles adds the files of a git directory that appear empty behind walls: credentials, and old copies of the
// configuration, which editors and people leave. A copy called config in a directory of its own is filtered like a configuration.
func (w *configWalk) readSecretFiles(gitDir string) {
	entries, _ := os.ReadDir(gitDir) // as far as it can be read
	for _, e := range entries {
		path := filepath.Join(gitDir, e.Name())
		switch {
		case e.Type().IsRegular() && isSecretGitFile(e.Name()) && !w.seen[path]: // others include a file that was seen
			w.addEmpty(path)
		case e.IsDir() && e.Name() != "refs" && e.Name() != "logs" && isRegularFile(filepath.Join(path, "config")):
			w.read(filepath.Join(path, "config"))
		}
	}
	for _, dir := range secretGitDirs {
		walkFiles(filepath.Join(gitDir, dir), w.addEmpty)
	}
}

// isSecretGitFile reports whether a file with a name in a git directory has credentials, or is a copy of a file that may
// have some. Git itself has no other files with such names.
func isSecretGitFile(name string) bool {
	if name == "config" || name == worktreeConfigFile || name == "FETCH_HEAD" || strings.HasSuffix(name, ".lock") { // an empty lock would stay after its owner
		return false
	}
	lower := strings.ToLower(name)
	return slices.ContainsFunc([]string{"config", "credential", "netrc", "fetch_head"}, func(part string) bool { return strings.Contains(lower, part) })
}

// addEmpty adds a file that appears empty behind walls, unless it is empty.
func (w *configWalk) addEmpty(path string) {
	data, err := durable.ReadFile(path, copies.MaxSize)
	if real := guard.ResolveOrEmpty(path); real != "" && (err != nil || len(data) > 0) {
		w.found.Files = append(w.found.Files, GitConfigFile{Path: real, Original: string(data)})
	}
}

// walkFiles calls do for the regular files below a directory, as far as it can be read.
func walkFiles(dir string, do func(path string)) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			do(path)
		}
		return nil
	})
}
