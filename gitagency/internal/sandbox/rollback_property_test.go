package sandbox_test

import (
	"fmt"
	"io/fs"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// After random changes in a sandbox, a rollback to a snapshot restores its files with modes and links, the index, HEAD
// and the branch; a rollback of the rollback restores the state before it.
//
// A case depends on its number and on the cases before it in the same sandbox.
func TestRollbackRestoresRandomStates(t *testing.T) {
	t.Parallel()
	cases, perSandbox := 500, 25
	if testing.Short() {
		cases, perSandbox = 30, 15
	}
	for first := 0; first < cases; first += perSandbox {
		t.Run(fmt.Sprintf("cases from %d", first), func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{}, "user.name", "u", "user.email", "u@example.com", "commit.gpgsign", "false")
			if first/perSandbox%2 == 1 { // there the repository's configuration is not trusted
				l.StartWithoutWalls()
			}
			d := &sandboxEditor{l, nil}
			d.rand = rand.New(rand.NewPCG(uint64(first), 0))
			d.changeTimes(12)
			before := d.readState()
			for n := first; n < first+perSandbox; n++ {
				d.rand = rand.New(rand.NewPCG(uint64(n), 1))
				snapshot, err := l.Sandbox.Snapshot(t.Context())
				if err != nil {
					t.Fatalf("case %d (first case %d): snapshot: %v", n, first, err)
				}
				done := d.changeTimes(1 + d.rand.IntN(8))
				left := d.readState()
				fail := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("case %d (first case %d), after %s:\n%s", n, first, strings.Join(done, "; "), fmt.Sprintf(format, args...))
				}
				there, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: snapshot})
				if err != nil {
					fail("rollback: %v", err)
				}
				if wrong := d.readState().checkRolledBack(before, left); wrong != "" {
					fail("%s", wrong)
				}
				if _, err := l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: there.LeftName}); err != nil {
					fail("second rollback: %v", err)
				}
				now := d.readState()
				if now.snapshotText() != left.snapshotText() {
					fail("after both rollbacks the state is\n%s\nand was\n%s", now.snapshotText(), left.snapshotText())
				}
				for name := range left.ignored {
					if now.files[name] != left.files[name] {
						fail("ignored file %q is %s, and was %s", name, now.files[name], left.files[name])
					}
				}
				before = now
			}
		})
	}
}

// sandboxEditor makes random changes in a sandbox.
type sandboxEditor struct {
	*sandboxtest.Fixture
	rand *rand.Rand
}

// changeTimes makes that many changes, and returns their descriptions.
func (d *sandboxEditor) changeTimes(many int) []string {
	d.T.Helper()
	var done []string
	for range many {
		done = append(done, d.changeOnce())
	}
	return done
}

// randomName returns one of a few paths, so that changes often affect the same path.
func (d *sandboxEditor) randomName() string {
	parts := []string{"a", "b", "Makefile", "dir", "dir/x", "dir/y", "dir/deep/z", "dir/deep", "ü ñ", "q\"uote", "tab\there", "b/c", "-dash", "ignored.log", "secret/ignored.log"}
	return parts[d.rand.IntN(len(parts))]
}

func (d *sandboxEditor) path(name string) string { return filepath.Join(d.Sandbox.WorkDir(), name) }

// clearPath removes the file or tree at a path, makes its parent directories, and replaces files in their place.
func (d *sandboxEditor) clearPath(name string) {
	d.T.Helper()
	dir := ""
	for part := range strings.SplitSeq(filepath.Dir(name), "/") {
		dir = filepath.Join(dir, part)
		if fi, err := os.Lstat(d.path(dir)); err == nil && !fi.IsDir() {
			d.must(os.Remove(d.path(dir)))
		}
	}
	d.must(os.MkdirAll(filepath.Dir(d.path(name)), 0o755))
	d.must(os.RemoveAll(d.path(name)))
}

// lstat returns the file information of a path; nil if it does not exist or a parent is a symlink.
func (d *sandboxEditor) lstat(name string) fs.FileInfo {
	for at := filepath.Dir(name); at != "."; at = filepath.Dir(at) {
		if fi, err := os.Lstat(d.path(at)); err != nil || !fi.IsDir() {
			return nil
		}
	}
	fi, err := os.Lstat(d.path(name))
	if err != nil {
		return nil
	}
	return fi
}

func (d *sandboxEditor) must(err error) {
	d.T.Helper()
	if err != nil {
		d.T.Fatal(err)
	}
}

// tryGit runs git and ignores errors: there may be nothing to do.
func (d *sandboxEditor) tryGit(args ...string) {
	cmd := exec.CommandContext(d.T.Context(), "git", args...)
	cmd.Dir, cmd.Env = d.Sandbox.WorkDir(), d.Repo.Opts.Env
	_ = cmd.Run()
}

