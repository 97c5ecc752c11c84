package checkout

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"golang.org/x/sys/unix"
)

// amount says how much of a commit is expected to be copied.
type amount int

const (
	all amount = iota
	some
	none
)

// past is the mtime of all files of the source, by which copies are told from files that git wrote.
var past = time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)

// TestFillEqualsCheckout compares worktrees with those of git's own checkout, for sources in all states and settings.
func TestFillEqualsCheckout(t *testing.T) {
	t.Parallel()
	unreadable := some
	if os.Geteuid() == 0 {
		unreadable = all
	}
	for name, c := range map[string]struct {
		arrange func(l *gittest.Fixture) (commit string) // changes the source; an empty commit is HEAD
		copies  amount
	}{
		"unchanged":                 {func(*gittest.Fixture) string { return "" }, all},
		"a large file":              {commitFiles("large", strings.Repeat("0123456789abcdef", 100_000)), all},
		"an empty file":             {commitFiles("empty", ""), all},
		"unusual names":             {commitFiles("new\nline", "n", "sp ace/é", "e", "-dash", "d", "tail ", "t"), all},
		"line endings of no rule":   {commitFiles("crlf", "a\r\nb\r\n"), all},
		"text attributes":           {commitFiles(".gitattributes", "* text=auto\n*.sh text eol=lf\n*.bin binary -filter\n", "a.sh", "x\n", "b.bin", "\x00"), all},
		"version 4":                 {shell("git update-index --index-version 4"), all},
		"a split index":             {shell("git update-index --split-index"), all},
		"an old index file":         {shell("git read-tree --empty && git read-tree HEAD"), all},
		"changed files":             {shell("echo changed >dir/file; chmod +x plain; rm executable; ln -sfn elsewhere link"), some},
		"a change of a mode":        {shell("chmod -x executable"), some},
		"a change of the same size": {shell("printf 'PLAIN\\n' >plain && touch -d @981173106 plain"), some},
		"staged files":              {shell("echo staged >plain && echo new >new && git add plain new && git rm -q --cached executable"), some},
		"intent to add":             {shell("echo new >new && git add -N new"), all},
		"a conflict":                {shell("git checkout -q -b other && echo 1 >plain && git commit -qam 1 && git checkout -q - && echo 2 >plain && git commit -qam 2 && ! git merge -q other"), some},
		"another commit": {func(l *gittest.Fixture) string {
			l.Shell("echo later >dir/file && git rm -q link && git mv plain renamed && git commit -qam later")
			return l.Git("rev-parse", "HEAD~1")
		}, some},
		"a commit with other attributes": {func(l *gittest.Fixture) string {
			l.Shell("echo '* text eol=crlf' >dir/.gitattributes && git add . && git commit -qm attributes")
			return l.Git("rev-parse", "HEAD~1")
		}, none},
		"assume-unchanged":             {shell("git update-index --assume-unchanged plain && echo other >plain"), some},
		"skip-worktree":                {shell("git update-index --skip-worktree plain"), some},
		"a pipe in place of a file":    {shell("rm plain && mkfifo plain"), some},
		"a directory in its place":     {shell("rm plain && mkdir plain && echo >plain/x"), some},
		"a symlink in its place":       {shell("mv plain ../moved && ln -s ../moved plain"), some},
		"a symlink to a directory":     {shell("mv dir ../moved-dir && ln -s ../moved-dir dir"), some},
		"a file in place of a link":    {shell("rm link && printf dir/file >link"), some},
		"unreadable files":             {shell("chmod 0 plain"), unreadable},
		"no files":                     {shell("rm -rf dir plain executable link deep"), none},
		"no index":                     {shell("rm .git/index"), none},
		"a damaged index":              {shell("printf damaged >.git/index"), none},
		"lines that were CRLF":         {shell("printf '* text=auto\\n' >.gitattributes && printf 'a\\r\\n' >crlf && git add . 2>/dev/null && git commit -qm crlf"), some},
		"rules that are gone":          {shell("printf '* text\\n' >.git/info/attributes && printf 'a\\r\\n' >crlf && git add . 2>/dev/null && git commit -qm crlf && rm .git/info/attributes"), some},
		"eol=crlf":                     {commitFiles(".gitattributes", "*.txt eol=crlf\n", "a.txt", "x\ny\n"), some},
		"ident":                        {commitFiles(".gitattributes", "*.txt ident\n", "a.txt", "$Id$\n"), some},
		"working-tree-encoding":        {commitFiles(".gitattributes", "*.txt working-tree-encoding=UTF-16LE\n", "a.txt", "x\x00"), some},
		"a macro":                      {commitFiles(".gitattributes", "[attr]utf working-tree-encoding=UTF-16LE\n*.txt utf\n", "a.txt", "x\x00"), some},
		"a filter":                     {shell("git config filter.up.smudge 'tr a-z A-Z' && git config filter.up.clean 'tr A-Z a-z' && echo '*.up filter=up' >.gitattributes && echo UP >a.up && git add . && git commit -qm up"), some},
		"a filter in a directory":      {shell("git config filter.up.smudge 'tr a-z A-Z' && git config filter.up.clean 'tr A-Z a-z' && echo 'file filter=up' >dir/.gitattributes && git add . && git commit -qm up"), some},
		"attributes of the repository": {shell("echo 'plain eol=crlf' >.git/info/attributes"), some},
		"attributes of the user":       {shell("echo 'plain eol=crlf' >../attributes && git config core.attributesFile \"$PWD/../attributes\""), some},
		"changed attributes":           {shell("echo '* text' >.gitattributes && git add . && git commit -qm a && echo '* -text' >.gitattributes"), none},
		"hidden attributes":            {shell("echo '*.txt eol=crlf' >.gitattributes && echo x >a.txt && git add . 2>/dev/null && git commit -qm a && git update-index --skip-worktree .gitattributes && : >.gitattributes"), none},
		"attributes with a NUL":        {commitFiles(".gitattributes", "*.txt eol=crlf\x00\n", "a.txt", "x\n"), some},
		"attributes in a link":         {shell("ln -s '* eol=crlf' .gitattributes && git add . 2>/dev/null && git commit -qm a"), none},
		"many attributes":              {shell("yes '# a comment' | head -n 100000 >.git/info/attributes && echo 'plain eol=crlf' >>.git/info/attributes"), none},
		"a replaced tree":              {shell("echo other >plain && git replace \"$(git rev-parse 'HEAD^{tree}')\" \"$(git add plain && git write-tree)\" && git pack-refs --all && GIT_NO_REPLACE_OBJECTS=1 git reset -q --hard"), none},
		"a replaced commit":            {shell("echo other >plain && git add plain && git replace HEAD \"$(git commit-tree -m other \"$(git write-tree)\")\" && GIT_NO_REPLACE_OBJECTS=1 git reset -q --hard"), none},
		"core.autocrlf":                {configure("core.autocrlf", "true"), none},
		"core.autocrlf=input":          {configure("core.autocrlf", "input"), all},
		"core.eol":                     {configure("core.eol", "crlf"), none},
		"core.symlinks":                {configure("core.symlinks", "false"), some},
		"core.fileMode":                {configure("core.fileMode", "false"), all},
		"core.ignoreCase":              {configure("core.ignoreCase", "true"), none},
		"core.splitIndex":              {configure("core.splitIndex", "true"), all},
		"index.version":                {configure("index.version", "4"), all},
		"feature.manyFiles":            {configure("feature.manyFiles", "true"), all},
		"worktree settings":            {configure("extensions.worktreeConfig", "true"), none},
		"a sparse checkout":            {shell("git sparse-checkout set --cone dir"), none},
		"a sparse index":               {shell("git sparse-checkout set --cone --sparse-index dir"), none},
		"a replaced blob":              {shell("git replace $(git rev-parse HEAD:plain) $(echo other | git hash-object -w --stdin)"), none},
		"a packed replace ref":         {shell("git replace $(git rev-parse HEAD:plain) $(echo other | git hash-object -w --stdin) && git pack-refs --all"), none},
		"a shared repository":          {configure("core.sharedRepository", "group"), all},
		"a submodule":                  {shell("git -c protocol.file.allow=always submodule --quiet add \"$PWD\" sub && git commit -qm sub"), all},
		"SHA-256": {func(l *gittest.Fixture) string {
			l.Shell("rm -rf .git && git init -q --object-format=sha256 && git add . && git commit -qm sha256")
			return ""
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSource(t)
			cache := &testCache{}
			first := l.Git("rev-parse", "HEAD")
			l.Must(Fill(t.Context(), repotest.OpenRepo(l), requestFor(l, register(l, repotest.OpenRepo(l), "20260101000000-0000", first), first, cache.ofAllFiles())))
			if cache.data == nil {
				t.Fatal("the first copy stored no hashes")
			}
			commit := c.arrange(l)
			if commit == "" {
				commit = l.Git("rev-parse", "HEAD")
			}
			setTimes(l)
			repo := repotest.OpenRepo(l)
			before := describe(t, l.Root)
			byGit := register(l, repo, "20260101000000-aaaa", commit)
			l.Must(worktree.Checkout(t.Context(), repo, byGit, commit, false))
			for number, hashes := range []HashCache{{}, cache.ofAllFiles(), cache.ofAllFiles()} { // none, those before the change, those after it
				filled := register(l, repo, fmt.Sprintf("20260101000000-bbb%d", number), commit)
				l.Must(Fill(t.Context(), repo, requestFor(l, filled, commit, hashes)))
				l.Must(worktree.SettleIndex(repo, filled))

				gittest.RequireSame(t, "the files", describe(t, filled.Tree), describe(t, byGit.Tree))
				if got, want := indexMode(l, repo, filled), indexMode(l, repo, byGit); got != want {
					t.Errorf("copy %d: the index has mode %v, with git's checkout %v", number, got, want)
				}
				for _, list := range [][]string{{"ls-files", "--stage", "-v"}, {"ls-files", "--stage", "-f"}, {"status", "--porcelain", "--ignored"}} {
					if got, want := l.GitIn(filled.Tree, list...), l.GitIn(byGit.Tree, list...); got != want {
						t.Errorf("copy %d: git %s:\n%s\nwith git's checkout:\n%s", number, strings.Join(list, " "), got, want)
					}
				}
				copies, files := countCopies(t, filled.Tree)
				got := some
				switch copies {
				case files:
					got = all
				case 0:
					got = none
				}
				if got != c.copies {
					t.Errorf("copy %d: %d of %d files are copies", number, copies, files)
				}
				if got != none {
					requireTrusted(l, repo, filled)
				}
			}
			gittest.RequireSame(t, "the source", describe(t, l.Root), before)
		})
	}
}

