package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// What was ignored in a state is found by the settings of the worktree that was in it, whoever asks.
func TestWhatIsIgnoredGoesByTheSettingsOfTheWorktree(t *testing.T) {
	t.Parallel()
	o := gittest.NewWorktrees(t, func(o *gittest.Worktrees) {
		o.WriteIn(o.Scratch, "rules", "*.log\n")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.excludesFile", filepath.Join(o.Scratch, "rules"))
	})
	for _, at := range []string{o.Root, o.One, o.Other} {
		for name, want := range map[string]string{"one": "x.log", "other": ""} {
			s := git.WorktreeSpec{Name: name, Dir: filepath.Join(o.Scratch, name), Branch: "refs/heads/" + name, TrustConfig: true}
			got, err := ignoredByTree(t.Context(), repotest.OpenRepoIn(o.Lab, at), s, o.Git("rev-parse", "main^{tree}"), []string{"x.log", "x.txt"})
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s, asked in %s: %q, %v", name, at, got, err)
			}
		}
	}
}

// What somebody may have written who is not trusted neither keeps anybody waiting, nor stops anything: what counts then is
// what holds for all.
func TestSettingsOfAWorktreeThatGitWouldWaitFor(t *testing.T) {
	t.Parallel()
	pipe := func(o *gittest.Worktrees, path string) string {
		o.Must(syscall.Mkfifo(path, 0o600))
		return path
	}
	own := func(o *gittest.Worktrees, text string) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.Must(os.WriteFile(filepath.Join(o.GitDirOfOne, "config.worktree"), []byte(text), 0o600))
	}
	for name, set := range map[string]func(*gittest.Worktrees){
		"a pipe": func(o *gittest.Worktrees) {
			o.Git("config", "extensions.worktreeConfig", "true")
			pipe(o, filepath.Join(o.GitDirOfOne, "config.worktree"))
		},
		"a pipe that is included": func(o *gittest.Worktrees) {
			own(o, gittest.AutoCRLF+"[include]\n\tpath = "+pipe(o, filepath.Join(o.Scratch, "pipe"))+"\n")
		},
		"a pipe that is included at home": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(filepath.Dir(o.Root), "pipe"))
			own(o, "[include]\n\tpath = ~/pipe\n")
		},
		"a pipe that is included from here": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(o.GitDirOfOne, "pipe"))
			own(o, "[include]\n\tpath = pipe\n")
		},
		"a pipe behind another": func(o *gittest.Worktrees) {
			more := o.Include("[include]\n\tpath = " + pipe(o, filepath.Join(o.Scratch, "pipe")) + "\n")
			own(o, "[includeIf \"onbranch:one\"]\n\tpath = "+more+"\n")
		},
		"a pipe for a branch": func(o *gittest.Worktrees) {
			o.Git("config", "includeIf.onbranch:one.path", pipe(o, filepath.Join(o.Scratch, "pipe")))
		},
		"itself":                 func(o *gittest.Worktrees) { own(o, "[include]\n\tpath = config.worktree\n") },
		"what is not to be read": func(o *gittest.Worktrees) { own(o, "[core\n") },
		"a value that is none":   func(o *gittest.Worktrees) { own(o, "[core]\n\tbare = perhaps\n\tignorecase = perhaps\n") },
		"rules that are a pipe": func(o *gittest.Worktrees) {
			at := pipe(o, filepath.Join(o.Scratch, "pipe"))
			own(o, "[core]\n\texcludesFile = "+at+"\n\tattributesFile = "+at+"\n")
		},
		"rules that are a pipe at home": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(filepath.Dir(o.Root), "pipe"))
			own(o, "[core]\n\texcludesFile = ~/pipe\n\tattributesFile = ~/pipe\n")
		},
		"rules that are a pipe in the tree": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(o.One, "pipe"))
			own(o, "[core]\n\texcludesFile = pipe\n\tattributesFile = pipe\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := gittest.NewWorktrees(t, set)
			o.WriteIn(o.One, "new.txt", "new\r\n")
			s := git.WorktreeSpec{Name: "one", Dir: o.One, Branch: "refs/heads/one", Author: object.Identity{Name: "x", Email: "x@x"}, Message: "x\n"}
			got, err := Capture(t.Context(), repotest.OpenRepo(o.Lab), s)
			o.Must(err)
			if content := o.Git("--git-dir=.git", "cat-file", "blob", got.Commit+":new.txt"); content != "new\r" {
				t.Errorf("%q", content)
			}
		})
	}
}

// A filter that is set for one worktree alone runs where that can only be the user's word, and is refused elsewhere; the
// other worktrees have none.
func TestAFilterOfOneWorktree(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		t.Run(fmt.Sprint(trusted), func(t *testing.T) {
			t.Parallel()
			ran := filepath.Join(gittest.TempDir(t), "ran")
			o := gittest.NewWorktrees(t, func(o *gittest.Worktrees) {
				o.Git("config", "extensions.worktreeConfig", "true")
				o.GitIn(o.One, "config", "--worktree", "filter.own.clean", "touch "+ran+"; tr a-y b-z")
				o.GitIn(o.One, "config", "--worktree", "filter.own.smudge", "tr b-z a-y")
			})
			for name, want := range map[string]string{"one": "ofx", "other": "new"} {
				tree := filepath.Join(o.Scratch, name)
				o.WriteIn(tree, ".gitattributes", "*.x filter=own\n")
				o.WriteIn(tree, "new.x", "new\n")
				s := git.WorktreeSpec{Name: name, Dir: tree, Branch: "refs/heads/" + name, Author: object.Identity{Name: "x", Email: "x@x"}, Message: "x\n", TrustConfig: trusted}
				got, err := Capture(t.Context(), repotest.OpenRepo(o.Lab), s)
				if name == "one" && !trusted {
					var d *git.UntrustedFilterError
					if !errors.As(err, &d) || d.File != filepath.Join(o.GitDirOfOne, "config.worktree") {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				o.Must(err)
				if content := o.Git("cat-file", "blob", got.Commit+":new.x"); content != want {
					t.Errorf("%s: %q", name, content)
				}
			}
			if _, err := os.Lstat(ran); (err == nil) != trusted {
				t.Errorf("it ran: %v", err)
			}
		})
	}
}
