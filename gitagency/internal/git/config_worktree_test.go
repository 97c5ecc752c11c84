package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// oneTree is a lab with two worktrees besides the main one, of which one has settings that the others have not.
type oneTree struct {
	*lab
	one, other string // trees
	gitDir     string // of the one
	out        string // a directory
}

func newOneTree(t *testing.T, set func(*oneTree)) *oneTree {
	t.Helper()
	l := newLab(t)
	root := tempDir(t)
	o := &oneTree{lab: l, one: filepath.Join(root, "one"), other: filepath.Join(root, "other"), gitDir: filepath.Join(l.dir, ".git/worktrees/one"), out: root}
	l.git("worktree", "add", "-q", "-b", "one", o.one)
	l.git("worktree", "add", "-q", "-b", "other", o.other)
	set(o)
	return o
}

// included writes a file that can be included.
func (o *oneTree) included(text string) string {
	o.put(o.out, "more", text)
	return filepath.Join(o.out, "more")
}

const crlf = "[core]\n\tautocrlf = true\n"

// waysToBeApart are the ways in which something can be set for one worktree, and not for the others.
var waysToBeApart = []struct {
	name string
	set  func(*oneTree)
}{
	{"a file of its own", func(o *oneTree) {
		o.git("config", "extensions.worktreeConfig", "true")
		o.in(o.one, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"a file of its own, against what all have", func(o *oneTree) {
		o.git("config", "core.autocrlf", "input")
		o.git("config", "extensions.worktreeConfig", "true")
		o.in(o.one, "config", "--worktree", "core.autocrlf", "true")
	}},
	{"a file that its own includes", func(o *oneTree) {
		o.git("config", "extensions.worktreeConfig", "true")
		o.in(o.one, "config", "--worktree", "include.path", o.included(crlf))
	}},
	{"its branch", func(o *oneTree) { o.git("config", "includeIf.onbranch:one.path", o.included(crlf)) }},
	{"its branch, in the eyes of the user", func(o *oneTree) { o.configure("includeIf.onbranch:one.path", o.included(crlf)) }},
	{"its git directory", func(o *oneTree) { o.git("config", "includeIf.gitdir:**/worktrees/one.path", o.included(crlf)) }},
	{"its git directory, in the eyes of the user", func(o *oneTree) { o.configure("includeIf.gitdir:"+o.gitDir+".path", o.included(crlf)) }},
	{"line ends and attributes", func(o *oneTree) {
		o.put(o.out, "rules", "*.txt text\n")
		o.git("config", "extensions.worktreeConfig", "true")
		o.in(o.one, "config", "--worktree", "core.eol", "crlf")
		o.in(o.one, "config", "--worktree", "core.attributesFile", filepath.Join(o.out, "rules"))
	}},
	{"that it has none of what the one typed in has", func(o *oneTree) {
		o.git("config", "extensions.worktreeConfig", "true")
		for _, tree := range []string{o.dir, o.other} {
			o.in(tree, "config", "--worktree", "core.autocrlf", "true")
		}
	}},
	{"that linked ones have what the main one has not", func(o *oneTree) {
		o.git("config", "extensions.worktreeConfig", "true")
		o.configure("includeIf.gitdir:"+filepath.Join(o.dir, ".git")+"/.path", o.included(crlf))
	}},
}

// everywhere tries something for every way, typed in every place, whether or not what is set is trusted; with -short
// each way in one place, and once.
func everywhere(t *testing.T, try func(t *testing.T, o *oneTree, repo *Repo, trusted bool)) {
	t.Helper()
	for n, way := range waysToBeApart {
		for i, at := range []string{"other", "one"} {
			for _, trusted := range []bool{true, false} {
				if testing.Short() && (n%2 != i || trusted != (n/2%2 == 0)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/in %s/trusted=%t", way.name, at, trusted), func(t *testing.T) {
					t.Parallel()
					o := newOneTree(t, way.set)
					try(t, o, o.openIn([]string{o.other, o.one}[i]), trusted)
				})
			}
		}
	}
}

func TestWhatIsSetInAWorktreeIsWhatGitSaysThere(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, o *oneTree, repo *Repo, trusted bool) {
		for tree, gitDir := range map[string]string{o.one: o.gitDir, o.other: filepath.Join(o.dir, ".git/worktrees/other"), o.dir: filepath.Join(o.dir, ".git")} {
			there, err := repo.in(t.Context(), gitDir, trusted)
			o.must(err)
			for _, key := range carried {
				want, _ := o.try(tree, "config", "--get", key)
				if got := there.Config.Value(key); got != strings.TrimSuffix(want, "\n") {
					t.Errorf("%s in %s: %q, git says %q", key, tree, got, want)
				}
			}
		}
	})
}

