package gittest

import (
	"path/filepath"
	"testing"
)

// oneTree is a lab with two worktrees besides the main one, of which one has settings that the others have not.
type Worktrees struct {
	*Lab
	One, Other  string // trees
	GitDirOfOne string // of the one
	Scratch     string // a directory
}

func NewWorktrees(t *testing.T, set func(*Worktrees)) *Worktrees {
	t.Helper()
	l := New(t)
	root := TempDir(t)
	o := &Worktrees{Lab: l, One: filepath.Join(root, "one"), Other: filepath.Join(root, "other"), GitDirOfOne: filepath.Join(l.Root, ".git/worktrees/one"), Scratch: root}
	l.Git("worktree", "add", "-q", "-b", "one", o.One)
	l.Git("worktree", "add", "-q", "-b", "other", o.Other)
	set(o)
	return o
}

// Include writes a file that can be included.
func (o *Worktrees) Include(text string) string {
	o.WriteIn(o.Scratch, "more", text)
	return filepath.Join(o.Scratch, "more")
}

const AutoCRLF = "[core]\n\tautocrlf = true\n"

// worktreeSetting is one way to set core.autocrlf for one worktree only.
type worktreeSetting struct {
	Name string
	Set  func(*Worktrees)
}

// waysToBeApart are the ways in which something can be set for one worktree, and not for the others.
var WorktreeSettings = []worktreeSetting{
	{"a file of its own", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"a file of its own, against what all have", func(o *Worktrees) {
		o.Git("config", "core.autocrlf", "input")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"a file that its own includes", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "include.path", o.Include(AutoCRLF))
	}},
	{"its branch", func(o *Worktrees) { o.Git("config", "includeIf.onbranch:one.path", o.Include(AutoCRLF)) }},
	{"its branch, in the eyes of the user", func(o *Worktrees) { o.ConfigureGlobal("includeIf.onbranch:one.path", o.Include(AutoCRLF)) }},
	{"its git directory", func(o *Worktrees) { o.Git("config", "includeIf.gitdir:**/worktrees/one.path", o.Include(AutoCRLF)) }},
	{"its git directory, in the eyes of the user", func(o *Worktrees) { o.ConfigureGlobal("includeIf.gitdir:"+o.GitDirOfOne+".path", o.Include(AutoCRLF)) }},
	{"line ends and attributes", func(o *Worktrees) {
		o.WriteIn(o.Scratch, "rules", "*.txt text\n")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.eol", "crlf")
		o.GitIn(o.One, "config", "--worktree", "core.attributesFile", filepath.Join(o.Scratch, "rules"))
	}},
	{"that it has none of what the one typed in has", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		for _, tree := range []string{o.Root, o.Other} {
			o.GitIn(tree, "config", "--worktree", "core.autocrlf", "true")
		}
	}},
	{"that linked ones have what the main one has not", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.ConfigureGlobal("includeIf.gitdir:"+filepath.Join(o.Root, ".git")+"/.path", o.Include(AutoCRLF))
	}},
}
