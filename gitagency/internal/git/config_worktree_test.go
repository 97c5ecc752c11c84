package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestWithWorktreeConfigAgreesWithGit(t *testing.T) {
	t.Parallel()
	ForEveryWorktreeSetting(t, func(t *testing.T, o *gittest.Worktrees, repo *Repo, trusted bool) {
		for tree, gitDir := range map[string]string{o.One: o.GitDirOfOne, o.Other: filepath.Join(o.Root, ".git/worktrees/other"), o.Root: filepath.Join(o.Root, ".git")} {
			there, err := repo.WithWorktreeConfig(t.Context(), gitDir, trusted)
			o.Must(err)
			for _, key := range config.SafeKeys {
				want, _ := o.TryGit(tree, "config", "--get", key)
				if got := there.Config.Value(key); got != strings.TrimSuffix(want, "\n") {
					t.Errorf("%s in %s: %q, git says %q", key, tree, got, want)
				}
			}
		}
	})
}

// WithWorktreeConfig must not run git when nothing in the configuration can differ between worktrees. The common case
// is an include for every repository below a directory.
func TestWithWorktreeConfigSkipsGitWhenSettingsCannotDiffer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		set     func(*gittest.Worktrees)
		queried bool
	}{
		{"no setting", func(*gittest.Worktrees) {}, false},
		{"include below a directory", func(o *gittest.Worktrees) {
			o.ConfigureGlobal("includeIf.gitdir:"+filepath.Dir(o.Root)+"/.path", o.Include(gittest.AutoCRLF))
		}, false},
		{"include below the home directory", func(o *gittest.Worktrees) { o.ConfigureGlobal("includeIf.gitdir:~/.path", o.Include(gittest.AutoCRLF)) }, false},
		{"include below another directory", func(o *gittest.Worktrees) {
			o.ConfigureGlobal("includeIf.gitdir:/nowhere/.path", o.Include(gittest.AutoCRLF))
		}, false},
		{"include by remote URL", func(o *gittest.Worktrees) {
			o.ConfigureGlobal("includeIf.hasconfig:remote.*.url:https://x.invalid/**.path", o.Include(gittest.AutoCRLF))
		}, false},
		{"worktreeConfig without a config.worktree", func(o *gittest.Worktrees) { o.Git("config", "extensions.worktreeConfig", "true") }, false},
		{"include for this git directory", func(o *gittest.Worktrees) {
			o.ConfigureGlobal("includeIf.gitdir:"+o.Root+"/.git.path", o.Include(gittest.AutoCRLF))
		}, true},
		{"include below a symlink", func(o *gittest.Worktrees) {
			o.Must(os.Symlink(filepath.Dir(o.Root), filepath.Join(o.Scratch, "link")))
			o.ConfigureGlobal("includeIf.gitdir:"+filepath.Join(o.Scratch, "link")+"/.path", o.Include(gittest.AutoCRLF))
		}, true},
		{"include by a pattern", func(o *gittest.Worktrees) {
			o.ConfigureGlobal("includeIf.gitdir:worktrees/.path", o.Include(gittest.AutoCRLF))
		}, true},
		{"include by an unknown condition", func(o *gittest.Worktrees) { o.ConfigureGlobal("includeIf.moon:full.path", o.Include(gittest.AutoCRLF)) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := gittest.NewWorktrees(t, tt.set)
			repo := OpenRepo(o.Fixture)
			there, err := repo.WithWorktreeConfig(t.Context(), o.GitDirOfOne, true)
			o.Must(err)
			if queried := there != repo; queried != tt.queried {
				t.Errorf("git was queried: %t", queried)
			}
			want, _ := o.TryGit(o.One, "config", "--get", "core.autocrlf")
			if got := there.Config.Value("core.autocrlf"); got != strings.TrimSuffix(want, "\n") {
				t.Errorf("%q, git says %q", got, want)
			}
		})
	}
}
