package layer

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// TestEnsureEqualsCheckout compares layers with git's own worktrees, for all settings and kinds of files, with and without a
// source to copy from.
func TestEnsureEqualsCheckout(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"plain":                    "true",
		"an empty tree":            "git rm -qr . && git commit -qm empty",
		"unusual names":            "mkdir 'sp ace' && echo e >'sp ace/é' && echo n >\"new\nline\" && echo d >./-dash && git add . && git commit -qm names",
		"a large file":             "head -c 3000000 /dev/zero >large && git add . && git commit -qm large",
		"changes in the source":    "echo changed >a.txt && rm run.sh && echo new >new",
		"staged changes":           "echo staged >a.txt && git add a.txt && git rm -q --cached run.sh",
		"core.autocrlf":            "git config core.autocrlf true && rm .git/index && git reset -q --hard",
		"core.eol":                 "git config core.eol crlf && echo '* text' >.gitattributes && git add . && git commit -qm eol",
		"core.symlinks":            "git config core.symlinks false",
		"core.splitIndex":          "git config core.splitIndex true && git update-index --split-index",
		"index.version":            "git config index.version 4 && git update-index --index-version 4",
		"feature.manyFiles":        "git config feature.manyFiles true",
		"a shared repository":      "git config core.sharedRepository group",
		"ident":                    "echo '*.txt ident' >.gitattributes && echo '$Id$' >id.txt && git add . && git commit -qm ident",
		"working-tree-encoding":    "echo 'utf.txt working-tree-encoding=UTF-16LE' >.gitattributes && printf 'x\\0' >utf.txt && git add . && git commit -qm encoding",
		"a filter":                 "git config filter.up.smudge 'tr a-z A-Z' && git config filter.up.clean 'tr A-Z a-z' && echo '*.up filter=up' >.gitattributes && echo UP >a.up && git add . && git commit -qm up",
		"an included filter":       "printf '[filter \"up\"]\\n\\tsmudge = tr a-z A-Z\\n\\tclean = tr A-Z a-z\\n' >../included && git config --global includeIf.gitdir:$PWD/.path included && echo '*.up filter=up' >.gitattributes && echo UP >a.up && git add . && git commit -qm up",
		"attributes of the user":   "echo 'a.txt eol=crlf' >../attributes && git config core.attributesFile \"$PWD/../attributes\"",
		"attributes of the repo":   "echo 'a.txt eol=crlf' >.git/info/attributes",
		"a sparse checkout":        "git sparse-checkout set --cone dir",
		"a sparse index":           "git sparse-checkout set --cone --sparse-index dir",
		"patterns":                 "git sparse-checkout set --no-cone '/*' '!a.txt'",
		"settings of the worktree": "git config extensions.worktreeConfig true && git config --worktree core.autocrlf true",
		"a replaced blob":          "git replace $(git rev-parse HEAD:a.txt) $(echo other | git hash-object -w --stdin)",
		"a replaced tree":          "echo other >a.txt && git replace \"$(git rev-parse 'HEAD^{tree}')\" \"$(git add a.txt && git write-tree)\" && git pack-refs --all && GIT_NO_REPLACE_OBJECTS=1 git reset -q --hard",
		"a submodule":              "git -c protocol.file.allow=always submodule --quiet add \"$PWD\" sub && git commit -qm sub",
		"SHA-256":                  "rm -rf .git && git init -q --object-format=sha256 && git add . && git commit -qm sha256",
	} {
		for _, source := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/source=%t", name, source), func(t *testing.T) {
				t.Parallel()
				l := gittest.New(t)
				l.Shell(line)
				repo := repotest.OpenRepo(l)
				req := request(l, repo, "HEAD")
				if !source {
					req.Source = checkout.Source{}
				}
				got, made := ensure(l, repo, req)
				if !made || len(got.Lowers) != 1 {
					t.Errorf("made %t, lowers %q", made, got.Lowers)
				}
				requireCheckout(l, got, got.Lowers[0], "HEAD")
				names, err := os.ReadDir(req.Dir)
				l.Must(err)
				if len(names) != 1 || gittest.Exists(filepath.Join(l.Root, ".git/worktrees")) && len(glob(l, filepath.Join(l.Root, ".git/worktrees/*"))) > 1 {
					t.Errorf("left: %v", names)
				}
				if parts := glob(l, filepath.Join(req.Dir, got.Name, "*")); len(parts) != 3 {
					t.Errorf("parts of the layer: %q", parts)
				}
				if again, made := ensure(l, repo, req); made || fmt.Sprint(again) != fmt.Sprint(got) {
					t.Errorf("the second time: %v, made %t", again, made)
				}
				if opened, err := Open(req.Dir, got.Name); err != nil || fmt.Sprint(opened) != fmt.Sprint(got) {
					t.Errorf("opened %v, %v", opened, err)
				}
			})
		}
	}
}