func (d *sandboxEditor) changeOnce() string {
	name, text := d.randomName(), fmt.Sprint(d.rand.IntN(5))
	if d.rand.IntN(4) == 0 {
		text = strings.Repeat("line "+text+"\r\n", d.rand.IntN(50))
	}
	switch what := d.rand.IntN(16); what {
	case 0, 1, 2:
		d.clearPath(name)
		d.must(os.WriteFile(d.path(name), []byte(text), 0o644))
		return "write " + name
	case 3:
		d.clearPath(name)
		d.must(os.WriteFile(d.path(name), []byte("#!"+text), 0o755))
		return "write executable " + name
	case 4:
		d.clearPath(name)
		to := []string{"a", "/nowhere/at/all", "..", "dir", name}[d.rand.IntN(5)]
		d.must(os.Symlink(to, d.path(name)))
		return "link " + name + " to " + to
	case 5, 6:
		if d.lstat(name) != nil {
			d.must(os.RemoveAll(d.path(name)))
		}
		return "remove " + name
	case 7:
		if fi := d.lstat(name); fi != nil && fi.Mode().IsRegular() {
			d.must(os.Chmod(d.path(name), fi.Mode()^0o111))
		}
		return "chmod " + name
	case 8:
		to := d.randomName()
		if d.lstat(name) != nil && !strings.HasPrefix(to+"/", name+"/") && !strings.HasPrefix(name+"/", to+"/") {
			d.clearPath(to)
			if d.lstat(name) != nil {
				d.must(os.Rename(d.path(name), d.path(to)))
			}
		}
		return "rename " + name + " to " + to
	case 9:
		d.tryGit("add", "-A")
		return "add all"
	case 10:
		d.tryGit("add", "--", name)
		return "add " + name
	case 11:
		if d.rand.IntN(6) == 0 {
			name = "."
		}
		d.tryGit("rm", "-r", "-q", "--cached", "--", name)
		return "unstage " + name
	case 12:
		d.tryGit("add", "-A")
		d.tryGit("commit", "-q", "-m", "c")
		return "commit"
	case 13:
		how := []string{"--soft", "--mixed", "--hard"}[d.rand.IntN(3)]
		d.tryGit("reset", "-q", how, "HEAD~1")
		return "reset " + how
	case 14:
		if d.rand.IntN(2) == 0 {
			d.tryGit("checkout", "-q", "--detach")
			return "detach"
		}
		d.tryGit("checkout", "-q", "agency/sandbox-"+d.Sandbox.ID)
		return "attach"
	default:
		d.clearPath(".gitignore")
		d.must(os.WriteFile(d.path(".gitignore"), []byte([]string{"*.log\n", "", "b\n", "*.log\ndir/deep\n"}[d.rand.IntN(4)]), 0o644))
		return "write .gitignore"
	}
}

// observedState is the state of a sandbox as read from disk and from git.
type observedState struct {
	files    map[string]string // content of all files on disk
	ignored  map[string]bool   // names of ignored files
	gitState string            // the index, HEAD and the branch
}

// snapshotText describes the part of the state that a snapshot holds: all but ignored files.
func (s observedState) snapshotText() string {
	var lines []string
	for name, what := range s.files {
		if !s.ignored[name] {
			lines = append(lines, fmt.Sprintf("%q %s", name, what))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n" + s.gitState
}

// checkRolledBack describes how s differs from the expected result of a rollback from left to before; empty if it does
// not. Files that were ignored before the rollback stay, unless the snapshot has a file or directory in their place.
func (s observedState) checkRolledBack(before, left observedState) string {
	for name := range s.files {
		if _, was := before.files[name]; (!was || before.ignored[name]) && !s.ignored[name] && !left.ignored[name] {
			return fmt.Sprintf("%q is newer than the snapshot and still exists", name)
		}
	}
	for name, was := range before.files {
		if !before.ignored[name] && s.files[name] != was {
			return fmt.Sprintf("%q is %s, want %s", name, s.files[name], was)
		}
	}
	for name := range left.ignored {
		inTheWay := false
		for other := range before.files {
			inTheWay = inTheWay || !before.ignored[other] && (other == name || strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/"))
		}
		if !inTheWay && s.files[name] != left.files[name] {
			return fmt.Sprintf("ignored file %q is %s, want %s", name, s.files[name], left.files[name])
		}
	}
	if s.gitState != before.gitState {
		return fmt.Sprintf("git state is\n%s\nwant\n%s", s.gitState, before.gitState)
	}
	return ""
}

// readState reads the current state of the sandbox.
func (d *sandboxEditor) readState() observedState {
	d.T.Helper()
	now := observedState{files: map[string]string{}, ignored: map[string]bool{}}
	d.must(filepath.WalkDir(d.Sandbox.WorkDir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(d.Sandbox.WorkDir(), path)
		if err != nil {
			return err
		}
		if name == ".agency" {
			return fs.SkipDir
		}
		if e.IsDir() || name == ".git" {
			return nil
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		what := ""
		if fi.Mode()&fs.ModeSymlink != 0 {
			what, err = os.Readlink(path)
			what = "-> " + what
		} else {
			var data []byte
			data, err = os.ReadFile(path)
			what = fmt.Sprintf("%v %q", fi.Mode().Perm()&0o100 != 0, data)
		}
		now.files[name] = what
		return err
	}))
	for name := range strings.SplitSeq(d.Git("ls-files", "-z", "--others", "--ignored", "--exclude-standard"), "\x00") {
		if _, there := now.files[name]; there {
			now.ignored[name] = true
		}
	}
	head, err := os.ReadFile(filepath.Join(d.Repo.Git.AdminDir(d.Sandbox.ID), "HEAD"))
	d.must(err)
	tip, err := d.Repo.Git.Tip(d.T.Context(), core.SandboxRef(d.Sandbox.ID))
	d.must(err)
	now.gitState = "staged:\n" + d.Git("ls-files", "-s") + "\nHEAD " + string(head) + tip
	return now
}
