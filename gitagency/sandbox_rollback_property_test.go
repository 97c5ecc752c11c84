package gitagency

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
)

// Whatever is done in a sandbox after a snapshot: a rollback to it gives the identical files, with their modes and
// links, the identical index, HEAD and branch; and a rollback of the rollback gives back the state that was left.
//
// Every case is made from its number and from those before it in the same sandbox.
func TestARollbackTakesBackAnythingDoneAndCanItselfBeTakenBack(t *testing.T) {
	t.Parallel()
	cases, perSandbox := 500, 25
	if testing.Short() {
		cases, perSandbox = 30, 15
	}
	for first := 0; first < cases; first += perSandbox {
		t.Run(fmt.Sprintf("cases from %d", first), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{}, "user.name", "u", "user.email", "u@example.com", "commit.gpgsign", "false")
			if first/perSandbox%2 == 1 { // where what the repository configures does not count
				l.withoutWalls()
			}
			d := &doings{lab: l}
			d.rand = rand.New(rand.NewPCG(uint64(first), 0))
			d.some(12)
			before := d.state()
			for n := first; n < first+perSandbox; n++ {
				d.rand = rand.New(rand.NewPCG(uint64(n), 1))
				snapshot, err := l.box.Snapshot(t.Context())
				if err != nil {
					t.Fatalf("case %d (of those from %d): snapshot: %v", n, first, err)
				}
				done := d.some(1 + d.rand.IntN(8))
				left := d.state()
				fail := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("case %d (of those from %d), after %s:\n%s", n, first, strings.Join(done, "; "), fmt.Sprintf(format, args...))
				}
				there, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: snapshot})
				if err != nil {
					fail("rollback: %v", err)
				}
				if wrong := d.state().goneBack(before, left); wrong != "" {
					fail("%s", wrong)
				}
				if _, err := l.box.Rollback(t.Context(), RollbackRequest{Snapshot: there.LeftName}); err != nil {
					fail("and back: %v", err)
				}
				now := d.state()
				if now.text() != left.text() {
					fail("after both it is\n%s\nand was\n%s", now.text(), left.text())
				}
				for name := range left.ignored {
					if now.files[name] != left.files[name] {
						fail("%q was ignored, and is %s instead of %s", name, now.files[name], left.files[name])
					}
				}
				before = now
			}
		})
	}
}

// doings are things that are done in a sandbox.
type doings struct {
	*lab
	rand *rand.Rand
}

// some does that many of them, and says which.
func (d *doings) some(many int) []string {
	d.t.Helper()
	var done []string
	for range many {
		done = append(done, d.one())
	}
	return done
}

// name is a path; there are few, so that one thing meets another.
func (d *doings) name() string {
	parts := []string{"a", "b", "Makefile", "dir", "dir/x", "dir/y", "dir/deep/z", "dir/deep", "ü ñ", "q\"uote", "tab\there", "b/c", "-dash", "ignored.log", "secret/ignored.log"}
	return parts[d.rand.IntN(len(parts))]
}

func (d *doings) path(name string) string { return filepath.Join(d.box.WorkDir(), name) }

