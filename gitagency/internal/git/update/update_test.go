package update

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// advancer is a repository in which main is checked out, and is to go on to another commit.
type advancer struct {
	*gittest.Lab
	repo *git.Repo
	tree string // that has main
	a    Update
	by   *merge.Merger // who knows what is in the new commit; nil where git is asked
}

// begin looks whether it can be done.
func (ad *advancer) begin() (*Transaction, error) {
	if ad.by != nil {
		return BeginMerged(ad.T.Context(), ad.by, ad.a)
	}
	return Begin(ad.T.Context(), ad.repo, ad.a)
}

// newAdvancer takes a lab whose HEAD is where main was, and a commit that it is to go to.
func newAdvancer(l *gittest.Lab, to string) *advancer {
	l.T.Helper()
	ad := &advancer{Lab: l, repo: repotest.OpenRepo(l), tree: l.Root}
	ad.a = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to, Reason: "land", Trusted: true}
	var err error
	ad.a.GitDir, ad.a.Worktree, err = CheckedOutIn(l.T.Context(), ad.repo, ad.a.Branch)
	l.Must(err)
	if ad.a.Worktree != l.Root {
		l.T.Fatalf("main is checked out in %q", ad.a.Worktree)
	}
	return ad
}

// ahead makes a commit on top of main of what change does to a worktree, elsewhere.
func ahead(l *gittest.Lab, change func(tree string)) string {
	l.T.Helper()
	tree := filepath.Join(gittest.TempDir(l.T), "ahead")
	l.Git("worktree", "add", "-q", "--detach", tree, "main")
	change(tree)
	l.GitIn(tree, "add", "-A")
	l.GitIn(tree, "commit", "-q", "-m", "ahead")
	to := l.GitIn(tree, "rev-parse", "HEAD")
	l.Git("worktree", "remove", "-f", tree)
	return to
}

// steps are all of them, in order.
var steps = []string{"Lock", "Prepare", "Files", "Commit", "Publish"}

func (ad *advancer) step(x *Transaction, name string) error {
	ctx := ad.T.Context()
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
	ad.T.Helper()
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
	ad.T.Helper()
	return ad.GitIn(ad.tree, "status", "--porcelain=v2", "--ignored", "-uall")
}

// sum is everything: files, index, refs, but for objects and what is ours to leave.
func (ad *advancer) sum() map[string]string {
	ad.T.Helper()
	all := gittest.DiskState(ad.T, ad.Root)
	if ad.tree != ad.Root {
		maps.Copy(all, gittest.DiskState(ad.T, ad.tree))
	}
	for name := range all {
		rel := strings.TrimPrefix(name, ad.Root+"/.git/")
		if strings.HasPrefix(rel, "objects") || rel == "agency" || rel == "refs/agency" { // an empty directory
			delete(all, name)
		}
	}
	return all
}

// landed checks that all of it is done, and that nothing is left.
func (ad *advancer) landed(before string) {
	ad.T.Helper()
	if got := ad.Git("rev-parse", "main"); got != ad.a.New {
		ad.T.Errorf("main is at %s", got)
	}
	if got := ad.status(); got != before {
		ad.T.Errorf("status is\n%s\nwant\n%s", got, before)
	}
	ad.unlocked()
	ad.Git("fsck", "--no-dangling")
}

// unlocked checks that nothing of ours is left.
func (ad *advancer) unlocked() {
	ad.T.Helper()
	for name := range gittest.DiskState(ad.T, filepath.Join(ad.Root, ".git")) {
		if strings.HasSuffix(name, ".lock") || strings.Contains(name, index.DraftSuffix) || strings.Contains(name, "/.git/agency/") {
			ad.T.Errorf("%s is left", name)
		}
	}
}

