package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// What is ignored and staged all the same is a submodule to git add, which enters it and runs there what
// it is configured to run.
func TestCaptureRefusesARepositoryThatIsIgnoredButStagedByForce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	witness := l.evil(filepath.Join(w.Tree, "evil"))
	l.put(w.Tree, ".gitignore", "evil/\n")
	l.in(w.Tree, "add", "-f", "evil")
	_ = os.Remove(witness) // the test's own git may have run it

	got, err := repo.Capture(t.Context(), l.subject(w))
	var nested *NestedRepositoryError
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
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, ".gitignore", c.ignore)
			dir := filepath.Join(w.Tree, c.dir)
			l.must(os.MkdirAll(dir, 0o755))
			l.in(dir, "init", "-q")
			l.put(dir, "precious", "p\n")
			l.in(dir, "add", "-A")
			l.in(dir, "commit", "-q", "-m", "precious")
			if _, err := repo.Capture(t.Context(), l.subject(w)); !errors.As(err, new(*NestedRepositoryError)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Somebody replaced the tree by a symlink. What it leads to is not the sandbox's, was not searched
// for repositories (a walk does not follow a link it starts at), and must not become part of a commit.
func TestCaptureDoesNotFollowATreeThatBecameASymlink(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	outside := tempDir(t)
	l.put(outside, "secret", "s\n")
	l.must(os.Mkdir(filepath.Join(outside, "nested"), 0o755))
	l.in(filepath.Join(outside, "nested"), "init", "-q")
	l.put(outside, "nested/x", "x\n")
	l.in(filepath.Join(outside, "nested"), "add", "-A")
	l.in(filepath.Join(outside, "nested"), "commit", "-q", "-m", "x")
	l.must(os.RemoveAll(w.Tree))
	l.must(os.Symlink(outside, w.Tree))
	got, err := repo.Capture(t.Context(), l.subject(w))
	if err != nil && !errors.As(err, new(*Error)) {
		return // to refuse is right
	}
	l.must(err)
	if _, have := l.files(got.Commit)["secret"]; have {
		t.Errorf("what lies outside was captured: %q", l.files(got.Commit))
	}
}

// Anybody who works in a worktree can put anything where its HEAD belongs.
func TestCaptureIsNotBlockedByAHeadThatIsAPipe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	fifo(t, filepath.Join(repo.AdminDir(w.Name), "HEAD"))
	within(t, "Capture", func() { _, _ = repo.Capture(t.Context(), l.subject(w)) })
}

// Git would open these files in the tree and wait for a writer who never comes, while we hold the lock.
func TestCaptureIsNotBlockedByAnAttributesOrIgnoreFileThatIsAPipe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".gitattributes", "dir/.gitattributes", ".gitignore", "dir/.gitignore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			l.put(w.Tree, "dir/b.txt", "changed\n")
			l.put(w.Tree, "dir/new", "new\n")
			fifo(t, filepath.Join(w.Tree, name))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := repo.Capture(ctx, l.subject(w)); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("blocked for %s: %v", patience, err)
			}
		})
	}
}

// Somebody still runs in the sandbox. When he sees that a capture is at work he moves a repository to
// where git will go; everything was looked at by then. Were git to enter it, it would run what that is
// configured to run. It is a race, so the test may pass by luck; it never fails by bad luck.
func TestCaptureNeverRunsWhatIsInARepositoryThatAppearsMeanwhile(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *lab, w Registration, head string) string{
		// git add asks a submodule it has in the index whether it is dirty.
		"as a submodule": func(l *lab, w Registration, head string) string {
			l.in(w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+head+",evil")
			return filepath.Join(w.Tree, "evil")
		},
		// git rm --cached, without -f, asks a submodule too.
		"as the marker directory": func(l *lab, w Registration, head string) string {
			l.put(w.Tree, ".gitignore", "!/.agency/\n")
			return filepath.Join(w.Tree, ".agency")
		},
		"as an untracked directory": func(l *lab, w Registration, head string) string {
			return filepath.Join(w.Tree, "evil")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			repo := l.open()
			w := l.sandbox(repo)
			aside := filepath.Join(tempDir(t), "evil")
			witness := l.evil(aside)
			place := arrange(l, w, l.in(aside, "rev-parse", "HEAD"))
			lock := filepath.Join(repo.CommonDir, "agency", "capture-"+w.Name, "index.lock")
			for range 8 {
				done := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					for !exists(lock) {
						select {
						case <-done:
							return
						default:
						}
					}
					_ = os.Rename(aside, place)
				})
				_, _ = repo.Capture(t.Context(), l.subject(w))
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
