package git

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// advancer is a repository in which main is checked out, and is to go on to another commit.
type advancer struct {
	*lab
	repo *Repo
	tree string // that has main
	a    Update
	by   *Merger // who knows what is in the new commit; nil where git is asked
}

// begin looks whether it can be done.
func (ad *advancer) begin() (*Transaction, error) {
	if ad.by != nil {
		return ad.by.BeginMerged(ad.t.Context(), ad.a)
	}
	return ad.repo.Begin(ad.t.Context(), ad.a)
}

// newAdvancer takes a lab whose HEAD is where main was, and a commit that it is to go to.
func newAdvancer(l *lab, to string) *advancer {
	l.t.Helper()
	ad := &advancer{lab: l, repo: l.open(), tree: l.dir}
	ad.a = Update{Branch: "refs/heads/main", Old: l.git("rev-parse", "main"), New: to, Reason: "land", Trusted: true}
	var err error
	ad.a.GitDir, ad.a.Worktree, err = ad.repo.CheckedOutIn(l.t.Context(), ad.a.Branch)
	l.must(err)
	if ad.a.Worktree != l.dir {
		l.t.Fatalf("main is checked out in %q", ad.a.Worktree)
	}
	return ad
}

// ahead makes a commit on top of main of what change does to a worktree, elsewhere.
func (l *lab) ahead(change func(tree string)) string {
	l.t.Helper()
	tree := filepath.Join(tempDir(l.t), "ahead")
	l.git("worktree", "add", "-q", "--detach", tree, "main")
	change(tree)
	l.in(tree, "add", "-A")
	l.in(tree, "commit", "-q", "-m", "ahead")
	to := l.in(tree, "rev-parse", "HEAD")
	l.git("worktree", "remove", "-f", tree)
	return to
}

// steps are all of them, in order.
var steps = []string{"Lock", "Prepare", "Files", "Commit", "Publish"}

func (ad *advancer) step(x *Transaction, name string) error {
	ctx := ad.t.Context()
	switch name {
	case "Lock":
		return x.Lock(ctx)
	case "Prepare":
		return x.Prepare(ctx)
	case "Files":
		return x.MoveFiles(ctx)
	case "Commit":
		return x.Commit(ctx)
	}
	return x.Publish(ctx)
}

// advance does all of it.
func (ad *advancer) advance() error {
	ad.t.Helper()
	x, err := ad.begin()
	if err != nil {
		return err
	}
	for _, name := range steps {
		if err := ad.step(x, name); err != nil {
			return errors.Join(err, x.Close())
		}
	}
	return x.Close()
}

// status is what git says of the person's worktree.
func (ad *advancer) status() string {
	ad.t.Helper()
	return ad.in(ad.tree, "status", "--porcelain=v2", "--ignored", "-uall")
}

// sum is everything: files, index, refs, but for objects and what is ours to leave.
func (ad *advancer) sum() map[string]string {
	ad.t.Helper()
	all := states(ad.t, ad.dir)
	if ad.tree != ad.dir {
		maps.Copy(all, states(ad.t, ad.tree))
	}
	for name := range all {
		rel := strings.TrimPrefix(name, ad.dir+"/.git/")
		if strings.HasPrefix(rel, "objects") || rel == "agency" || rel == "refs/agency" { // an empty directory
			delete(all, name)
		}
	}
	return all
}

// landed checks that all of it is done, and that nothing is left.
func (ad *advancer) landed(before string) {
	ad.t.Helper()
	if got := ad.git("rev-parse", "main"); got != ad.a.New {
		ad.t.Errorf("main is at %s", got)
	}
	if got := ad.status(); got != before {
		ad.t.Errorf("status is\n%s\nwant\n%s", got, before)
	}
	ad.unlocked()
	ad.git("fsck", "--no-dangling")
}

// unlocked checks that nothing of ours is left.
func (ad *advancer) unlocked() {
	ad.t.Helper()
	for name := range states(ad.t, filepath.Join(ad.dir, ".git")) {
		if strings.HasSuffix(name, ".lock") || strings.Contains(name, draftSuffix) || strings.Contains(name, "/.git/agency/") {
			ad.t.Errorf("%s is left", name)
		}
	}
}