// varied is a change of every kind.
func varied(l *gittest.Lab) string {
	for _, name := range []string{"del.txt", "deep/er/del.txt", "d2f/x", "d2f/y/z", "f2d", "f2l", "keep.txt", "dir/keep.txt", "run2.sh"} {
		l.Write(name, name+"\n")
	}
	l.Must(os.Symlink("a.txt", filepath.Join(l.Root, "l2f")))
	l.Write("n\xff\nl", "odd\n")
	l.Commit("second")
	return ahead(l, func(tree string) {
		l.WriteIn(tree, "a.txt", "changed\n")
		l.WriteIn(tree, "dir/b.txt", "changed\n")
		l.WriteIn(tree, "new/in/here", "new\n")
		l.WriteIn(tree, "bin", strings.Repeat("\x00\x01binary", 50_000))
		l.WriteIn(tree, "n\xff\nl", "odder\n")
		l.WriteIn(tree, "m\xfe\nl", "odder\n")
		for _, name := range []string{"del.txt", "deep", "d2f", "f2d", "f2l", "l2f"} {
			l.Must(os.RemoveAll(filepath.Join(tree, name)))
		}
		l.WriteIn(tree, "d2f", "file now\n")
		l.WriteIn(tree, "f2d/a/b", "dir now\n")
		l.Must(os.Symlink("run.sh", filepath.Join(tree, "f2l")))
		l.WriteIn(tree, "l2f", "file now\n")
		l.Must(os.Chmod(filepath.Join(tree, "run2.sh"), 0o755))
		l.Must(os.Chmod(filepath.Join(tree, "run.sh"), 0o644))
	})
}

