package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// Capture refuses a repository that is ignored but staged by force. For git add it is a submodule: git enters it and runs
// the programs of its config.
func TestCaptureRefusesIgnoredStagedRepository(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	witness := makeHostileRepo(l, filepath.Join(w.Tree, "evil"))
	l.WriteIn(w.Tree, ".gitignore", "evil/\n")
	l.GitIn(w.Tree, "add", "-f", "evil")
	_ = os.Remove(witness) // the git commands of this test may have run the program

	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	var nested *status.NestedRepositoryError
	if !errors.As(err, &nested) {
		t.Errorf("got %+v, %v; only a commit id of the repository would be kept", got, err)
	}
	if ran, err := os.ReadFile(witness); err == nil {
		t.Errorf("a program configured by the worktree ran: %s", ran)
	}
}

// Capture refuses a nested repository whose path starts with a colon. Git takes such an argument for pathspec magic, so
// that its answer would be about another path.
func TestCaptureRefusesRepositoryAtPathspecMagicPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dir, ignore string }{{":/x", "/x\n"}, {":(top)x", "/x\n"}, {":(top)x", "/:(top)x\n"}, {":x", "/:x\n"}} {
		t.Run(c.dir+" with "+c.ignore, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, ".gitignore", c.ignore)
			dir := filepath.Join(w.Tree, c.dir)
			l.Must(os.MkdirAll(dir, 0o755))
			l.GitIn(dir, "init", "-q")
			l.WriteIn(dir, "precious", "p\n")
			l.GitIn(dir, "add", "-A")
			l.GitIn(dir, "commit", "-q", "-m", "precious")
			if _, err := Capture(t.Context(), repo, repotest.SpecOf(l, w)); !errors.As(err, new(*status.NestedRepositoryError)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Capture does not follow a worktree that was replaced by a symlink. The target does not belong to the sandbox, was not
// searched for nested repositories (the walk does not follow a symlink at its root), and must not become part of a commit.
func TestCaptureDoesNotFollowSymlinkedWorktree(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	outside := gittest.TempDir(t)
	l.WriteIn(outside, "secret", "s\n")
	l.Must(os.Mkdir(filepath.Join(outside, "nested"), 0o755))
	l.GitIn(filepath.Join(outside, "nested"), "init", "-q")
	l.WriteIn(outside, "nested/x", "x\n")
	l.GitIn(filepath.Join(outside, "nested"), "add", "-A")
	l.GitIn(filepath.Join(outside, "nested"), "commit", "-q", "-m", "x")
	l.Must(os.RemoveAll(w.Tree))
	l.Must(os.Symlink(outside, w.Tree))
	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	if err != nil && !errors.As(err, new(*git.Error)) {
		return // a refusal is right
	}
	l.Must(err)
	if _, have := l.Files(got.Commit)["secret"]; have {
		t.Errorf("files outside of the worktree were captured: %q", l.Files(got.Commit))
	}
}

// Capture does not block on a HEAD that is a FIFO: processes in the sandbox can write to the worktree's git directory.
func TestCaptureDoesNotBlockOnFIFOHead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	gittest.MakeFIFO(t, filepath.Join(repo.AdminDir(w.Name), "HEAD"))
	gittest.Within(t, "Capture", func() { _, _ = Capture(t.Context(), repo, repotest.SpecOf(l, w)) })
}

// Capture does not block on .gitattributes and .gitignore files that are FIFOs: git would open them and wait for a writer
// while we hold the lock.
func TestCaptureDoesNotBlockOnFIFOAttributesOrIgnore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".gitattributes", "dir/.gitattributes", ".gitignore", "dir/.gitignore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			l.WriteIn(w.Tree, "dir/b.txt", "changed\n")
			l.WriteIn(w.Tree, "dir/new", "new\n")
			gittest.MakeFIFO(t, filepath.Join(w.Tree, name))
			ctx, cancel := context.WithTimeout(t.Context(), gittest.Timeout)
			defer cancel()
			if _, err := Capture(ctx, repo, repotest.SpecOf(l, w)); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("blocked for %s: %v", gittest.Timeout, err)
			}
		})
	}
}

// Git never enters a repository that appears during a capture. A process in the sandbox waits until the capture's index
// is locked, after the search for nested repositories, and then renames a repository to a path that git will visit. If git
// entered it, it would run the programs of its config. This is a race: the test may pass by luck, but never fails by it.
func TestCaptureRunsNothingOfConcurrentlyAddedRepository(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture, w worktree.Registration, head string) string{
		// git add checks whether a submodule in the index is dirty.
		"as a submodule": func(l *gittest.Fixture, w worktree.Registration, head string) string {
			l.GitIn(w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+head+",evil")
			return filepath.Join(w.Tree, "evil")
		},
		// git rm --cached without -f does so as well.
		"as the marker directory": func(l *gittest.Fixture, w worktree.Registration, head string) string {
			l.WriteIn(w.Tree, ".gitignore", "!/.agency/\n")
			return filepath.Join(w.Tree, ".agency")
		},
		"as an untracked directory": func(l *gittest.Fixture, w worktree.Registration, head string) string {
			return filepath.Join(w.Tree, "evil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			aside := filepath.Join(gittest.TempDir(t), "evil")
			witness := makeHostileRepo(l, aside)
			place := arrange(l, w, l.GitIn(aside, "rev-parse", "HEAD"))
			lock := filepath.Join(repo.CommonDir, "agency", "capture-"+w.Name, "index.lock")
			for range 8 {
				done := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					for !gittest.Exists(lock) {
						select {
						case <-done:
							return
						default:
						}
					}
					_ = os.Rename(aside, place)
				})
				_, _ = Capture(t.Context(), repo, repotest.SpecOf(l, w))
				close(done)
				wg.Wait()
				if ran, err := os.ReadFile(witness); err == nil {
					t.Errorf("a program configured by the worktree ran: %s", ran)
					return
				}
				_ = os.Rename(place, aside)
			}
		})
	}
}