// room makes room for a file, and for the directories on the way to it.
func (d *doings) room(name string) {
	d.t.Helper()
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

// there says what is at a path, and not behind a link on the way to it.
func (d *doings) there(name string) fs.FileInfo {
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

func (d *doings) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// try runs a git that may have nothing to do.
func (d *doings) try(args ...string) {
	cmd := exec.CommandContext(d.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = d.box.WorkDir(), d.repo.opts.Env
	_ = cmd.Run()
}

func (d *doings) one() string {
	name, text := d.name(), fmt.Sprint(d.rand.IntN(5))
	if d.rand.IntN(4) == 0 {
		text = strings.Repeat("line "+text+"\r\n", d.rand.IntN(50))
	}
	switch what := d.rand.IntN(16); what {
	case 0, 1, 2:
		d.room(name)
		d.must(os.WriteFile(d.path(name), []byte(text), 0o644))
		return "write " + name
	case 3:
		d.room(name)
		d.must(os.WriteFile(d.path(name), []byte("#!"+text), 0o755))
		return "program " + name
	case 4:
		d.room(name)
		to := []string{"a", "/nowhere/at/all", "..", "dir", name}[d.rand.IntN(5)]
		d.must(os.Symlink(to, d.path(name)))
		return "link " + name + " to " + to
	case 5, 6:
		if d.there(name) != nil {
			d.must(os.RemoveAll(d.path(name)))
		}
		return "remove " + name
	case 7:
		if fi := d.there(name); fi != nil && fi.Mode().IsRegular() {
			d.must(os.Chmod(d.path(name), fi.Mode()^0o111))
		}
		return "chmod " + name
	case 8:
		to := d.name()
		if d.there(name) != nil && !strings.HasPrefix(to+"/", name+"/") && !strings.HasPrefix(name+"/", to+"/") {
			d.room(to)
			if d.there(name) != nil {
				d.must(os.Rename(d.path(name), d.path(to)))
			}
		}
		return "rename " + name + " to " + to
	case 9:
		d.try("add", "-A")
		return "add all"
	case 10:
		d.try("add", "--", name)
		return "add " + name
	case 11:
		if d.rand.IntN(6) == 0 {
			name = "."
		}
		d.try("rm", "-r", "-q", "--cached", "--", name)
		return "unstage " + name
	case 12:
		d.try("add", "-A")
		d.try("commit", "-q", "-m", "c")
		return "commit"
	case 13:
		how := []string{"--soft", "--mixed", "--hard"}[d.rand.IntN(3)]
		d.try("reset", "-q", how, "HEAD~1")
		return "reset " + how
	case 14:
		if d.rand.IntN(2) == 0 {
			d.try("checkout", "-q", "--detach")
			return "detach"
		}
		d.try("checkout", "-q", "agency/sandbox-"+d.box.ID)
		return "attach"
	default:
		d.room(".gitignore")
		d.must(os.WriteFile(d.path(".gitignore"), []byte([]string{"*.log\n", "", "b\n", "*.log\ndir/deep\n"}[d.rand.IntN(4)]), 0o644))
		return "other rules for what is ignored"
	}
}

// standing is what there is in a sandbox.
type standing struct {
	files   map[string]string // everything on disk
	ignored map[string]bool   // of these
	rest    string            // the index, HEAD and the branch
}

// text is what a snapshot holds of it.
func (s standing) text() string {
	var lines []string
	for name, what := range s.files {
		if !s.ignored[name] {
			lines = append(lines, fmt.Sprintf("%q %s", name, what))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n" + s.rest
}

// goneBack says what is wrong with a sandbox that was in one state, then in another, and went back to the first: empty
// when everything is as it was, but for files that were ignored when it went back, and that are not in the way.
func (s standing) goneBack(before, left standing) string {
	for name := range s.files {
		if _, was := before.files[name]; (!was || before.ignored[name]) && !s.ignored[name] && !left.ignored[name] {
			return fmt.Sprintf("%q came later and is there", name)
		}
	}
	for name, was := range before.files {
		if !before.ignored[name] && s.files[name] != was {
			return fmt.Sprintf("%q is %s and was %s", name, s.files[name], was)
		}
	}
	for name := range left.ignored {
		inTheWay := false
		for other := range before.files {
			inTheWay = inTheWay || !before.ignored[other] && (other == name || strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/"))
		}
		if !inTheWay && s.files[name] != left.files[name] {
			return fmt.Sprintf("%q was ignored, was in nobody's way, and is %s instead of %s", name, s.files[name], left.files[name])
		}
	}
	if s.rest != before.rest {
		return fmt.Sprintf("it is\n%s\nand was\n%s", s.rest, before.rest)
	}
	return ""
}

// state looks at what there is now.
func (d *doings) state() standing {
	d.t.Helper()
	now := standing{files: map[string]string{}, ignored: map[string]bool{}}
	d.must(filepath.WalkDir(d.box.WorkDir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(d.box.WorkDir(), path)
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
	for name := range strings.SplitSeq(d.git("ls-files", "-z", "--others", "--ignored", "--exclude-standard"), "\x00") {
		if _, there := now.files[name]; there {
			now.ignored[name] = true
		}
	}
	head, err := os.ReadFile(filepath.Join(d.repo.git.AdminDir(d.box.ID), "HEAD"))
	d.must(err)
	tip, err := d.repo.git.Tip(d.t.Context(), sandboxRef(d.box.ID))
	d.must(err)
	now.rest = "staged:\n" + d.git("ls-files", "-s") + "\nHEAD " + string(head) + tip
	return now
}
