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

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

const (
	WorktreeConfigFile = "config.worktree" // name of the file in a worktree's git directory
)

// ConfigVariesByWorktree reports whether one worktree may have settings that another has not.
func (r *Repo) ConfigVariesByWorktree() bool {
	return r.ConfigBool(config.WorktreeConfigKey, false) || r.IncludesDifferByWorktree()
}

// configDiffersIn reports whether the worktree with this git directory may have other settings than Config.
func (r *Repo) configDiffersIn(gitDir string) bool {
	if r.IncludesDifferByWorktree() {
		return true
	}
	has := func(gitDir string) bool {
		_, err := os.Lstat(filepath.Join(gitDir, WorktreeConfigFile))
		return err == nil
	}
	return r.ConfigBool(config.WorktreeConfigKey, false) && (has(gitDir) || has(r.configGitDir()))
}

// configGitDir returns the git directory of the worktree that Config was read for.
func (r *Repo) configGitDir() string { return cmp.Or(r.configDir, r.GitDir) }

// WithWorktreeConfig returns a copy of the repository with the configuration of one of its worktrees, which every git
// that it starts uses, in whatever git directory it runs. It returns r itself where worktrees cannot differ. Unless
// trusted, untrusted settings are used only as far as they name no program.
func (r *Repo) WithWorktreeConfig(ctx context.Context, gitDir string, trusted bool) (*Repo, error) {
	if !r.configDiffersIn(gitDir) {
		return r, nil
	}
	there := *r
	if there.configDir = gitDir; r.configGitDir() != gitDir {
		var err error
		if there.Config, err = r.readWorktreeConfig(ctx, gitDir, trusted); err != nil {
			return nil, err
		}
	}
	there.configEnv = there.configAsEnv(r.Env, trusted)
	return &there, nil
}

// WithConfigInEnv returns a copy of the repository whose gits use its settings for the files of worktrees, and its filters, in
// whatever git directory they run. It returns r itself where no include depends on the path of that.
func (r *Repo) WithConfigInEnv() *Repo {
	for key := range r.Config {
		if strings.HasPrefix(key, config.IncludeIfPrefix+"gitdir") {
			there := *r
			there.configEnv = r.configAsEnv(r.Env, true)
			return &there
		}
	}
	return r
}

// WithConfigOf is WithWorktreeConfig for a worktree that is to be captured.
func (r *Repo) WithConfigOf(ctx context.Context, s WorktreeSpec) (*Repo, error) {
	if s.IndexCache != "" {
		return r, nil // not a worktree
	}
	return r.WithWorktreeConfig(ctx, r.AdminDir(s.Name), s.TrustConfig)
}

// readWorktreeConfig asks git for the configuration of a worktree. It returns the shared configuration where git fails
// because the git directory is gone or has no valid HEAD and, unless trusted, also where git fails for any other reason
// or could be made to block.
func (r *Repo) readWorktreeConfig(ctx context.Context, gitDir string, trusted bool) (config.Settings, error) {
	if !trusted && !r.configReadTerminates(gitDir) {
		return r.sharedConfig(), nil
	}
	run := Runner{Dir: r.CommonDir, Env: slices.Concat(r.Env, []string{"GIT_DIR=" + gitDir, "GIT_COMMON_DIR=" + r.CommonDir})}
	bounded := ctx
	if !trusted { // an agent may have put a pipe there since the check
		const patience = 10 * time.Second
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	config, err := readConfig(bounded, run)
	if bounded.Err() != nil && ctx.Err() == nil {
		return r.sharedConfig(), nil
	}
	if errors.As(err, new(*Error)) && (!trusted || !hasValidHead(gitDir)) {
		return r.sharedConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", gitDir, err)
	}
	return config, nil
}

// sharedConfig returns Config without the settings of scope worktree.
func (r *Repo) sharedConfig() config.Settings {
	all := config.Settings{}
	for key, settings := range r.Config {
		if left := slices.DeleteFunc(slices.Clone(settings), func(s config.Setting) bool { return s.Scope == "worktree" }); len(left) > 0 {
			all[key] = left
		}
	}
	return all
}

// hasValidHead reports whether a git directory has a HEAD that git accepts.
func hasValidHead(gitDir string) bool {
	head, err := ReadSmallFile(gitDir, "HEAD")
	text := strings.TrimSpace(string(head))
	return err == nil && (strings.HasPrefix(text, "ref: refs/") || object.IsOID(text))
}

// defaultValues are git's defaults of the safe keys that have one which can be set.
var defaultValues = map[string]string{
	"core.autocrlf": "false", "core.checkstat": "default", "core.eol": "native", "core.filemode": "true", "core.ignorecase": "false",
	"core.symlinks": "true", "core.trustctime": "true",
}

// configAsEnv returns GIT_CONFIG_COUNT variables that make git use the safe settings and the filters of Config,
// whatever files it reads, and go after those in an environment. Settings that the user gave by -c still override them.
func (r *Repo) configAsEnv(after []string, trusted bool) []string {
	const variable = "GIT_CONFIG_COUNT"
	var env []string
	count, err := strconv.Atoi(proc.Getenv(after, variable))
	if err != nil {
		count = 0 // git would refuse a count that is no number
	}
	add := func(key, value string) {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", count, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", count, value))
		count++
	}
	for _, key := range config.SafeKeys {
		i := lastIndexFunc(r.Config[key], func(s config.Setting) bool { return s.Trusted() || trusted || r.IsSafeSetting(key, s) })
		if i >= 0 {
			add(key, r.Config[key][i].Value)
		} else if value, is := defaultValues[key]; is {
			add(key, value)
		}
	}
	for key, settings := range r.Config {
		if _, is := config.FilterName(key); !is || strings.Contains(key, "\n") { // no attribute can have such a name
			continue
		}
		if i := lastIndexFunc(settings, func(s config.Setting) bool { return s.Trusted() || trusted }); i >= 0 && (!settings[i].NoValue || strings.HasSuffix(key, ".required")) {
			add(key, settings[i].Value)
		}
	}
	return append(env, fmt.Sprintf("%s=%d", variable, count))
}

// lastIndexFunc returns the index of the last setting that satisfies is; -1 when there is none.
func lastIndexFunc(settings []config.Setting, is func(config.Setting) bool) int {
	for i := len(settings) - 1; i >= 0; i-- {
		if is(settings[i]) {
			return i
		}
	}
	return -1
}
