package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// A setting can apply to one worktree alone: in its config.worktree file, or in a file that is included because of a
// git directory or a branch. Operations on the files of a worktree use the effective configuration of that worktree,
// wherever the caller's working directory is.

const (
	worktreeConfig = "extensions.worktreeconfig" // enables config.worktree
	ownConfig      = "config.worktree"           // name of the file in a worktree's git directory
)

// ConfigVariesByWorktree reports whether one worktree may have settings that another has not.
func (r *Repo) Varies() bool { return r.boolean(worktreeConfig, false) || r.includesVary() }

// configDiffersIn reports whether the worktree with this git directory may have other settings than Config.
func (r *Repo) differs(gitDir string) bool {
	if r.includesVary() {
		return true
	}
	has := func(gitDir string) bool {
		_, err := os.Lstat(filepath.Join(gitDir, ownConfig))
		return err == nil
	}
	return r.boolean(worktreeConfig, false) && (has(gitDir) || has(r.settingsOf()))
}

// configGitDir returns the git directory of the worktree that Config was read for.
func (r *Repo) settingsOf() string { return cmp.Or(r.of, r.GitDir) }

// withWorktreeConfig returns a copy of the repository with the configuration of one of its worktrees, which every git
// that it starts uses, in whatever git directory it runs. It returns r itself where worktrees cannot differ. Unless
// trusted, untrusted settings are used only as far as they name no program.
func (r *Repo) in(ctx context.Context, gitDir string, trusted bool) (*Repo, error) {
	if !r.differs(gitDir) {
		return r, nil
	}
	there := *r
	if there.of = gitDir; r.settingsOf() != gitDir {
		var err error
		if there.Config, err = r.settingsIn(ctx, gitDir, trusted); err != nil {
			return nil, err
		}
	}
	there.imposed = there.impose(trusted)
	return &there, nil
}

// withConfigOf is withWorktreeConfig for a worktree that is to be captured.
func (r *Repo) inside(ctx context.Context, s Subject) (*Repo, error) {
	if s.Memory != "" {
		return r, nil // not a worktree
	}
	return r.in(ctx, r.AdminDir(s.Name), s.Trusted)
}

// readWorktreeConfig asks git for the configuration of a worktree. It returns the shared configuration where git
// fails, as for a git directory that is gone, and where an agent that is not trusted could make git block.
func (r *Repo) settingsIn(ctx context.Context, gitDir string, trusted bool) (Config, error) {
	if !trusted && !r.ends(gitDir) {
		return r.settingsOfAll(), nil
	}
	run := runner{dir: r.CommonDir, env: slices.Concat(r.env, []string{"GIT_DIR=" + gitDir, "GIT_COMMON_DIR=" + r.CommonDir})}
	bounded := ctx
	if !trusted { // an agent may have put a pipe there since the check
		const patience = 10 * time.Second
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	config, err := readConfig(bounded, run)
	if bounded.Err() != nil && ctx.Err() == nil {
		return r.settingsOfAll(), nil
	}
	if errors.As(err, new(*Error)) && (!trusted || !leadsSomewhere(gitDir)) {
		return r.settingsOfAll(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("what is set for %s: %w", gitDir, err)
	}
	return config, nil
}

// sharedConfig returns Config without the settings of scope worktree.
func (r *Repo) settingsOfAll() Config {
	all := Config{}
	for key, settings := range r.Config {
		if left := slices.DeleteFunc(slices.Clone(settings), func(s Setting) bool { return s.Scope == "worktree" }); len(left) > 0 {
			all[key] = left
		}
	}
	return all
}

// hasValidHead reports whether a git directory has a HEAD that git accepts.
func leadsSomewhere(gitDir string) bool {
	head, err := readSmall(gitDir, "HEAD")
	text := strings.TrimSpace(string(head))
	return err == nil && (strings.HasPrefix(text, "ref: refs/") || isOID(text))
}

// defaultValues are git's defaults of the safe keys that have one which can be set.
var ordinarily = map[string]string{
	"core.autocrlf": "false", "core.checkstat": "default", "core.eol": "native", "core.filemode": "true", "core.ignorecase": "false",
	"core.symlinks": "true", "core.trustctime": "true",
}

// configAsEnv returns GIT_CONFIG_COUNT variables that make git use the safe settings and the filters of Config,
// whatever files it reads. Settings that the user gave by -c still override them.
func (r *Repo) impose(trusted bool) []string {
	const variable = "GIT_CONFIG_COUNT"
	var env []string
	count, err := strconv.Atoi(proc.Variable(r.env, variable))
	if err != nil {
		count = 0 // git would refuse a count that is no number
	}
	add := func(key, value string) {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", count, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", count, value))
		count++
	}
	for _, key := range carried {
		i := lastIndex(r.Config[key], func(s Setting) bool { return s.Trusted() || trusted || r.mayCarry(key, s) })
		if i >= 0 {
			add(key, r.Config[key][i].Value)
		} else if value, is := ordinarily[key]; is {
			add(key, value)
		}
	}
	for key, settings := range r.Config {
		if _, is := filterOf(key); !is || strings.Contains(key, "\n") { // no attribute can have such a name
			continue
		}
		if i := lastIndex(settings, func(s Setting) bool { return s.Trusted() || trusted }); i >= 0 && (!settings[i].Bare || strings.HasSuffix(key, ".required")) {
			add(key, settings[i].Value)
		}
	}
	return append(env, fmt.Sprintf("%s=%d", variable, count))
}

// lastIndexFunc returns the index of the last setting that satisfies is; -1 when there is none.
func lastIndex(settings []Setting, is func(Setting) bool) int {
	for i := len(settings) - 1; i >= 0; i-- {
		if is(settings[i]) {
			return i
		}
	}
	return -1
}