// What comes into a worktree has the line ends that git would give it there.
func TestAnAdvanceWritesWhatGitWouldWriteInThatWorktree(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, o *oneTree, repo *Repo, trusted bool) {
		to := o.ahead(func(tree string) {
			o.put(tree, "a.txt", "changed\nlines\n")
			o.put(tree, "new.txt", "new\nlines\n")
		})
		for _, branch := range []string{"one", "other", "main"} {
			a := Advance{Branch: "refs/heads/" + branch, Old: o.git("rev-parse", branch), New: to, Reason: "land", Trusted: trusted}
			var err error
			a.GitDir, a.Tree, err = repo.Seat(t.Context(), a.Branch)
			o.must(err)
			for _, file := range []string{"a.txt", "dir/b.txt"} { // as they are there, by now
				o.must(os.Remove(filepath.Join(a.Tree, file)))
			}
			o.in(a.Tree, "checkout", "-q", "--", ".")
			m, err := repo.Merger(to)
			o.must(err)
			ad := &advancer{lab: o.lab, repo: repo, tree: a.Tree, a: a, by: m}
			o.must(ad.advance())
			o.must(m.Close())
			for _, file := range []string{"a.txt", "new.txt"} {
				got, err := os.ReadFile(filepath.Join(a.Tree, file))
				o.must(err)
				o.must(os.Remove(filepath.Join(a.Tree, file)))
				o.in(a.Tree, "checkout", "-q", "--", file)
				want, err := os.ReadFile(filepath.Join(a.Tree, file))
				o.must(err)
				if string(got) != string(want) {
					t.Errorf("%s on %s: %q, git writes %q", file, branch, got, want)
				}
			}
		}
	})
}

// What a power cut has torn is put right wherever that is done: what was to be there is known by the settings of the worktree
// that it is in.
func TestAnAdvanceIsFinishedByTheSettingsOfItsWorktree(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, o *oneTree, repo *Repo, trusted bool) {
		file := filepath.Join(o.one, "a.txt")
		o.must(os.Remove(file))
		o.in(o.one, "checkout", "-q", "--", ".") // as it is there, by now
		before, err := os.ReadFile(file)
		o.must(err)
		ad := &advancer{lab: o.lab, repo: o.openIn(o.one), tree: o.one, a: Advance{
			Branch: "refs/heads/one", Old: o.git("rev-parse", "one"), New: o.ahead(func(tree string) { o.put(tree, "a.txt", "changed\nlines\n") }),
			Reason: "land", GitDir: o.gitDir, Tree: o.one, Trusted: trusted,
		}}
		ad.stopped("commit")
		o.must(os.Truncate(file, 10))
		if done, err := repo.FinishAdvance(t.Context(), ad.a); done || err != nil {
			t.Errorf("%t, %v", done, err)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("it is %q, and was %q: %v", after, before, err)
		}
	})
}

// What is captured of a worktree is what git would add there; and what git sees as changed is seen.
func TestACaptureHoldsWhatGitWouldAddInThatWorktree(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, o *oneTree, repo *Repo, trusted bool) {
		for name, tree := range map[string]string{"one": o.one, "other": o.other} {
			o.put(tree, "a.txt", "a\r\n") // nothing but line ends
			o.put(tree, "new.txt", "new\r\nlines\r\n")
			s := Subject{Name: name, Tree: tree, Branch: "refs/heads/" + name, Author: Identity{Name: "x", Email: "x@x"}, Message: "x\n", Trusted: trusted}
			got, err := repo.Capture(t.Context(), s)
			o.must(err)
			m, err := repo.Merger(got.Commit)
			o.must(err)
			looked, err := m.Look(t.Context(), s)
			o.must(err)
			o.must(m.Close())
			o.in(tree, "add", "-A")
			want := o.in(tree, "write-tree")
			if tree := o.git("rev-parse", got.Commit+"^{tree}"); tree != want || looked.Work != want {
				t.Errorf("%s: captured %q, looked like %q; git has %q", name, o.files(tree), o.files(looked.Work), o.files(want))
			}
		}
	})
}