// varied is a change of every kind.
func varied(l *lab) string {
	for _, name := range []string{"del.txt", "deep/er/del.txt", "d2f/x", "d2f/y/z", "f2d", "f2l", "keep.txt", "dir/keep.txt", "run2.sh"} {
		l.write(name, name+"\n")
	}
	l.must(os.Symlink("a.txt", filepath.Join(l.dir, "l2f")))
	l.write("n\xff\nl", "odd\n")
	l.commit("second")
	return l.ahead(func(tree string) {
		l.put(tree, "a.txt", "changed\n")
		l.put(tree, "dir/b.txt", "changed\n")
		l.put(tree, "new/in/here", "new\n")
		l.put(tree, "bin", strings.Repeat("\x00\x01binary", 50_000))
		l.put(tree, "n\xff\nl", "odder\n")
		l.put(tree, "m\xfe\nl", "odder\n")
		for _, name := range []string{"del.txt", "deep", "d2f", "f2d", "f2l", "l2f"} {
			l.must(os.RemoveAll(filepath.Join(tree, name)))
		}
		l.put(tree, "d2f", "file now\n")
		l.put(tree, "f2d/a/b", "dir now\n")
		l.must(os.Symlink("run.sh", filepath.Join(tree, "f2l")))
		l.put(tree, "l2f", "file now\n")
		l.must(os.Chmod(filepath.Join(tree, "run2.sh"), 0o755))
		l.must(os.Chmod(filepath.Join(tree, "run.sh"), 0o644))
	})
}

func TestAdvanceTakesBranchAndWorktreeAlong(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{false, true} {
		l := newLab(t)
		to := varied(l)
		// What the person has elsewhere stays as it is.
		tree := l.dir
		if linked {
			tree = filepath.Join(tempDir(t), "linked")
			l.git("checkout", "-q", "--detach")
			l.git("worktree", "add", "-q", tree, "main")
		}
		l.put(l.dir, ".git/info/exclude", "*.ign\n")
		l.put(tree, "keep.txt", "dirty\n")
		l.put(tree, "dir/keep.txt", "staged\n")
		l.put(tree, "staged.new", "staged\n")
		l.put(tree, "meant", "to be added\n")
		l.in(tree, "add", "dir/keep.txt", "staged.new")
		l.in(tree, "add", "-N", "meant")
		l.put(tree, "untracked", "u\n")
		l.put(tree, "dir/x.ign", "i\n")
		ad := &advancer{lab: l, repo: l.open(), tree: tree}
		ad.a = Update{Branch: "refs/heads/main", Old: l.git("rev-parse", "main"), New: to, Reason: "land it"}
		zeros := strings.Repeat("0", len(to))
		ad.a.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: ad.a.Old}}
		var err error
		ad.a.GitDir, ad.a.Worktree, err = ad.repo.CheckedOutIn(t.Context(), ad.a.Branch)
		l.must(err)
		before := ad.status()
		index := l.in(tree, "diff", "--cached", "--raw")

		// The dry run changes nothing.
		was := ad.sum()
		_, err = ad.repo.Begin(t.Context(), ad.a)
		l.must(err)
		requireSame(t, "after a dry run", ad.sum(), was)

		l.must(ad.advance())
		ad.landed(before)
		if got := l.in(tree, "diff", "--cached", "--raw"); got != index {
			t.Errorf("staged is\n%s\nwant\n%s", got, index)
		}
		if got := l.git("rev-parse", "refs/agency/trash/x"); got != ad.a.Old {
			t.Errorf("the other ref is at %s", got)
		}
		for _, ref := range []string{"HEAD", "main"} {
			if got := l.in(tree, "reflog", "-1", "--format=%H %gs", ref); got != to+" land it" {
				t.Errorf("the log of %s says %q", ref, got)
			}
		}
		for _, gone := range []string{"deep", "del.txt"} {
			if exists(filepath.Join(tree, gone)) {
				t.Errorf("%s is still there", gone)
			}
		}
		l.in(tree, "commit", "-q", "-m", "and on")
	}
}

func TestAdvanceCanBeWrittenDown(t *testing.T) {
	t.Parallel()
	a := Update{Branch: "refs/heads/main", Old: "1", New: "2", OtherRefs: []RefMove{{"r", "o", "n"}}, Reason: "why", GitDir: "/g", Worktree: "/t", Trusted: true}
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var b Update
	if err := json.Unmarshal(data, &b); err != nil || !slices.Equal(a.OtherRefs, b.OtherRefs) || b.Worktree != "/t" || !b.Trusted {
		t.Errorf("%s: %v, %v", data, b, err)
	}
}

// over says which paths overlap, and why.
func over(err error) string {
	var e *OverlapsError
	if !errors.As(err, &e) {
		return ""
	}
	var all []string
	for _, p := range e.Paths {
		all = append(all, p.Path+" "+p.Reason)
	}
	return strings.Join(all, ", ")
}

