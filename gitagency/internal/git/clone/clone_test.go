package clone_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

const branch = "refs/heads/agency/sandbox-x"

// makeClone makes a clone of the repository with the files of HEAD beside it, and returns its tree.
func makeClone(l *gittest.Fixture, change func(*clone.Request)) (tree string) {
	l.T.Helper()
	repo := repotest.OpenRepo(l)
	source, err := clone.FindSource(l.T.Context(), repo, "")
	l.Must(err)
	tree = filepath.Join(gittest.TempDir(l.T), "tree")
	l.Shell("mkdir " + tree + " && git archive HEAD | tar -x -C " + tree)
	req := clone.Request{Dir: filepath.Join(tree, ".git"), Branch: branch, Tip: l.Git("rev-parse", "HEAD"), Admin: repo.CommonDir, Source: source, Without: []string{"refs/heads/agency/sandbox-"}}
	if change != nil {
		change(&req)
	}
	l.Must(clone.Make(l.T.Context(), repo, req))
	return tree
}

// TestCloneIsItsOwnRepository: everything that git does in a clone works, and changes nothing in the repository.
func TestCloneIsItsOwnRepository(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]string{
		"plain":          "true",
		"packed":         "git gc -q",
		"a shallow one":  "echo 2 >two && git add two && git commit -qm two && git rev-parse HEAD >.git/shallow",
		"replaced":       "echo 2 >two && git add two && git commit -qm two && git replace HEAD~1 $(git commit-tree -m other HEAD~1^{tree})",
		"an alternate":   "git clone -q --bare . ../pool.git && echo \"$PWD/../pool.git/objects\" >.git/objects/info/alternates && git repack -adlq",
		"many settings":  "git config user.name Own && git config core.autocrlf input && git config alias.x '!echo \"a;b\"' && git config http.extraHeader 'Authorization: secret'",
		"an include":     "printf '[core]\\n\\tabbrev = 11\\n' >.git/more && git config include.path more",
		"tags":           "git tag one && git tag -a -m two two",
		"a linked index": "git update-index --index-version 4",
	} {
		for _, hardlinks := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", hard links"}[hardlinks], func(t *testing.T) {
				t.Parallel()
				l := gittest.New(t)
				l.Shell(arrange)
				before := gittest.DiskState(t, filepath.Join(l.Root, ".git"))
				tree := makeClone(l, func(r *clone.Request) { r.Hardlinks = hardlinks })
				for _, script := range []string{
					"git fsck --no-progress && git status --porcelain >../status && test ! -s ../status",
					"test $(git rev-parse HEAD) = " + l.Git("rev-parse", "HEAD") + " && test $(git symbolic-ref HEAD) = " + branch,
					"echo more >more && git add more && git commit -qm more && git stash list && git tag here && git branch other",
					"echo again >>more && git stash -q && git stash pop -q && git commit -qam again && git rebase -q --force-rebase HEAD~1",
					"git config user.name Agent && git remote add elsewhere /nowhere && git log --oneline && git gc -q --prune=now",
					"git fsck --no-progress && git status --porcelain >../status && test ! -s ../status",
				} {
					l.ShellIn(tree, script)
				}
				gittest.RequireSame(t, "the repository", gittest.DiskState(t, filepath.Join(l.Root, ".git")), before)
				if strings.Contains(l.ShellIn(tree, "cat .git/config"), "secret") {
					t.Error("a secret of the repository's settings is in the clone")
				}
			})
		}
	}
}