// What was ignored in a state is found by the settings of the worktree that was in it, whoever asks.
func TestWhatIsIgnoredGoesByTheSettingsOfTheWorktree(t *testing.T) {
	t.Parallel()
	o := newOneTree(t, func(o *oneTree) {
		o.put(o.out, "rules", "*.log\n")
		o.git("config", "extensions.worktreeConfig", "true")
		o.in(o.one, "config", "--worktree", "core.excludesFile", filepath.Join(o.out, "rules"))
	})
	for _, at := range []string{o.dir, o.one, o.other} {
		for name, want := range map[string]string{"one": "x.log", "other": ""} {
			s := Subject{Name: name, Tree: filepath.Join(o.out, name), Branch: "refs/heads/" + name, Trusted: true}
			got, err := o.openIn(at).ignoredBy(t.Context(), s, o.git("rev-parse", "main^{tree}"), []string{"x.log", "x.txt"})
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s, asked in %s: %q, %v", name, at, got, err)
			}
		}
	}
}

// Nobody is asked what is set in a worktree where nothing says that it can be something else, as by what most people
// include: what is for everything below a directory.
func TestWorktreesThatCannotDifferAreNotAskedAbout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		set   func(*oneTree)
		asked bool
	}{
		{"nothing", func(*oneTree) {}, false},
		{"what is below a directory", func(o *oneTree) { o.configure("includeIf.gitdir:"+filepath.Dir(o.dir)+"/.path", o.included(crlf)) }, false},
		{"what is at home", func(o *oneTree) { o.configure("includeIf.gitdir:~/.path", o.included(crlf)) }, false},
		{"what is elsewhere", func(o *oneTree) { o.configure("includeIf.gitdir:/nowhere/.path", o.included(crlf)) }, false},
		{"the repository of somebody", func(o *oneTree) {
			o.configure("includeIf.hasconfig:remote.*.url:https://x.invalid/**.path", o.included(crlf))
		}, false},
		{"files of their own that nobody has", func(o *oneTree) { o.git("config", "extensions.worktreeConfig", "true") }, false},
		{"this repository", func(o *oneTree) { o.configure("includeIf.gitdir:"+o.dir+"/.git.path", o.included(crlf)) }, true},
		{"a directory by another name", func(o *oneTree) {
			o.must(os.Symlink(filepath.Dir(o.dir), filepath.Join(o.out, "link")))
			o.configure("includeIf.gitdir:"+filepath.Join(o.out, "link")+"/.path", o.included(crlf))
		}, true},
		{"a pattern", func(o *oneTree) { o.configure("includeIf.gitdir:worktrees/.path", o.included(crlf)) }, true},
		{"what nobody knows yet", func(o *oneTree) { o.configure("includeIf.moon:full.path", o.included(crlf)) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newOneTree(t, tt.set)
			repo := o.open()
			there, err := repo.in(t.Context(), o.gitDir, true)
			o.must(err)
			if asked := there != repo; asked != tt.asked {
				t.Errorf("asked: %t", asked)
			}
			want, _ := o.try(o.one, "config", "--get", "core.autocrlf")
			if got := there.Config.Value("core.autocrlf"); got != strings.TrimSuffix(want, "\n") {
				t.Errorf("%q, git says %q", got, want)
			}
		})
	}
}

