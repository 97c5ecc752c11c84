package gittest

import (
	"path/filepath"
	"testing"
)

// Worktrees is a fixture with two linked worktrees. The effective configuration of the worktree One differs from that
// of another one.
type Worktrees struct {
	*Fixture
	One, Other  string // paths of the linked worktrees, on branches of these names
	GitDirOfOne string // administrative directory of One
	Scratch     string // directory that holds both
}

// NewWorktrees creates the repository and both worktrees, and calls set to configure them.
func NewWorktrees(t *testing.T, set func(*Worktrees)) *Worktrees {
	t.Helper()
	l := New(t)
	root := TempDir(t)
	o := &Worktrees{Fixture: l, One: filepath.Join(root, "one"), Other: filepath.Join(root, "other"), GitDirOfOne: filepath.Join(l.Root, ".git/worktrees/one"), Scratch: root}
	l.Git("worktree", "add", "-q", "-b", "one", o.One)
	l.Git("worktree", "add", "-q", "-b", "other", o.Other)
	set(o)
	return o
}

// Include writes a configuration file, to be included by others, and returns its path.
func (o *Worktrees) Include(text string) string {
	o.WriteIn(o.Scratch, "more", text)
	return filepath.Join(o.Scratch, "more")
}

// AutoCRLF is the text of a configuration file that sets core.autocrlf.
const AutoCRLF = "[core]\n\tautocrlf = true\n"

// worktreeSetting is one way to give a worktree a setting of its own.
type worktreeSetting struct {
	Name string
	Set  func(*Worktrees)
}

// WorktreeSettings lists the ways in which the line endings of one worktree can be configured differently from another.
var WorktreeSettings = []worktreeSetting{
	{"config.worktree", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"config.worktree overrides the repository", func(o *Worktrees) {
		o.Git("config", "core.autocrlf", "input")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"include in config.worktree", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "include.path", o.Include(AutoCRLF))
	}},
	{"onbranch include of the repository", func(o *Worktrees) { o.Git("config", "includeIf.onbranch:one.path", o.Include(AutoCRLF)) }},
	{"onbranch include of the user", func(o *Worktrees) { o.ConfigureGlobal("includeIf.onbranch:one.path", o.Include(AutoCRLF)) }},
	{"gitdir include of the repository", func(o *Worktrees) { o.Git("config", "includeIf.gitdir:**/worktrees/one.path", o.Include(AutoCRLF)) }},
	{"gitdir include of the user", func(o *Worktrees) { o.ConfigureGlobal("includeIf.gitdir:"+o.GitDirOfOne+".path", o.Include(AutoCRLF)) }},
	{"core.eol and core.attributesFile in config.worktree", func(o *Worktrees) {
		o.WriteIn(o.Scratch, "rules", "*.txt text\n")
		o.Git("config", "extensions.worktreeConfig", "true")
		o.GitIn(o.One, "config", "--worktree", "core.eol", "crlf")
		o.GitIn(o.One, "config", "--worktree", "core.attributesFile", filepath.Join(o.Scratch, "rules"))
	}},
	{"config.worktree of the other worktrees", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		for _, tree := range []string{o.Root, o.Other} {
			o.GitIn(tree, "config", "--worktree", "core.autocrlf", "true")
		}
	}},
	{"gitdir include for linked worktrees", func(o *Worktrees) {
		o.Git("config", "extensions.worktreeConfig", "true")
		o.ConfigureGlobal("includeIf.gitdir:"+filepath.Join(o.Root, ".git")+"/.path", o.Include(AutoCRLF))
	}},
}
