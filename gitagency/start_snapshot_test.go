package gitagency

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever was done in a sandbox before a snapshot: one that begins as it has the identical files, index, HEAD and
// status, and so does a copy of it the files; and all of its objects are sound.
//
// Every case is made from its number and from those before it in the same sandbox.
func TestAForkAndACopyAreTheStateThatTheyAreOf(t *testing.T) {
	t.Parallel()
	cases, perSandbox := 60, 15
	if testing.Short() {
		cases, perSandbox = 10, 5
	}
	for first := 0; first < cases; first += perSandbox {
		t.Run(fmt.Sprintf("cases from %d", first), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{}, "user.name", "u", "user.email", "u@example.com", "commit.gpgsign", "false")
			d := &doings{lab: l}
			for n := first; n < first+perSandbox; n++ {
				d.rand = rand.New(rand.NewPCG(uint64(n), 2))
				done := d.some(1 + d.rand.IntN(8))
				fail := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("case %d (of those from %d), after %s:\n%s", n, first, strings.Join(done, "; "), fmt.Sprintf(format, args...))
				}
				want := d.state()
				maps.DeleteFunc(want.files, func(name, _ string) bool { return want.ignored[name] })
				snapshot, err := l.box.Snapshot(t.Context())
				if err != nil {
					fail("snapshot: %v", err)
				}
				inv, err := l.repo.Start(t.Context(), StartRequest{FromSnapshot: snapshot})
				if err != nil {
					fail("start: %v", err)
				}
				if inv.FromSnapshot != snapshot || inv.Worktree != "wt" {
					fail("%+v", inv)
				}
				if got := filesBelow(t, inv.SandboxPath); !maps.Equal(got, want.files) {
					fail("the fork has\n%v\nwant\n%v", got, want.files)
				}
				for _, argv := range [][]string{{"ls-files", "-s"}, {"status", "--porcelain", "--untracked-files=all"}, {"rev-parse", "HEAD"}} {
					if got, want := gitIn(t, l, inv.SandboxPath, argv...), gitIn(t, l, l.box.WorkDir(), argv...); got != want {
						fail("git %q says in the fork\n%s\nwant\n%s", argv, got, want)
					}
				}
				dir := filepath.Join(t.TempDir(), "copy")
				if _, err := l.repo.CheckoutSnapshot(t.Context(), CheckoutRequest{Snapshot: snapshot, Dir: dir}); err != nil {
					fail("checkout: %v", err)
				}
				if got := filesBelow(t, dir); !maps.Equal(got, want.files) {
					fail("the copy has\n%v\nwant\n%v", got, want.files)
				}
				if v, err := l.repo.VerifySnapshot(t.Context(), VerifySnapshotRequest{Snapshot: snapshot}); err != nil || !v.Intact {
					fail("verify: %+v, %v", v, err)
				}
				if _, err := l.repo.Discard(t.Context(), inv.ID); err != nil {
					fail("discard: %v", err)
				}
			}
		})
	}
}

// filesBelow is what doings.state says of files.
func filesBelow(t *testing.T, dir string) map[string]string {
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

func gitIn(t *testing.T, l *lab, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, l.repo.opts.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}
