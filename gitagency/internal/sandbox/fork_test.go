package sandbox_test

import (
	"fmt"
	"io/fs"
	"maps"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// After random changes in a sandbox, a new sandbox started from its snapshot has the same files, index, HEAD and status,
// a checkout of the snapshot has the same files, and snapshots.Verify finds the snapshot intact.
//
// A case depends on its number and on the cases before it in the same sandbox.
func TestForkAndCheckoutEqualSnapshot(t *testing.T) {
	t.Parallel()
	cases, perSandbox := 60, 15
	if testing.Short() {
		cases, perSandbox = 10, 5
	}
	for first := 0; first < cases; first += perSandbox {
		t.Run(fmt.Sprintf("cases from %d", first), func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{}, "user.name", "u", "user.email", "u@example.com", "commit.gpgsign", "false")
			d := &sandboxEditor{l, nil}
			for n := first; n < first+perSandbox; n++ {
				d.rand = rand.New(rand.NewPCG(uint64(n), 2))
				done := d.changeTimes(1 + d.rand.IntN(8))
				fail := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("case %d (first case %d), after %s:\n%s", n, first, strings.Join(done, "; "), fmt.Sprintf(format, args...))
				}
				want := d.readState()
				maps.DeleteFunc(want.files, func(name, _ string) bool { return want.ignored[name] })
				snapshot, err := l.Sandbox.Snapshot(t.Context())
				if err != nil {
					fail("snapshot: %v", err)
				}
				inv, err := creation.Start(t.Context(), l.Repo, creation.Request{FromSnapshot: snapshot})
				if err != nil {
					fail("start: %v", err)
				}
				if inv.FromSnapshot != snapshot || inv.Worktree != "wt" {
					fail("%+v", inv)
				}
				if got := readFiles(t, inv.SandboxPath); !maps.Equal(got, want.files) {
					fail("the fork has\n%v\nwant\n%v", got, want.files)
				}
				for _, argv := range [][]string{{"ls-files", "-s"}, {"status", "--porcelain", "--untracked-files=all"}, {"rev-parse", "HEAD"}} {
					if got, want := runGitIn(t, l, inv.SandboxPath, argv...), runGitIn(t, l, l.Sandbox.WorkDir(), argv...); got != want {
						fail("git %q in the fork:\n%s\nwant\n%s", argv, got, want)
					}
				}
				dir := filepath.Join(t.TempDir(), "copy")
				if _, err := snapshots.Checkout(t.Context(), l.Repo, snapshots.CheckoutRequest{Snapshot: snapshot, Dir: dir}); err != nil {
					fail("checkout: %v", err)
				}
				if got := readFiles(t, dir); !maps.Equal(got, want.files) {
					fail("the copy has\n%v\nwant\n%v", got, want.files)
				}
				if v, err := snapshots.Verify(t.Context(), l.Repo, snapshots.VerifyRequest{Snapshot: snapshot}); err != nil || !v.Intact {
					fail("verify: %+v, %v", v, err)
				}
			}
		})
	}
}

// readFiles reads the files of a tree in the format of observedState.files.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if name == ".agency" {
			return fs.SkipDir
		}
		if e.IsDir() || name == ".git" {
			return nil
		}
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			files[name] = "-> " + to
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files[name] = fmt.Sprintf("%v %q", fi.Mode().Perm()&0o100 != 0, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func runGitIn(t *testing.T, l *sandboxtest.Fixture, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.Repo.Opts.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}