// TestFillDuringChanges fills worktrees while the files of the source change. Each must have the files of the commit.
func TestFillDuringChanges(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	committed := strings.Repeat("committed\n", 100_000) // larger than a buffer
	l.Write("changing", committed)
	l.Write("small", committed[:1000])
	commit := l.Commit("changing")
	repo := repotest.OpenRepo(l)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			for _, name := range []string{"changing", "small"} {
				size := map[string]int{"changing": len(committed), "small": 1000}[name]
				content := []string{committed, strings.ToUpper(committed)}[i%2][:size]
				if err := os.WriteFile(filepath.Join(l.Root, name), []byte(content), 0o644); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	const rounds = 20
	for i := range rounds {
		w := register(l, repo, fmt.Sprintf("20260101000000-%04x", i), commit)
		err := Fill(t.Context(), repo, requestFor(l, w, commit, HashCache{}))
		l.Must(err)
		if status := l.GitIn(w.Tree, "status", "--porcelain"); status != "" {
			t.Errorf("status: %q", status)
		}
		if data, err := os.ReadFile(filepath.Join(w.Tree, "changing")); err != nil || string(data) != committed {
			t.Errorf("the file has %d bytes of other content, %v", len(data), err)
		}
		if data, err := os.ReadFile(filepath.Join(w.Tree, "small")); err != nil || string(data) != committed[:1000] {
			t.Errorf("the small file has %d bytes of other content, %v", len(data), err)
		}
	}
	close(stop)
	l.Must(<-stopped)
}

// TestFillStopsWhenCancelled checks that a cancelled copy ends with the cause.
func TestFillStopsWhenCancelled(t *testing.T) {
	t.Parallel()
	l := newSource(t)
	commit := l.Git("rev-parse", "HEAD")
	repo := repotest.OpenRepo(l)
	w := register(l, repo, "20260101000000-aaaa", commit)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	cancel(cause)
	err := Fill(ctx, repo, requestFor(l, w, commit, HashCache{}))
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// requestFor returns the request to fill a registered worktree from the source.
func requestFor(l *gittest.Fixture, w worktree.Registration, commit string, hashes HashCache) Request {
	l.T.Helper()
	return Request{
		Worktree: w, Commit: commit, Tree: l.Git("rev-parse", commit+"^{tree}"),
		Source: Source{Tree: l.Root, GitDir: filepath.Join(l.Root, ".git"), Hashes: hashes},
	}
}

// newSource returns a repository with all kinds of files.
func newSource(t *testing.T) *gittest.Fixture {
	l := gittest.NewEmpty(t)
	l.Git("init", "-q")
	l.Write("plain", "plain\n")
	l.Write("dir/file", "file\n")
	l.Write("deep/er/and/deeper", "deep\n")
	l.Write("executable", "#!/bin/sh\n")
	l.Must(os.Chmod(filepath.Join(l.Root, "executable"), 0o755))
	l.Must(os.Symlink("dir/file", filepath.Join(l.Root, "link")))
	l.Commit("first")
	return l
}

// commitFiles commits files, given as names and contents.
func commitFiles(files ...string) func(*gittest.Fixture) string {
	return func(l *gittest.Fixture) string {
		for i := 0; i < len(files); i += 2 {
			l.Write(files[i], files[i+1])
		}
		return l.Commit("files")
	}
}

func shell(line string) func(*gittest.Fixture) string {
	return func(l *gittest.Fixture) string { l.Shell(line); return "" }
}

func configure(key, value string) func(*gittest.Fixture) string {
	return func(l *gittest.Fixture) string { l.Git("config", key, value); return "" }
}

// setTimes gives all files of the source an mtime in the past, and has git accept it.
func setTimes(l *gittest.Fixture) {
	l.T.Helper()
	l.Must(filepath.WalkDir(l.Root, func(path string, d fs.DirEntry, err error) error {
		if d.Name() == ".git" && d.IsDir() {
			return filepath.SkipDir
		}
		stamp := unix.NsecToTimespec(past.UnixNano())
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// register registers a worktree on a new branch at a commit.
func register(l *gittest.Fixture, repo *git.Repo, name, commit string) worktree.Registration {
	l.T.Helper()
	w := worktree.Registration{Name: name, Tree: filepath.Join(gittest.TempDir(l.T), "tree"), Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.T.TempDir(), name)}
	l.Must(repo.CreateRef(l.T.Context(), w.Branch, commit, "test"))
	l.Must(os.Mkdir(w.Tree, 0o755))
	l.Must(worktree.Add(l.T.Context(), repo, w))
	return w
}

// indexMode returns the permissions of the index of a worktree.
func indexMode(l *gittest.Fixture, repo *git.Repo, w worktree.Registration) fs.FileMode {
	l.T.Helper()
	fi, err := os.Stat(filepath.Join(repo.AdminDir(w.Name), "index"))
	l.Must(err)
	return fi.Mode()
}

// describe describes every file of a worktree: type, permissions, link count, owner and content.
func describe(t *testing.T, tree string) map[string]string {
	t.Helper()
	found := map[string]string{}
	walk(t, tree, func(name, path string, st *unix.Stat_t) {
		content := []byte(nil)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, _ = os.ReadFile(path)
		case unix.S_IFLNK:
			to, _ := os.Readlink(path)
			content = []byte(to)
		case unix.S_IFDIR:
			st.Nlink = 0 // depends on the file system
		}
		found[name] = fmt.Sprintf("%o %d %d:%d %q", st.Mode, st.Nlink, st.Uid, st.Gid, content)
	})
	return found
}

// countCopies counts the files of a worktree, and those of them that are copies.
func countCopies(t *testing.T, tree string) (copies, files int) {
	t.Helper()
	walk(t, tree, func(_, _ string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return
		}
		if files++; time.Unix(st.Mtim.Unix()).Equal(past) {
			copies++
		}
	})
	return copies, files
}

// walk visits all files and directories of a worktree but its .git.
func walk(t *testing.T, tree string, visit func(name, path string, st *unix.Stat_t)) {
	t.Helper()
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if err != nil || path == tree || d.Name() == ".git" {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		visit(strings.TrimPrefix(path, tree+"/"), path, &st)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requireTrusted fails the test unless git needs to read no file of a worktree: the index has the stat data of every file, and
// every file is older than the index.
func requireTrusted(l *gittest.Fixture, repo *git.Repo, w worktree.Registration) {
	l.T.Helper()
	x, err := repo.ReadEditableIndex(l.T.Context(), repo.AdminDir(w.Name), object.FormatOf(l.Git("rev-parse", "HEAD")))
	l.Must(err)
	for e := range x.AllEntries() {
		if e.Mode == object.ModeGitlink || e.SkipWorktree {
			continue
		}
		var st unix.Stat_t
		l.Must(unix.Lstat(filepath.Join(w.Tree, string(e.Name)), &st))
		if want := index.EncodeStat(&st, e.Mode); !bytes.Equal(e.Stat, want) {
			l.T.Errorf("%s: stat data %x, want %x", e.Name, e.Stat, want)
		}
		if !time.Unix(st.Mtim.Unix()).Before(x.ModTime) {
			l.T.Errorf("%s is not older than the index", e.Name)
		}
	}
	if id := hex.EncodeToString(x.TreeID()); id != "" && id != l.GitIn(w.Tree, "rev-parse", "HEAD^{tree}") {
		l.T.Errorf("the index has the tree %s", id)
	}
}