// What somebody may have written who is not trusted neither keeps anybody waiting, nor stops anything: what counts then is
// what holds for all.
func TestSettingsOfAWorktreeThatGitWouldWaitFor(t *testing.T) {
	t.Parallel()
	pipe := func(o *oneTree, path string) string {
		o.must(syscall.Mkfifo(path, 0o600))
		return path
	}
	own := func(o *oneTree, text string) {
		o.git("config", "extensions.worktreeConfig", "true")
		o.must(os.WriteFile(filepath.Join(o.gitDir, "config.worktree"), []byte(text), 0o600))
	}
	for name, set := range map[string]func(*oneTree){
		"a pipe": func(o *oneTree) {
			o.git("config", "extensions.worktreeConfig", "true")
			pipe(o, filepath.Join(o.gitDir, "config.worktree"))
		},
		"a pipe that is included": func(o *oneTree) { own(o, crlf+"[include]\n\tpath = "+pipe(o, filepath.Join(o.out, "pipe"))+"\n") },
		"a pipe that is included at home": func(o *oneTree) {
			pipe(o, filepath.Join(filepath.Dir(o.dir), "pipe"))
			own(o, "[include]\n\tpath = ~/pipe\n")
		},
		"a pipe that is included from here": func(o *oneTree) { pipe(o, filepath.Join(o.gitDir, "pipe")); own(o, "[include]\n\tpath = pipe\n") },
		"a pipe behind another": func(o *oneTree) {
			more := o.included("[include]\n\tpath = " + pipe(o, filepath.Join(o.out, "pipe")) + "\n")
			own(o, "[includeIf \"onbranch:one\"]\n\tpath = "+more+"\n")
		},
		"a pipe for a branch": func(o *oneTree) {
			o.git("config", "includeIf.onbranch:one.path", pipe(o, filepath.Join(o.out, "pipe")))
		},
		"itself":                 func(o *oneTree) { own(o, "[include]\n\tpath = config.worktree\n") },
		"what is not to be read": func(o *oneTree) { own(o, "[core\n") },
		"a value that is none":   func(o *oneTree) { own(o, "[core]\n\tbare = perhaps\n\tignorecase = perhaps\n") },
		"rules that are a pipe": func(o *oneTree) {
			at := pipe(o, filepath.Join(o.out, "pipe"))
			own(o, "[core]\n\texcludesFile = "+at+"\n\tattributesFile = "+at+"\n")
		},
		"rules that are a pipe at home": func(o *oneTree) {
			pipe(o, filepath.Join(filepath.Dir(o.dir), "pipe"))
			own(o, "[core]\n\texcludesFile = ~/pipe\n\tattributesFile = ~/pipe\n")
		},
		"rules that are a pipe in the tree": func(o *oneTree) {
			pipe(o, filepath.Join(o.one, "pipe"))
			own(o, "[core]\n\texcludesFile = pipe\n\tattributesFile = pipe\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOneTree(t, set)
			o.put(o.one, "new.txt", "new\r\n")
			s := Subject{Name: "one", Tree: o.one, Branch: "refs/heads/one", Author: Identity{Name: "x", Email: "x@x"}, Message: "x\n"}
			got, err := o.open().Capture(t.Context(), s)
			o.must(err)
			if content := o.git("--git-dir=.git", "cat-file", "blob", got.Commit+":new.txt"); content != "new\r" {
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
			ran := filepath.Join(tempDir(t), "ran")
			o := newOneTree(t, func(o *oneTree) {
				o.git("config", "extensions.worktreeConfig", "true")
				o.in(o.one, "config", "--worktree", "filter.own.clean", "touch "+ran+"; tr a-y b-z")
				o.in(o.one, "config", "--worktree", "filter.own.smudge", "tr b-z a-y")
			})
			for name, want := range map[string]string{"one": "ofx", "other": "new"} {
				tree := filepath.Join(o.out, name)
				o.put(tree, ".gitattributes", "*.x filter=own\n")
				o.put(tree, "new.x", "new\n")
				s := Subject{Name: name, Tree: tree, Branch: "refs/heads/" + name, Author: Identity{Name: "x", Email: "x@x"}, Message: "x\n", Trusted: trusted}
				got, err := o.open().Capture(t.Context(), s)
				if name == "one" && !trusted {
					var d *DistrustedError
					if !errors.As(err, &d) || d.File != filepath.Join(o.gitDir, "config.worktree") {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				o.must(err)
				if content := o.git("cat-file", "blob", got.Commit+":new.x"); content != want {
					t.Errorf("%s: %q", name, content)
				}
			}
			if _, err := os.Lstat(ran); (err == nil) != trusted {
				t.Errorf("it ran: %v", err)
			}
		})
	}
}
