package status

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// ConfigDigest identifies everything besides their files that the state of all worktrees, and the result of merging
// them, depends on: git configuration, and the ignore and attribute files outside of worktrees.
type ConfigDigest struct {
	digest            string
	hasWorktreeConfig bool // extensions.worktreeConfig is set: a worktree may have a configuration file of its own
	includesVary      bool // conditional includes may apply to one worktree and not to another
}

// String returns the digest in hexadecimal.
func (g ConfigDigest) String() string { return hex.EncodeToString([]byte(g.digest)) }

// worktreeDigest is a ConfigDigest combined with what is specific to one worktree.
type worktreeDigest [sha256.Size]byte

// ReadConfigDigest reads the configuration and the rule files, and hashes them.
func ReadConfigDigest(r *git.Repo) ConfigDigest {
	var all strings.Builder
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		section, _, _ := strings.Cut(key, ".")
		if slices.Contains([]string{"core", "diff", "extensions", "filter", "merge"}, section) {
			for _, s := range r.Config[key] {
				fmt.Fprintf(&all, "%q %q %q %t\n", key, s.Value, s.Scope, s.NoValue)
			}
		}
	}
	for _, file := range externalRuleFiles(r) {
		fmt.Fprintf(&all, "%q %q\n", file, readRuleFile(file))
	}
	sum := sha256.Sum256([]byte(all.String()))
	return ConfigDigest{digest: string(sum[:]), hasWorktreeConfig: r.ConfigBool(config.WorktreeConfigKey, false), includesVary: r.IncludesDifferByWorktree()}
}

// externalRuleFiles returns the paths of all ignore and attribute files outside of worktrees, and of the repository's
// configuration file. Not all of them exist, and git may not use some.
func externalRuleFiles(r *git.Repo) []string {
	files := append(ruleFiles(r, "core.excludesfile", "exclude", "ignore"), ExternalAttributeFiles(r)...)
	return append(files, filepath.Join(r.CommonDir, "config")) // not every setting in it is in r.Config
}

// ExternalAttributeFiles returns the paths of the attribute files among them.
func ExternalAttributeFiles(r *git.Repo) []string {
	return append(ruleFiles(r, "core.attributesfile", "attributes", "attributes"), "/etc/gitattributes")
}

// ruleFiles returns the paths of one kind of rule files: that of the repository below info, those of the user, and
// those that a setting names.
func ruleFiles(r *git.Repo, key, info, users string) []string {
	home := proc.Getenv(r.Env, "HOME")
	files := []string{filepath.Join(r.CommonDir, "info", info)}
	for _, dir := range []string{proc.Getenv(r.Env, "XDG_CONFIG_HOME"), filepath.Join(home, ".config")} {
		files = append(files, filepath.Join(dir, "git", users))
	}
	for _, s := range r.Config[key] {
		files = append(files, expandHome(r, s.Value))
	}
	return files
}

// excludesFile returns the path of the user's ignore rules.
func (v *worktreeScan) excludesFile() string {
	return userRuleFile(v.repo, v.spec, "core.excludesfile", "ignore")
}

// userRuleFile returns the path of the user's rules of one kind: the value of a setting, else that of the file with this
// name in $XDG_CONFIG_HOME/git. A relative path is one in the worktree.
func userRuleFile(r *git.Repo, s git.WorktreeSpec, key, name string) string {
	file, set := "", false
	for _, setting := range r.Config[key] {
		if s.TrustConfig || setting.Trusted() || r.IsSafeSetting(key, setting) {
			file, set = setting.Value, true
		}
	}
	if !set {
		dir := cmp.Or(proc.Getenv(r.Env, "XDG_CONFIG_HOME"), filepath.Join(proc.Getenv(r.Env, "HOME"), ".config"))
		return filepath.Join(dir, "git", name)
	}
	return expandHome(r, file)
}

// expandHome expands a leading "~/" or "~user/".
func expandHome(r *git.Repo, file string) string {
	name, rest, _ := strings.Cut(file, "/")
	switch {
	case !strings.HasPrefix(name, "~"):
		return file
	case name == "~":
		return filepath.Join(proc.Getenv(r.Env, "HOME"), rest)
	}
	if u, err := user.Lookup(name[1:]); err == nil {
		return filepath.Join(u.HomeDir, rest)
	}
	return file
}

// readRuleFile returns the content of a file, or the error text, so that either changes the digest.
func readRuleFile(file string) string {
	const most = 64 << 20
	f, _, err := git.OpenRegular(file)
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err = errors.Join(err, f.Close()); err != nil {
		return err.Error()
	}
	return string(data)
}

// digestWorktree returns the digest of one worktree with this index. It is not ok where the worktree's own settings
// may come from files that only git can find.
func digestWorktree(r *git.Repo, g ConfigDigest, s git.WorktreeSpec, index git.FileStat) (sum worktreeDigest, ok bool) {
	var own []byte
	if g.hasWorktreeConfig {
		var err error
		own, err = durable.ReadFile(filepath.Join(r.AdminDir(s.Name), git.WorktreeConfigFile), 1<<20)
		if err != nil && !git.IsNotExist(err) {
			return sum, false
		}
	}
	all := fmt.Appendf(nil, "%q %q %q %q %q %t %t %+v %q", g.digest, s.Name, s.Dir, s.Omit, s.SecretPatterns, s.IncludeIgnored, s.TrustConfig, index, own)
	elsewhere := func(word string) bool { return strings.Contains(strings.ToLower(string(own)), word) }
	return sha256.Sum256(all), !g.includesVary && !slices.ContainsFunc([]string{"include", "excludesfile", "attributesfile"}, elsewhere)
}

// indexFileStat returns the stat data of a worktree's index. It returns the zero value where ctime could not reveal a
// change, and for a split index, which is more than one file.
func indexFileStat(r *git.Repo, s git.WorktreeSpec) git.FileStat {
	admin := r.AdminDir(s.Name)
	now := fileClockNow(admin)
	if shared, err := filepath.Glob(filepath.Join(admin, "sharedindex.*")); err != nil || len(shared) > 0 {
		return git.FileStat{}
	}
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(admin, "index"), &st) != nil || uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
		return git.FileStat{}
	}
	if is := git.FileStatOf(&st); is.Ctime < now {
		return is
	}
	return git.FileStat{}
}