func TestAdvanceRefusesWhatWouldOverwriteAndChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := varied(l)
	l.put(l.dir, ".git/info/exclude", "*.ign\nbin\nnew\n")
	ad := newAdvancer(l, to)
	aside := tempDir(t)
	ad.a.Trusted = false
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"dirty", func() { l.write("a.txt", "mine\n") }, "a.txt dirty"},
		{"dirty and staged", func() { l.write("a.txt", "mine\n"); l.git("add", "a.txt") }, "a.txt staged"},
		{"staged, and as before on disk", func() { l.write("a.txt", "mine\n"); l.git("add", "a.txt"); l.write("a.txt", "a\n") }, "a.txt staged"},
		{"what comes is there already", func() { l.write("a.txt", "changed\n"); l.git("add", "a.txt") }, "a.txt staged"},
		{"taken out of the index", func() { l.git("rm", "-q", "--cached", "a.txt") }, "a.txt staged"},
		{"gone", func() { l.must(os.Remove(filepath.Join(l.dir, "a.txt"))) }, "a.txt dirty"},
		{"what goes was changed", func() { l.write("del.txt", "mine\n") }, "del.txt dirty"},
		{"another mode", func() { l.must(os.Chmod(filepath.Join(l.dir, "run2.sh"), 0o711)) }, "run2.sh dirty"},
		{"a link now", func() {
			l.must(os.Remove(filepath.Join(l.dir, "a.txt")))
			l.must(os.Symlink("run.sh", filepath.Join(l.dir, "a.txt")))
		}, "a.txt dirty"},
		{"a directory now", func() { l.must(os.Remove(filepath.Join(l.dir, "a.txt"))); l.write("a.txt/mine", "x") }, "a.txt dirty"},
		{"taken for unchanged", func() { l.git("update-index", "--assume-unchanged", "a.txt"); l.write("a.txt", "mine\n") }, "a.txt dirty"},
		{"not checked out, but there", func() { l.git("update-index", "--skip-worktree", "a.txt"); l.write("a.txt", "mine\n") }, "a.txt dirty"},
		{"of the same size and time", func() {
			name := filepath.Join(l.dir, "a.txt")
			fi, err := os.Lstat(name)
			l.must(err)
			l.must(os.WriteFile(name, []byte("b\n"), 0o644))
			l.must(os.Chtimes(name, fi.ModTime(), fi.ModTime()))
		}, "a.txt dirty"},
		{"untracked", func() { l.write("f2d.x", "x"); l.write("m\xfe\nl", "mine\n") }, "m\xfe\nl untracked"},
		{"staged where something comes", func() { l.write("bin", "mine\n"); l.git("add", "-f", "bin") }, "bin staged"},
		{"meant to be added", func() { l.write("bin", "mine\n"); l.git("add", "-f", "-N", "bin") }, "bin staged"},
		{"staged below what comes", func() { l.write("bin/mine", "mine\n"); l.git("add", "-f", "bin/mine") }, "bin/mine staged"},
		{"staged where a directory comes", func() { l.write("new", "mine\n"); l.git("add", "-f", "new") }, "new staged"},
		{"ignored", func() { l.write("bin", "mine\n") }, "bin ignored"},
		{"ignored directory where a file comes", func() { l.write("bin/a/mine", "mine\n") }, "bin/a/mine ignored"},
		{"ignored file where a directory comes", func() { l.write("new", "mine\n") }, "new ignored"},
		{"ignored in a directory that goes", func() { l.write("d2f/mine.ign", "mine\n") }, "d2f/mine.ign ignored"},
		{"untracked in a directory that goes", func() { l.write("d2f/y/mine", "mine\n") }, "d2f/y/mine untracked"},
		{"a link where a directory comes", func() { l.must(os.Symlink(aside, filepath.Join(l.dir, "new"))) }, "new ignored"},
		{"a link in the place of a tracked directory", func() {
			l.must(os.Rename(filepath.Join(l.dir, "dir"), filepath.Join(aside, "dir")))
			l.must(os.Symlink(filepath.Join(aside, "dir"), filepath.Join(l.dir, "dir")))
		}, "dir untracked, dir/b.txt dirty"},
		{"a repository where a file comes", func() { l.git("init", "-q", "bin") }, "bin repository"},
		{"a repository where a directory comes", func() { l.git("init", "-q", "new") }, "new repository"},
		{"all of them are named", func() {
			l.write("a.txt", "mine\n")
			l.write("bin", "mine\n")
			l.write("d2f/x", "mine\n")
			l.write("dir/b.txt", "mine\n")
			l.git("add", "dir/b.txt")
		}, "a.txt dirty, bin ignored, d2f/x dirty, dir/b.txt staged"},
	} {
		c.do()
		before := ad.sum()
		if _, err := ad.repo.Begin(t.Context(), ad.a); over(err) != c.want {
			t.Errorf("%s: %q, want %q: %v", c.name, over(err), c.want, err)
		}
		requireSame(t, c.name, ad.sum(), before)
		for _, flag := range []string{"--no-assume-unchanged", "--no-skip-worktree"} {
			_, _ = l.try(l.dir, "update-index", flag, "a.txt") // which may not be in there
		}
		l.git("clean", "-qffdx")
		l.git("reset", "-q", "--hard")
		l.must(os.RemoveAll(filepath.Join(aside, "dir")))
	}
	// What is not in the way.
	l.must(os.MkdirAll(filepath.Join(l.dir, "bin/empty/too"), 0o755))
	l.must(os.MkdirAll(filepath.Join(l.dir, "d2f/empty"), 0o755))
	l.must(os.MkdirAll(filepath.Join(l.dir, "new/in"), 0o755))
	l.write("a.txt", "a\n") // at another time
	l.must(os.Remove(filepath.Join(l.dir, "del.txt")))
	l.write("deep/mine", "mine\n")
	l.must(ad.advance())
	ad.landed("? deep/mine")
}

func TestAdvanceRefusesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	ad.repo.lockWait.timeout = time.Millisecond
	for _, c := range []struct{ name, what string }{
		{"index.lock", "index.lock"},
		{"MERGE_HEAD", "merge"},
		{"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"},
		{"rebase-merge/onto", "rebase"},
		{"rebase-apply/onto", "rebase"},
		{"rebase-apply/applying", "am"},
		{"sequencer/todo", "cherry-pick"},
		{"BISECT_LOG", "bisect"},
		{"BISECT_START", "bisect"},
	} {
		l.put(l.dir, ".git/"+c.name, ad.a.Old+"\n")
		before := ad.sum()
		var e *OperationInProgressError
		if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &e) || e.Operation != c.what {
			t.Errorf("%s: %v", c.name, err)
		}
		requireSame(t, c.name, ad.sum(), before)
		top, _, _ := strings.Cut(c.name, "/")
		l.must(os.RemoveAll(filepath.Join(l.dir, ".git", top)))
	}
	// A rebase that has stopped at a pick is a rebase.
	l.put(l.dir, ".git/rebase-merge/onto", ad.a.Old+"\n")
	l.put(l.dir, ".git/CHERRY_PICK_HEAD", ad.a.Old+"\n")
	var stopped *OperationInProgressError
	if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &stopped) || stopped.Operation != "rebase" {
		t.Errorf("a rebase at a pick: %v", err)
	}
	l.shell("rm -r .git/rebase-merge .git/CHERRY_PICK_HEAD")

	// A lock that comes after the dry run.
	x, err := ad.repo.Begin(t.Context(), ad.a)
	l.must(err)
	l.put(l.dir, ".git/index.lock", "")
	before := ad.sum()
	var e *OperationInProgressError
	if err := x.Lock(t.Context()); !errors.As(err, &e) || e.Operation != "index.lock" {
		t.Errorf("a lock: %v", err)
	}
	l.must(x.Close())
	requireSame(t, "a lock", ad.sum(), before)
	l.must(os.Remove(filepath.Join(l.dir, ".git/index.lock")))

	// Conflicts of which nothing else is left.
	blob := l.git("rev-parse", "main:a.txt")
	cmd := "100644 " + blob + " 1\tkeep.txt\n100644 " + blob + " 2\tkeep.txt\n"
	l.write("../info", cmd)
	l.git("rm", "-q", "--cached", "keep.txt")
	l.shell("git update-index --index-info <../info")
	if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &e) || e.Operation != "conflicts" {
		t.Errorf("conflicts: %v", err)
	}
	l.git("reset", "-q", "--hard")
	l.git("checkout", "-q", "-b", "other")
	var elsewhere *WrongBranchError
	if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &elsewhere) || elsewhere.Head != "refs/heads/other" {
		t.Errorf("on another branch: %v", err)
	}
	l.git("checkout", "-q", "--detach")
	if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &elsewhere) {
		t.Errorf("detached: %v", err)
	}
}

// shell runs a line in the main worktree.
func (l *lab) shell(line string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = l.dir, l.env
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v: %s", line, err, out)
	}
}