// TestCloneHasSettingsAndHooks: git in the clone converts files and checks commits as it does in the repository.
func TestCloneHasSettingsAndHooks(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Shell(`
set -e; git config core.abbrev 12; git config filter.up.clean 'tr a-z A-Z'; git config agency.changeset clone; git config branch.main.remote origin
git config include.path more; printf '[user]\n\tname = Included\n' >.git/more
echo '*.up filter=up' >.git/info/attributes; echo ignored >>.git/info/exclude
printf '#!/bin/sh\necho checked >&2; exit 1\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo no >.git/hooks/x.sample`)
	tree := makeClone(l, nil)
	for key, want := range map[string]string{"core.abbrev": "12", "filter.up.clean": "tr a-z A-Z", "user.name": "Included", "core.bare": "false", "remote.origin.url": filepath.Join(l.Root, ".git")} {
		if got := strings.TrimSpace(l.ShellIn(tree, "git config "+key)); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	l.ShellIn(tree, `set -e
if git config agency.changeset || git config branch.main.remote; then exit 1; fi
echo text >x.up; echo >ignored; git add x.up; test "$(git cat-file blob :x.up)" = TEXT; test "$(git status --porcelain)" = 'A  x.up'
if git commit -qm x 2>../said; then exit 1; fi; grep -q checked ../said; test ! -e .git/hooks/x.sample`)
}

// TestFindSource: the remote "local" is preferred, then "origin", then the repository itself.
func TestFindSource(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	find := func(name string) clone.Source {
		t.Helper()
		s, err := clone.FindSource(t.Context(), repotest.OpenRepo(l), name)
		l.Must(err)
		return s
	}
	here := clone.Source{Name: ".", URL: filepath.Join(l.Root, ".git")}
	if got := find(""); got != here {
		t.Errorf("without remotes: %+v", got)
	}
	l.Git("remote", "add", "origin", "https://user:password@example.com/x.git?token=y")
	if got := find(""); got.Name != "origin" || strings.Contains(got.URL, "password") || strings.Contains(got.URL, "token") || !strings.Contains(got.URL, "example.com/x.git") {
		t.Errorf("origin: %+v", got)
	}
	l.Git("remote", "add", "local", "../bare.git")
	if got, want := find(""), (clone.Source{Name: "local", URL: filepath.Join(filepath.Dir(l.Root), "bare.git")}); got != want {
		t.Errorf("local: %+v, want %+v", got, want)
	}
	l.Git("remote", "add", "ssh", "host:path/x.git")
	if got := find("ssh"); got.URL != "host:path/x.git" {
		t.Errorf("ssh: %+v", got)
	}
	if got := find("."); got != here {
		t.Errorf("this repository: %+v", got)
	}
	var missing *clone.NoRemoteError
	if _, err := clone.FindSource(t.Context(), repotest.OpenRepo(l), "none"); !errors.As(err, &missing) || !slices.Equal(missing.Remotes, []string{"local", "origin", "ssh"}) {
		t.Errorf("a remote that does not exist: %v", err)
	}
}

// TestCloneHasRefsOfSource: the branches of the source are those of "origin".
func TestCloneHasRefsOfSource(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Shell(`git branch agency/sandbox-other; git branch topic; git tag v1
git remote add local ../bare.git; git update-ref refs/remotes/local/main HEAD; git symbolic-ref refs/remotes/local/HEAD refs/remotes/local/main; git update-ref refs/remotes/origin/no HEAD`)
	list := func(tree string) string { return l.ShellIn(tree, "git for-each-ref --format='%(refname)'") }
	if got, want := list(makeClone(l, nil)), branch+"\nrefs/remotes/origin/main\nrefs/tags/v1\n"; got != want {
		t.Errorf("of a remote: %q, want %q", got, want)
	}
	l.Git("remote", "remove", "local")
	tree, want := makeClone(l, nil), branch+"\nrefs/remotes/origin/main\nrefs/remotes/origin/topic\nrefs/tags/v1\n"
	if got := list(tree); got != want {
		t.Errorf("of the repository: %q, want %q", got, want)
	}
	// Branches of other sandboxes are not fetched either.
	l.Git("branch", "agency/sandbox-later")
	l.Git("branch", "later")
	l.ShellIn(tree, "git fetch -q && git fetch -q --prune && git remote update && git checkout -q topic && git rev-parse topic@{upstream} && git push -q --dry-run origin topic && git checkout -q agency/sandbox-x && git branch -D topic")
	want = strings.Replace(want, "refs/remotes/origin/main\n", "refs/remotes/origin/later\nrefs/remotes/origin/main\n", 1)
	if got := list(tree); got != want {
		t.Errorf("after a fetch: %q, want %q", got, want)
	}
}

// TestMakeRefusesWhatItCannotRead: no clone is made with settings that are not understood.
func TestMakeRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	l.Must(os.WriteFile(filepath.Join(l.Root, ".git/config"), []byte("[core\n"), 0o644))
	dir := filepath.Join(gittest.TempDir(t), ".git")
	err := clone.Make(t.Context(), repo, clone.Request{Dir: dir, Branch: branch, Tip: strings.Repeat("1", 40), Admin: repo.CommonDir})
	if err == nil || git.ChangedNothing(err) || !strings.Contains(err.Error(), "cannot be parsed") {
		t.Errorf("got %v", err)
	}
}