// TestEnsureMakesOtherLayerForOtherSettings checks that every setting which changes files is a part of the name.
func TestEnsureMakesOtherLayerForOtherSettings(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	dir := filepath.Join(gittest.TempDir(t), "layers")
	seen := map[string]string{}
	record := func(what string, skipLFS bool) {
		repo := repotest.OpenRepo(l)
		req := request(l, repo, "HEAD")
		req.Dir, req.SkipLFS = dir, skipLFS
		got, made := ensure(l, repo, req)
		if before, known := seen[got.Name]; known || !made {
			t.Errorf("%s: the layer of %q", what, before)
		}
		seen[got.Name] = what
	}
	record("nothing", false)
	record("SkipLFS", true)
	for _, line := range []string{
		"git config core.autocrlf true", "git config core.eol crlf", "git config core.symlinks false", "git config filter.x.smudge cat",
		"git config filter.x.smudge tac", "echo '*.txt eol=crlf' >.git/info/attributes", "echo '*.txt -text' >.git/info/attributes",
		"git config core.attributesFile \"$PWD/../more\" && echo x >../more", "echo y >../more", "git config attr.tree HEAD",
		"git replace $(git rev-parse HEAD:a.txt) $(echo other | git hash-object -w --stdin)",
		"git sparse-checkout set --cone dir", "git sparse-checkout set --cone", "git config core.sparseCheckoutCone false",
	} {
		l.Shell(line)
		record(line, false)
	}
	l.Shell("git config user.name other && git config branch.main.remote origin && git sparse-checkout disable && git replace -d $(git for-each-ref --format='%(refname:lstrip=2)' refs/replace)")
	record("without a sparse checkout", false)
	l.Shell("git config user.name third && git config --unset branch.main.remote && git config remote.origin.url x")
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	req.Dir = dir
	if _, made := ensure(l, repo, req); made {
		t.Error("settings that change no file made another layer")
	}
}

