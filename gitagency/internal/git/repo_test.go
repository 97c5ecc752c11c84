package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenFindsTheRepositoryGitWouldUse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	other := newLab(t)
	root := tempDir(t)
	dotGit := filepath.Join(l.dir, ".git")

	linked := filepath.Join(root, "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	bare := filepath.Join(root, "bare.git")
	l.git("clone", "-q", "--bare", ".", bare)
	l.in(bare, "worktree", "add", "-q", "--detach", filepath.Join(root, "of-bare"))
	separate := filepath.Join(root, "separate")
	l.git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	lines := filepath.Join(root, "new\nline\n")
	l.git("clone", "-q", ".", lines)
	link := filepath.Join(root, "link")
	l.must(os.Symlink(l.dir, link))
	l.must(os.MkdirAll(filepath.Join(root, "nowhere"), 0o755))

	for _, c := range []struct {
		name, dir string
		env       []string
		common    string
		gitDir    string
		bare      bool
	}{
		{"the top", l.dir, nil, dotGit, dotGit, false},
		{"a sub directory", filepath.Join(l.dir, "dir"), nil, dotGit, dotGit, false},
		{"through a symlink", filepath.Join(link, "dir"), nil, dotGit, dotGit, false},
		{"in the git directory", filepath.Join(dotGit, "refs"), nil, dotGit, dotGit, false},
		{"a linked worktree", linked, nil, dotGit, filepath.Join(dotGit, "worktrees/linked"), false},
		{"a bare repository", bare, nil, bare, bare, true},
		{"a worktree of a bare one", filepath.Join(root, "of-bare"), nil, bare, filepath.Join(bare, "worktrees/of-bare"), false},
		{"a git directory elsewhere", separate, nil, separate + ".elsewhere", separate + ".elsewhere", false},
		{"a path with newlines", lines, nil, filepath.Join(lines, ".git"), filepath.Join(lines, ".git"), false},
		{"GIT_DIR", other.dir, []string{"GIT_DIR=" + dotGit}, dotGit, dotGit, false},
		{"GIT_DIR, relative", root, []string{"GIT_DIR=../" + filepath.Base(root) + "/bare.git"}, bare, bare, true},
		{"GIT_DIR of a linked worktree, as its hooks have it", other.dir, []string{"GIT_DIR=" + filepath.Join(dotGit, "worktrees/linked")}, dotGit, filepath.Join(dotGit, "worktrees/linked"), false},
		{"GIT_DIR and GIT_WORK_TREE", filepath.Join(root, "nowhere"), []string{"GIT_DIR=" + bare, "GIT_WORK_TREE=."}, bare, bare, false},
		{"GIT_INDEX_FILE of a hook", l.dir, []string{"GIT_INDEX_FILE=.git/next-index-42.lock", "GIT_PREFIX=dir/"}, dotGit, dotGit, false},
		{"a language", l.dir, []string{"LC_ALL=de_DE.UTF-8", "LANGUAGE=de", "GIT_TRACE=1", "GIT_TRACE2=1"}, dotGit, dotGit, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo, err := Open(t.Context(), c.dir, append(l.env[:len(l.env):len(l.env)], c.env...))
			if err != nil {
				t.Fatal(err)
			}
			if repo.CommonDir != c.common || repo.GitDir != c.gitDir || c.bare && repo.TopLevel != "" {
				t.Errorf("got %q %q at %q\nwant %q %q, bare %v", repo.CommonDir, repo.GitDir, repo.TopLevel, c.common, c.gitDir, c.bare)
			}
			if !repo.Version.AtLeast(Minimum) {
				t.Errorf("version %v", repo.Version)
			}
			for _, kv := range repo.env {
				if strings.HasPrefix(kv, "GIT_DIR=") || strings.HasPrefix(kv, "GIT_INDEX_FILE=") || strings.HasPrefix(kv, "GIT_WORK_TREE=") {
					t.Errorf("%s is still there", kv)
				}
			}
			// What was resolved once is what is used from then on.
			if got, err := repo.Lookup(t.Context(), "refs/heads/main"); err != nil || got[0].Missing() {
				t.Errorf("Lookup: %v, %v", got, err)
			}
		})
	}
}

func TestOpenWithoutARepositoryIsThatErrorInGitsOwnWords(t *testing.T) {
	t.Parallel()
	l := emptyLab(t)
	for name, env := range map[string][]string{
		"no repository":           nil,
		"a GIT_DIR that is wrong": {"GIT_DIR=" + filepath.Join(l.dir, "nothing")},
		"in another language":     {"LC_ALL=de_DE.UTF-8", "LANGUAGE=de"},
	} {
		_, err := Open(t.Context(), l.dir, append(l.env[:len(l.env):len(l.env)], env...))
		var none *NoRepositoryError
		if !errors.As(err, &none) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if msg := err.Error(); !strings.HasPrefix(msg, "not a git repository") || strings.Contains(msg, "fatal:") {
			t.Errorf("%s: %q", name, msg)
		}
		var ran *Error
		if !errors.As(err, &ran) || ran.ExitCode != 128 {
			t.Errorf("%s: does not wrap what git did: %v", name, err)
		}
	}
}

func TestOpenRefusesARepositoryWhosePathNoRecordCanHold(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := filepath.Join(tempDir(t), "non\xffutf8")
	l.git("clone", "-q", ".", dir)
	repo, err := Open(t.Context(), dir, l.env)
	if err == nil || errors.As(err, new(*NoRepositoryError)) || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("got %+v, %v", repo, err)
	}
}

func TestOpenPassesOnThatTheRepositoryIsSomebodyElses(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can give a directory away")
	}
	l := newLab(t)
	l.must(os.Chown(l.dir, 65534, 65534))
	l.must(os.Chown(filepath.Join(l.dir, ".git"), 65534, 65534))
	_, err := Open(t.Context(), l.dir, l.env)
	if err == nil || !strings.Contains(err.Error(), "dubious ownership") {
		t.Errorf("got %v", err)
	}
}

func TestOpenEndsWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := Open(ctx, l.dir, l.env); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestARepositoryOfAnotherObjectFormatWorksAllTheSame(t *testing.T) {
	t.Parallel()
	l := emptyLab(t)
	l.git("init", "-q", "-b", "main", "--object-format=sha256", ".")
	l.write("a.txt", "a\n")
	l.commit("first")
	repo := l.open()
	w := l.sandbox(repo)
	if status := l.in(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
	l.put(w.Tree, "a.txt", "changed\n")
	got := l.capture(repo, l.subject(w))
	requireSame(t, "captured", l.files(got.Commit), map[string]string{"a.txt": "100644 changed\n"})
	l.must(repo.DeleteRef(t.Context(), w.Branch, got.BranchTip))
	if found, err := repo.Lookup(t.Context(), w.Branch, got.Commit, strings.Repeat("1", 64)); err != nil || !found[0].Missing() || found[1].OID != got.Commit || !found[2].Missing() {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestErrorsSpeakInGitsWordsWithoutItsPrefixes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stderr, want string }{
		{"", "git add: exit status 128"},
		{"fatal: no\n", "git add: no"},
		{"warning: w\nerror: one\nhint: h\nfatal: two\n", "git add: one; two"},
		{"something else\n", "git add: something else"},
		{"  \n", "git add: exit status 128"},
		{"fatal: \n", "git add: fatal:"},
	} {
		err := &Error{Args: []string{"add", "-A"}, ExitCode: 128, Stderr: c.stderr}
		if got := err.Error(); got != c.want {
			t.Errorf("%q: %q, want %q", c.stderr, got, c.want)
		}
	}
}
