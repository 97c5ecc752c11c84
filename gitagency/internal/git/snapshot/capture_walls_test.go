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
)

// What is ignored and staged all the same is a submodule to git add, which enters it and runs there what
// it is configured to run.
func TestCaptureRefusesARepositoryThatIsIgnoredButStagedByForce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	witness := evil(l, filepath.Join(w.Tree, "evil"))
	l.WriteIn(w.Tree, ".gitignore", "evil/\n")
	l.GitIn(w.Tree, "add", "-f", "evil")
	_ = os.Remove(witness) // the test's own git may have run it

	got, err := Capture(t.Context(), repo, repotest.SpecOf(l, w))
	var nested *status.NestedRepositoryError
	if !errors.As(err, &nested) {
		t.Errorf("got %+v, %v; of the repository only a commit id would be kept", got, err)
	}
	if ran, err := os.ReadFile(witness); err == nil {
		t.Errorf("what somebody wrote into the tree was run: %s", ran)
	}
}

// Git reads a path that starts with a colon as magic, so it must not be git that is asked about it.
func TestCaptureRefusesARepositoryWhosePathIsPathspecMagic(t *testing.T) {
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

// Somebody replaced the tree by a symlink. What it leads to is not the sandbox's, was not searched
// for repositories (a walk does not follow a link it starts at), and must not become part of a commit.
func TestCaptureDoesNotFollowATreeThatBecameASymlink(t *testing.T) {
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
		return // to refuse is right
	}
	l.Must(err)
	if _, have := l.Files(got.Commit)["secret"]; have {
		t.Errorf("what lies outside was captured: %q", l.Files(got.Commit))
	}
}

// Anybody who works in a worktree can put anything where its HEAD belongs.
func TestCaptureIsNotBlockedByAHeadThatIsAPipe(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	gittest.MakeFIFO(t, filepath.Join(repo.AdminDir(w.Name), "HEAD"))
	gittest.Within(t, "Capture", func() { _, _ = Capture(t.Context(), repo, repotest.SpecOf(l, w)) })
}

// Git would open these files in the tree and wait for a writer who never comes, while we hold the lock.
func TestCaptureIsNotBlockedByAnAttributesOrIgnoreFileThatIsAPipe(t *testing.T) {
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

// Somebody still runs in the sandbox. When he sees that a capture is at work he moves a repository to
// where git will go; everything was looked at by then. Were git to enter it, it would run what that is
// configured to run. It is a race, so the test may pass by luck; it never fails by bad luck.
func TestCaptureNeverRunsWhatIsInARepositoryThatAppearsMeanwhile(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Lab, w git.Registration, head string) string{
		// git add asks a submodule it has in the index whether it is dirty.
		"as a submodule": func(l *gittest.Lab, w git.Registration, head string) string {
			l.GitIn(w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+head+",evil")
			return filepath.Join(w.Tree, "evil")
		},
		// git rm --cached, without -f, asks a submodule too.
		"as the marker directory": func(l *gittest.Lab, w git.Registration, head string) string {
			l.WriteIn(w.Tree, ".gitignore", "!/.agency/\n")
			return filepath.Join(w.Tree, ".agency")
		},
		"as an untracked directory": func(l *gittest.Lab, w git.Registration, head string) string {
			return filepath.Join(w.Tree, "evil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			repo := repotest.OpenRepo(l)
			w := repotest.AddSandbox(l, repo)
			aside := filepath.Join(gittest.TempDir(t), "evil")
			witness := evil(l, aside)
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
					t.Errorf("what somebody wrote into the tree was run: %s", ran)
					return
				}
				_ = os.Rename(place, aside)
			}
		})
	}
}