// TestEnsureAtOnce checks that one of several makers makes the layer, and that all get it.
func TestEnsureAtOnce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	for round := range 10 {
		req.Dir = filepath.Join(gittest.TempDir(t), fmt.Sprint(round))
		var group sync.WaitGroup
		results := make([]bool, 8)
		for i := range results {
			group.Go(func() {
				got, made, release, err := Ensure(t.Context(), repo, req)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(filepath.Join(got.Lowers[0], "a.txt")); err != nil {
					t.Error(err)
				}
				results[i] = made
				if err := release(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		count := 0
		for _, made := range results {
			if made {
				count++
			}
		}
		if names := glob(l, req.Dir+"/*"); count != 1 || len(names) != 1 {
			t.Errorf("%d made it, and there is %q", count, names)
		}
	}
}

// TestEnsureFailsCleanly checks that a checkout that fails leaves nothing, and that the next attempt is not disturbed.
func TestEnsureFailsCleanly(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Shell("git config filter.f.smudge 'test -e ../allowed && cat' && git config filter.f.clean cat && git config filter.f.required true && echo 'a.txt filter=f' >.gitattributes && git add . && git commit -qm filter")
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	req.Source = checkout.Source{}
	if _, _, _, err := Ensure(t.Context(), repo, req); err == nil {
		t.Fatal("it made a layer without the file")
	}
	if left := glob(l, req.Dir+"/*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	l.Shell("git config filter.f.smudge cat")
	repo = repotest.OpenRepo(l)
	got, _ := ensure(l, repo, req)
	requireCheckout(l, got, got.Lowers[0], "HEAD")
}

// TestOpenReportsDamage checks the errors of missing parts and of names that are none.
func TestOpenReportsDamage(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	got, _ := ensure(l, repo, req)
	if _, err := Open(req.Dir, strings.Repeat("0", 40)+"-0123456789abcdef"); !os.IsNotExist(err) {
		t.Errorf("a missing layer: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../" + got.Name, "new-" + got.Name, got.Name + "/tree"} {
		if _, err := Open(req.Dir, name); err == nil || os.IsNotExist(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, part := range []string{recordName, indexName, treeName} {
		l.Must(os.RemoveAll(filepath.Join(req.Dir, got.Name, part)))
		if _, _, _, err := Ensure(t.Context(), repo, req); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("without its %s: %v", part, err)
		}
		if again, err := Remake(t.Context(), repo, req.Dir, got.Name); err != nil || again != got.Name {
			t.Errorf("made again without its %s: %s, %v", part, again, err)
		}
		ensure(l, repo, req)
	}
}

// request returns the request for the layer of a commit, in a directory that does not exist yet, with the main worktree as its
// source.
func request(l *gittest.Fixture, repo *git.Repo, commit string) Request {
	l.T.Helper()
	return Request{
		Dir: filepath.Join(gittest.TempDir(l.T), "data", "layers"), Tree: l.Git("rev-parse", commit+"^{tree}"),
		Source: checkout.Source{Tree: l.Root, GitDir: repo.CommonDir, Hashes: checkout.HashCache{
			Load: func() []byte { l.T.Error("a layer was made with cached hashes"); return nil },
			Save: func([]byte) { l.T.Error("hashes of a layer were cached") },
		}},
	}
}

// ensure ensures a layer and releases it.
func ensure(l *gittest.Fixture, repo *git.Repo, req Request) (Layer, bool) {
	l.T.Helper()
	got, made, release, err := Ensure(l.T.Context(), repo, req)
	l.Must(err)
	l.Must(release())
	return got, made
}

func glob(l *gittest.Fixture, pattern string) []string {
	l.T.Helper()
	found, err := filepath.Glob(pattern)
	l.Must(err)
	return found
}

// requireCheckout fails the test unless the files of a layer, as they appear together in the directory merged, and its index are
// those of git's own worktree of a commit.
func requireCheckout(l *gittest.Fixture, got Layer, merged, commit string) {
	l.T.Helper()
	byGit := filepath.Join(gittest.TempDir(l.T), "by-git")
	l.Git("worktree", "add", "-q", "--detach", byGit, commit)
	defer l.Git("worktree", "remove", "--force", byGit)
	gittest.RequireSame(l.T, "the files", describe(l.T, merged), describe(l.T, byGit))
	requireIndex(l, got, merged)

	// With the index of the layer, git finds the same in the layer as with its own index in its own worktree.
	gitDir := l.GitIn(byGit, "rev-parse", "--absolute-git-dir")
	own := map[string]string{}
	lists := [][]string{{"ls-files", "--stage", "-v"}}
	if l.Git("for-each-ref", "refs/replace/") == "" { // a replaced blob looks changed to a git that reads it
		lists = append(lists, []string{"status", "--porcelain", "--untracked-files=all", "--ignored"})
	}
	for _, list := range lists {
		own[list[0]] = l.GitIn(byGit, list...)
	}
	l.Must(git.CopyFileWithMtime(got.Index, filepath.Join(gitDir, "index")))
	for _, list := range lists {
		args := append([]string{"--no-optional-locks", "--git-dir=" + gitDir, "--work-tree=" + merged}, list...)
		if now := l.GitIn(merged, args...); now != own[list[0]] {
			l.T.Errorf("git %s:\n%s\nwith git's checkout:\n%s", strings.Join(list, " "), now, own[list[0]])
		}
	}
}

// requireIndex fails the test unless the index of a layer is a plain one that git trusts, with git's cache tree.
func requireIndex(l *gittest.Fixture, got Layer, merged string) {
	l.T.Helper()
	data, err := os.ReadFile(got.Index)
	l.Must(err)
	tree, _, _ := strings.Cut(got.Name, "-")
	format := object.FormatOf(tree)
	if _, err := index.Read(data, format); err != nil {
		l.T.Errorf("the index: %v", err)
	}
	x, err := index.ParseEditable(data, format)
	l.Must(err)
	if x.FileVersion > 3 {
		l.T.Errorf("the index has version %d", x.FileVersion)
	}
	if id := hex.EncodeToString(x.TreeID()); id != tree && len(glob(l, filepath.Join(l.Root, ".git/refs/replace/*")))+len(glob(l, filepath.Join(l.Root, ".git/packed-refs"))) == 0 {
		l.T.Errorf("the cache tree of the index is %q, not %s", id, tree)
	}
	fi, err := os.Stat(got.Index)
	l.Must(err)
	for e := range x.AllEntries() {
		if e.Mode == object.ModeGitlink || e.SkipWorktree {
			continue
		}
		var st unix.Stat_t
		l.Must(unix.Lstat(filepath.Join(merged, string(e.Name)), &st))
		const device = 16 // the overlay has another one; git does not compare it
		now := index.EncodeStat(&st, e.Mode)
		copy(now[device:device+4], e.Stat[device:])
		if !bytes.Equal(e.Stat, now) {
			l.T.Errorf("%s: stat data %x, want %x", e.Name, e.Stat, now)
		}
		if time.Unix(st.Mtim.Unix()).Truncate(time.Second).Compare(fi.ModTime().Truncate(time.Second)) >= 0 {
			l.T.Errorf("%s is not older than the index by whole seconds", e.Name)
		}
	}
}

// describe describes every file of a tree but .git: type, permissions, owner and content.
func describe(t *testing.T, tree string) map[string]string {
	t.Helper()
	found, err := describeFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func describeFiles(tree string) (map[string]string, error) {
	found := map[string]string{}
	return found, filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == tree || path == filepath.Join(tree, ".git") {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		if d.IsDir() {
			st.Mode &^= unix.S_ISGID // as that of the directory in which the test has the tree
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		case unix.S_IFLNK:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		found[strings.TrimPrefix(path, tree+"/")] = fmt.Sprintf("%o %d:%d %q", st.Mode, st.Uid, st.Gid, content)
		return nil
	})
}