func TestAdvanceTakesBranchAndWorktreeAlong(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{false, true} {
		l := gittest.New(t)
		to := varied(l)
		// What the person has elsewhere stays as it is.
		tree := l.Root
		if linked {
			tree = filepath.Join(gittest.TempDir(t), "linked")
			l.Git("checkout", "-q", "--detach")
			l.Git("worktree", "add", "-q", tree, "main")
		}
		l.WriteIn(l.Root, ".git/info/exclude", "*.ign\n")
		l.WriteIn(tree, "keep.txt", "dirty\n")
		l.WriteIn(tree, "dir/keep.txt", "staged\n")
		l.WriteIn(tree, "staged.new", "staged\n")
		l.WriteIn(tree, "meant", "to be added\n")
		l.GitIn(tree, "add", "dir/keep.txt", "staged.new")
		l.GitIn(tree, "add", "-N", "meant")
		l.WriteIn(tree, "untracked", "u\n")
		l.WriteIn(tree, "dir/x.ign", "i\n")
		ad := &advancer{Lab: l, repo: repotest.OpenRepo(l), tree: tree}
		ad.a = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to, Reason: "land it"}
		zeros := strings.Repeat("0", len(to))
		ad.a.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: ad.a.Old}}
		var err error
		ad.a.GitDir, ad.a.Worktree, err = CheckedOutIn(t.Context(), ad.repo, ad.a.Branch)
		l.Must(err)
		before := ad.status()
		index := l.GitIn(tree, "diff", "--cached", "--raw")

		// The dry run changes nothing.
		was := ad.sum()
		_, err = Begin(t.Context(), ad.repo, ad.a)
		l.Must(err)
		gittest.RequireSame(t, "after a dry run", ad.sum(), was)

		l.Must(ad.advance())
		ad.landed(before)
		if got := l.GitIn(tree, "diff", "--cached", "--raw"); got != index {
			t.Errorf("staged is\n%s\nwant\n%s", got, index)
		}
		if got := l.Git("rev-parse", "refs/agency/trash/x"); got != ad.a.Old {
			t.Errorf("the other ref is at %s", got)
		}
		for _, ref := range []string{"HEAD", "main"} {
			if got := l.GitIn(tree, "reflog", "-1", "--format=%H %gs", ref); got != to+" land it" {
				t.Errorf("the log of %s says %q", ref, got)
			}
		}
		for _, gone := range []string{"deep", "del.txt"} {
			if gittest.Exists(filepath.Join(tree, gone)) {
				t.Errorf("%s is still there", gone)
			}
		}
		l.GitIn(tree, "commit", "-q", "-m", "and on")
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
	l := gittest.New(t)
	to := varied(l)
	l.WriteIn(l.Root, ".git/info/exclude", "*.ign\nbin\nnew\n")
	ad := newAdvancer(l, to)
	aside := gittest.TempDir(t)
	ad.a.Trusted = false
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"dirty", func() { l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"dirty and staged", func() { l.Write("a.txt", "mine\n"); l.Git("add", "a.txt") }, "a.txt staged"},
		{"staged, and as before on disk", func() { l.Write("a.txt", "mine\n"); l.Git("add", "a.txt"); l.Write("a.txt", "a\n") }, "a.txt staged"},
		{"what comes is there already", func() { l.Write("a.txt", "changed\n"); l.Git("add", "a.txt") }, "a.txt staged"},
		{"taken out of the index", func() { l.Git("rm", "-q", "--cached", "a.txt") }, "a.txt staged"},
		{"gone", func() { l.Must(os.Remove(filepath.Join(l.Root, "a.txt"))) }, "a.txt dirty"},
		{"what goes was changed", func() { l.Write("del.txt", "mine\n") }, "del.txt dirty"},
		{"another mode", func() { l.Must(os.Chmod(filepath.Join(l.Root, "run2.sh"), 0o711)) }, "run2.sh dirty"},
		{"a link now", func() {
			l.Must(os.Remove(filepath.Join(l.Root, "a.txt")))
			l.Must(os.Symlink("run.sh", filepath.Join(l.Root, "a.txt")))
		}, "a.txt dirty"},
		{"a directory now", func() { l.Must(os.Remove(filepath.Join(l.Root, "a.txt"))); l.Write("a.txt/mine", "x") }, "a.txt dirty"},
		{"taken for unchanged", func() { l.Git("update-index", "--assume-unchanged", "a.txt"); l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"not checked out, but there", func() { l.Git("update-index", "--skip-worktree", "a.txt"); l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"of the same size and time", func() {
			name := filepath.Join(l.Root, "a.txt")
			fi, err := os.Lstat(name)
			l.Must(err)
			l.Must(os.WriteFile(name, []byte("b\n"), 0o644))
			l.Must(os.Chtimes(name, fi.ModTime(), fi.ModTime()))
		}, "a.txt dirty"},
		{"untracked", func() { l.Write("f2d.x", "x"); l.Write("m\xfe\nl", "mine\n") }, "m\xfe\nl untracked"},
		{"staged where something comes", func() { l.Write("bin", "mine\n"); l.Git("add", "-f", "bin") }, "bin staged"},
		{"meant to be added", func() { l.Write("bin", "mine\n"); l.Git("add", "-f", "-N", "bin") }, "bin staged"},
		{"staged below what comes", func() { l.Write("bin/mine", "mine\n"); l.Git("add", "-f", "bin/mine") }, "bin/mine staged"},
		{"staged where a directory comes", func() { l.Write("new", "mine\n"); l.Git("add", "-f", "new") }, "new staged"},
		{"ignored", func() { l.Write("bin", "mine\n") }, "bin ignored"},
		{"ignored directory where a file comes", func() { l.Write("bin/a/mine", "mine\n") }, "bin/a/mine ignored"},
		{"ignored file where a directory comes", func() { l.Write("new", "mine\n") }, "new ignored"},
		{"ignored in a directory that goes", func() { l.Write("d2f/mine.ign", "mine\n") }, "d2f/mine.ign ignored"},
		{"untracked in a directory that goes", func() { l.Write("d2f/y/mine", "mine\n") }, "d2f/y/mine untracked"},
		{"a link where a directory comes", func() { l.Must(os.Symlink(aside, filepath.Join(l.Root, "new"))) }, "new ignored"},
		{"a link in the place of a tracked directory", func() {
			l.Must(os.Rename(filepath.Join(l.Root, "dir"), filepath.Join(aside, "dir")))
			l.Must(os.Symlink(filepath.Join(aside, "dir"), filepath.Join(l.Root, "dir")))
		}, "dir untracked, dir/b.txt dirty"},
		{"a repository where a file comes", func() { l.Git("init", "-q", "bin") }, "bin repository"},
		{"a repository where a directory comes", func() { l.Git("init", "-q", "new") }, "new repository"},
		{"all of them are named", func() {
			l.Write("a.txt", "mine\n")
			l.Write("bin", "mine\n")
			l.Write("d2f/x", "mine\n")
			l.Write("dir/b.txt", "mine\n")
			l.Git("add", "dir/b.txt")
		}, "a.txt dirty, bin ignored, d2f/x dirty, dir/b.txt staged"},
	} {
		c.do()
		before := ad.sum()
		if _, err := Begin(t.Context(), ad.repo, ad.a); over(err) != c.want {
			t.Errorf("%s: %q, want %q: %v", c.name, over(err), c.want, err)
		}
		gittest.RequireSame(t, c.name, ad.sum(), before)
		for _, flag := range []string{"--no-assume-unchanged", "--no-skip-worktree"} {
			_, _ = l.TryGit(l.Root, "update-index", flag, "a.txt") // which may not be in there
		}
		l.Git("clean", "-qffdx")
		l.Git("reset", "-q", "--hard")
		l.Must(os.RemoveAll(filepath.Join(aside, "dir")))
	}
	// What is not in the way.
	l.Must(os.MkdirAll(filepath.Join(l.Root, "bin/empty/too"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(l.Root, "d2f/empty"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(l.Root, "new/in"), 0o755))
	l.Write("a.txt", "a\n") // at another time
	l.Must(os.Remove(filepath.Join(l.Root, "del.txt")))
	l.Write("deep/mine", "mine\n")
	l.Must(ad.advance())
	ad.landed("? deep/mine")
}

func TestAdvanceRefusesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	ad.repo.LockWait.Timeout = time.Millisecond
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
		l.WriteIn(l.Root, ".git/"+c.name, ad.a.Old+"\n")
		before := ad.sum()
		var e *OperationInProgressError
		if _, err := Begin(t.Context(), ad.repo, ad.a); !errors.As(err, &e) || e.Operation != c.what {
			t.Errorf("%s: %v", c.name, err)
		}
		gittest.RequireSame(t, c.name, ad.sum(), before)
		top, _, _ := strings.Cut(c.name, "/")
		l.Must(os.RemoveAll(filepath.Join(l.Root, ".git", top)))
	}
	// A rebase that has stopped at a pick is a rebase.
	l.WriteIn(l.Root, ".git/rebase-merge/onto", ad.a.Old+"\n")
	l.WriteIn(l.Root, ".git/CHERRY_PICK_HEAD", ad.a.Old+"\n")
	var stopped *OperationInProgressError
	if _, err := Begin(t.Context(), ad.repo, ad.a); !errors.As(err, &stopped) || stopped.Operation != "rebase" {
		t.Errorf("a rebase at a pick: %v", err)
	}
	l.Shell("rm -r .git/rebase-merge .git/CHERRY_PICK_HEAD")

	// A lock that comes after the dry run.
	x, err := Begin(t.Context(), ad.repo, ad.a)
	l.Must(err)
	l.WriteIn(l.Root, ".git/index.lock", "")
	before := ad.sum()
	var e *OperationInProgressError
	if err := x.Lock(t.Context()); !errors.As(err, &e) || e.Operation != "index.lock" {
		t.Errorf("a lock: %v", err)
	}
	l.Must(x.Close())
	gittest.RequireSame(t, "a lock", ad.sum(), before)
	l.Must(os.Remove(filepath.Join(l.Root, ".git/index.lock")))

	// Conflicts of which nothing else is left.
	blob := l.Git("rev-parse", "main:a.txt")
	cmd := "100644 " + blob + " 1\tkeep.txt\n100644 " + blob + " 2\tkeep.txt\n"
	l.Write("../info", cmd)
	l.Git("rm", "-q", "--cached", "keep.txt")
	l.Shell("git update-index --index-info <../info")
	if _, err := Begin(t.Context(), ad.repo, ad.a); !errors.As(err, &e) || e.Operation != "conflicts" {
		t.Errorf("conflicts: %v", err)
	}
	l.Git("reset", "-q", "--hard")
	l.Git("checkout", "-q", "-b", "other")
	var elsewhere *WrongBranchError
	if _, err := Begin(t.Context(), ad.repo, ad.a); !errors.As(err, &elsewhere) || elsewhere.Head != "refs/heads/other" {
		t.Errorf("on another branch: %v", err)
	}
	l.Git("checkout", "-q", "--detach")
	if _, err := Begin(t.Context(), ad.repo, ad.a); !errors.As(err, &elsewhere) {
		t.Errorf("detached: %v", err)
	}
}
