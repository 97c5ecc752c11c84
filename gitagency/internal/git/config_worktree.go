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

// Something can be set for one worktree alone: in a file of its own, config.worktree, or in one that is included because of
// a git directory or a branch. What is done with the files of a worktree goes by what git goes by there, wherever whoever
// typed the command stands.

const (
	worktreeConfig = "extensions.worktreeconfig" // worktrees have a file of their own
	ownConfig      = "config.worktree"           // which that is
)

// Varies reports whether one worktree may have settings that another has not.
func (r *Repo) Varies() bool { return r.boolean(worktreeConfig, false) || r.includesVary() }

// differs reports whether a worktree, by its git directory, may have others than those that were read.
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

// settingsOf is the git directory of the worktree that the settings are of.
func (r *Repo) settingsOf() string { return cmp.Or(r.of, r.GitDir) }

// in is the repository as seen by a git that works in one of its worktrees: its settings are those that hold there, and
// every git that it starts goes by them, in whatever git directory that runs. Where nothing says that worktrees differ it is the
// same repository. Unless they are trusted, settings that anybody may have made count as far as they name no program.
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

// inside is in, for a worktree whose state is wanted.
func (r *Repo) inside(ctx context.Context, s Subject) (*Repo, error) {
	if s.Memory != "" {
		return r, nil // it is none
	}
	return r.in(ctx, r.AdminDir(s.Name), s.Trusted)
}

// settingsIn asks git what is set in a worktree. Where git would do nothing, as where there is no git directory any more,
// it is what all of them have; and where somebody who is not trusted could keep it from ever ending.
func (r *Repo) settingsIn(ctx context.Context, gitDir string, trusted bool) (Config, error) {
	if !trusted && !r.ends(gitDir) {
		return r.settingsOfAll(), nil
	}
	run := runner{dir: r.CommonDir, env: slices.Concat(r.env, []string{"GIT_DIR=" + gitDir, "GIT_COMMON_DIR=" + r.CommonDir})}
	bounded := ctx
	if !trusted { // who may have put a pipe there since
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

// settingsOfAll are those that were read, without what is of one worktree alone.
func (r *Repo) settingsOfAll() Config {
	all := Config{}
	for key, settings := range r.Config {
		if left := slices.DeleteFunc(slices.Clone(settings), func(s Setting) bool { return s.Scope == "worktree" }); len(left) > 0 {
			all[key] = left
		}
	}
	return all
}

// leadsSomewhere reports whether a git directory has a HEAD by which git takes it for one.
func leadsSomewhere(gitDir string) bool {
	head, err := readSmall(gitDir, "HEAD")
	text := strings.TrimSpace(string(head))
	return err == nil && (strings.HasPrefix(text, "ref: refs/") || isOID(text))
}

// ordinarily are the values of settings that are not set, as far as they can be set.
var ordinarily = map[string]string{
	"core.autocrlf": "false", "core.checkstat": "default", "core.eol": "native", "core.filemode": "true", "core.ignorecase": "false",
	"core.symlinks": "true", "core.trustctime": "true",
}

// impose is the environment in which git goes by these settings, whatever it reads where it runs: what is carried, and
// the filters. What the user has typed wins, here as there.
func (r *Repo) impose(trusted bool) []string {
	const variable = "GIT_CONFIG_COUNT"
	var env []string
	count, err := strconv.Atoi(proc.Variable(r.env, variable))
	if err != nil {
		count = 0 // git would refuse what is no number
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
		if _, is := filterOf(key); !is || strings.Contains(key, "\n") { // which no attribute could have
			continue
		}
		if i := lastIndex(settings, func(s Setting) bool { return s.Trusted() || trusted }); i >= 0 && (!settings[i].Bare || strings.HasSuffix(key, ".required")) {
			add(key, settings[i].Value)
		}
	}
	return append(env, fmt.Sprintf("%s=%d", variable, count))
}

// lastIndex is where the last is of which something is so; -1 when it is so of none.
func lastIndex(settings []Setting, is func(Setting) bool) int {
	for i := len(settings) - 1; i >= 0; i-- {
		if is(settings[i]) {
			return i
		}
	}
	return -1
}
