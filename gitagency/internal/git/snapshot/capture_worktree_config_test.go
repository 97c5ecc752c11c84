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

// ignoredByTree uses the config of the worktree that is asked about, from whichever worktree the repository was opened.
func TestIgnoredByTreeUsesWorktreeConfig(t *testing.T) {
	t.Parallel()
	o := gittest.NewWorktrees(t, func(o *gittest.Worktrees) {
		o.WriteIn(o.Scratch, "rules", "*.log\n")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.excludesFile", filepath.Join(o.Scratch, "rules"))
	})
	for _, at := range []string{o.Root, o.One, o.Other} {
		for name, want := range map[string]string{"one": "x.log", "other": ""} {
			s := git.WorktreeSpec{Name: name, Dir: filepath.Join(o.Scratch, name), Branch: "refs/heads/" + name, TrustConfig: true}
			got, err := ignoredByTree(t.Context(), repotest.OpenRepoIn(o.Fixture, at), s, o.Git("rev-parse", "main^{tree}"), []string{"x.log", "x.txt"})
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s, opened in %s: %q, %v", name, at, got, err)
			}
		}
	}
}

// Capture ignores a worktree's untrusted config that git could not read or would block on, and uses the shared config
// instead: core.autocrlf is not set, and the CR stays.
func TestCaptureIgnoresUnusableWorktreeConfig(t *testing.T) {
	t.Parallel()
	pipe := func(o *gittest.Worktrees, path string) string {
		o.Must(syscall.Mkfifo(path, 0o600))
		return path
	}
	writeConfig := func(o *gittest.Worktrees, text string) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.Must(os.WriteFile(filepath.Join(o.GitDirOfOne, "config.worktree"), []byte(text), 0o600))
	}
	for name, set := range map[string]func(*gittest.Worktrees){
		"FIFO": func(o *gittest.Worktrees) {
			o.Git("config", "extensions.worktreeConfig", "true")
			pipe(o, filepath.Join(o.GitDirOfOne, "config.worktree"))
		},
		"included FIFO": func(o *gittest.Worktrees) {
			writeConfig(o, gittest.AutoCRLF+"[include]\n\tpath = "+pipe(o, filepath.Join(o.Scratch, "pipe"))+"\n")
		},
		"included FIFO below HOME": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(filepath.Dir(o.Root), "pipe"))
			writeConfig(o, "[include]\n\tpath = ~/pipe\n")
		},
		"included FIFO, relative path": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(o.GitDirOfOne, "pipe"))
			writeConfig(o, "[include]\n\tpath = pipe\n")
		},
		"FIFO included by an included file": func(o *gittest.Worktrees) {
			more := o.Include("[include]\n\tpath = " + pipe(o, filepath.Join(o.Scratch, "pipe")) + "\n")
			writeConfig(o, "[includeIf \"onbranch:one\"]\n\tpath = "+more+"\n")
		},
		"FIFO included for a branch": func(o *gittest.Worktrees) {
			o.Git("config", "includeIf.onbranch:one.path", pipe(o, filepath.Join(o.Scratch, "pipe")))
		},
		"includes itself": func(o *gittest.Worktrees) { writeConfig(o, "[include]\n\tpath = config.worktree\n") },
		"syntax error":    func(o *gittest.Worktrees) { writeConfig(o, "[core\n") },
		"invalid boolean": func(o *gittest.Worktrees) { writeConfig(o, "[core]\n\tbare = perhaps\n\tignorecase = perhaps\n") },
		"ignore and attribute files are FIFOs": func(o *gittest.Worktrees) {
			at := pipe(o, filepath.Join(o.Scratch, "pipe"))
			writeConfig(o, "[core]\n\texcludesFile = "+at+"\n\tattributesFile = "+at+"\n")
		},
		"ignore and attribute files are FIFOs below HOME": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(filepath.Dir(o.Root), "pipe"))
			writeConfig(o, "[core]\n\texcludesFile = ~/pipe\n\tattributesFile = ~/pipe\n")
		},
		"ignore and attribute files are FIFOs in the worktree": func(o *gittest.Worktrees) {
			pipe(o, filepath.Join(o.One, "pipe"))
			writeConfig(o, "[core]\n\texcludesFile = pipe\n\tattributesFile = pipe\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := gittest.NewWorktrees(t, set)
			o.WriteIn(o.One, "new.txt", "new\r\n")
			s := git.WorktreeSpec{Name: "one", Dir: o.One, Branch: "refs/heads/one", Author: object.Identity{Name: "x", Email: "x@x"}, Message: "x\n"}
			got, err := Capture(t.Context(), repotest.OpenRepo(o.Fixture), s)
			o.Must(err)
			if content := o.Git("--git-dir=.git", "cat-file", "blob", got.Commit+":new.txt"); content != "new\r" {
				t.Errorf("new.txt was captured as %q", content)
			}
		})
	}
}

// Capture runs a filter of one worktree's config if that config is trusted, and fails if not. Other worktrees do not have
// the filter.
func TestCaptureRunsWorktreeFilterOnlyIfTrusted(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		t.Run(fmt.Sprintf("trusted=%t", trusted), func(t *testing.T) {
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
				got, err := Capture(t.Context(), repotest.OpenRepo(o.Fixture), s)
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
				t.Errorf("trusted is %t, the filter left: %v", trusted, err)
			}
		})
	}
}
