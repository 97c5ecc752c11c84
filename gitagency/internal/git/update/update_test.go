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

// updateLab is a repository in which main is checked out, and an Update of main.
type updateLab struct {
	*gittest.Fixture
	repo          *git.Repo
	worktree      string // worktree that has main checked out
	spec          Update
	contentMerger *merge.Merger // merger that the new files are read from; nil: git writes them
}

// begin begins the update, with the merger if there is one.
func (lab *updateLab) begin() (*Transaction, error) {
	if lab.contentMerger != nil {
		return BeginMerged(lab.T.Context(), lab.contentMerger, lab.spec)
	}
	return Begin(lab.T.Context(), lab.repo, lab.spec)
}

// newUpdateLab makes an update of main to a commit, in a lab that has main checked out.
func newUpdateLab(l *gittest.Fixture, to string) *updateLab {
	l.T.Helper()
	lab := &updateLab{Fixture: l, repo: repotest.OpenRepo(l), worktree: l.Root}
	lab.spec = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to, Reason: "land", Trusted: true}
	var err error
	lab.spec.GitDir, lab.spec.Worktree, err = CheckedOutIn(l.T.Context(), lab.repo, lab.spec.Branch)
	l.Must(err)
	if lab.spec.Worktree != l.Root {
		l.T.Fatalf("main is checked out in %q", lab.spec.Worktree)
	}
	return lab
}

// commitOnMain makes a commit on top of main, with the changes that change makes in a temporary worktree.
func commitOnMain(l *gittest.Fixture, change func(tree string)) string {
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

// stepNames are the steps of a Transaction, in order.
var stepNames = []string{"Lock", "Prepare", "Files", "Commit", "Publish"}

// runStep runs a step by its name in stepNames.
func (lab *updateLab) runStep(tx *Transaction, name string) error {
	ctx := lab.T.Context()
	switch name {
	case "Lock":
		return tx.Lock(ctx)
	case "Prepare":
		return tx.Prepare(ctx)
	case "Files":
		return tx.MoveFiles(ctx)
	case "Commit":
		return tx.Commit(ctx)
	}
	return tx.Publish(ctx)
}

// runAll runs the whole update.
func (lab *updateLab) runAll() error {
	lab.T.Helper()
	tx, err := lab.begin()
	if err != nil {
		return err
	}
	for _, name := range stepNames {
		if err := lab.runStep(tx, name); err != nil {
			return errors.Join(err, tx.Close())
		}
	}
	return tx.Close()
}

// status returns the git status of the worktree, with ignored files.
func (lab *updateLab) status() string {
	lab.T.Helper()
	return lab.GitIn(lab.worktree, "status", "--porcelain=v2", "--ignored", "-uall")
}

// diskState returns all files of the repository and the worktree, except for objects and empty directories of ours.
func (lab *updateLab) diskState() map[string]string {
	lab.T.Helper()
	all := gittest.DiskState(lab.T, lab.Root)
	if lab.worktree != lab.Root {
		maps.Copy(all, gittest.DiskState(lab.T, lab.worktree))
	}
	for name := range all {
		rel := strings.TrimPrefix(name, lab.Root+"/.git/")
		if strings.HasPrefix(rel, "objects") || rel == "agency" || rel == "refs/agency" { // may stay as empty directories
			delete(all, name)
		}
	}
	return all
}

// requireLanded checks that main has moved, that git status is unchanged, and that no temporary files are left.
func (lab *updateLab) requireLanded(before string) {
	lab.T.Helper()
	if got := lab.Git("rev-parse", "main"); got != lab.spec.New {
		lab.T.Errorf("main is at %s", got)
	}
	if got := lab.status(); got != before {
		lab.T.Errorf("status is\n%s\nwant\n%s", got, before)
	}
	lab.requireNoLeftovers()
	lab.Git("fsck", "--no-dangling")
}

// requireNoLeftovers checks that there are no lock files, index drafts and staging directories.
func (lab *updateLab) requireNoLeftovers() {
	lab.T.Helper()
	for name := range gittest.DiskState(lab.T, filepath.Join(lab.Root, ".git")) {
		if strings.HasSuffix(name, ".lock") || strings.Contains(name, index.DraftSuffix) || strings.Contains(name, "/.git/agency/") {
			lab.T.Errorf("%s is left", name)
		}
	}
}

// makeVariedCommit adds files to main and returns a commit on top of it with changes of every kind.
func makeVariedCommit(l *gittest.Fixture) string {
	for _, name := range []string{"del.txt", "deep/er/del.txt", "d2f/x", "d2f/y/z", "f2d", "f2l", "keep.txt", "dir/keep.txt", "run2.sh"} {
		l.Write(name, name+"\n")
	}
	l.Must(os.Symlink("a.txt", filepath.Join(l.Root, "l2f")))
	l.Write("n\xff\nl", "odd\n")
	l.Commit("second")
	return commitOnMain(l, func(tree string) {
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

func TestUpdateMovesBranchAndWorktree(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{false, true} {
		l := gittest.New(t)
		to := makeVariedCommit(l)
		// Other local changes stay as they are.
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
		lab := &updateLab{Fixture: l, repo: repotest.OpenRepo(l), worktree: tree}
		lab.spec = Update{Branch: "refs/heads/main", Old: l.Git("rev-parse", "main"), New: to, Reason: "land it"}
		zeros := strings.Repeat("0", len(to))
		lab.spec.OtherRefs = []RefMove{{Ref: "refs/agency/trash/x", Old: zeros, New: lab.spec.Old}}
		var err error
		lab.spec.GitDir, lab.spec.Worktree, err = CheckedOutIn(t.Context(), lab.repo, lab.spec.Branch)
		l.Must(err)
		before := lab.status()
		index := l.GitIn(tree, "diff", "--cached", "--raw")

		// Begin changes nothing.
		was := lab.diskState()
		_, err = Begin(t.Context(), lab.repo, lab.spec)
		l.Must(err)
		gittest.RequireSame(t, "after Begin", lab.diskState(), was)

		l.Must(lab.runAll())
		lab.requireLanded(before)
		if got := l.GitIn(tree, "diff", "--cached", "--raw"); got != index {
			t.Errorf("staged is\n%s\nwant\n%s", got, index)
		}
		if got := l.Git("rev-parse", "refs/agency/trash/x"); got != lab.spec.Old {
			t.Errorf("the other ref is at %s", got)
		}
		for _, ref := range []string{"HEAD", "main"} {
			if got := l.GitIn(tree, "reflog", "-1", "--format=%H %gs", ref); got != to+" land it" {
				t.Errorf("the reflog of %s says %q", ref, got)
			}
		}
		for _, gone := range []string{"deep", "del.txt"} {
			if gittest.Exists(filepath.Join(tree, gone)) {
				t.Errorf("%s still exists", gone)
			}
		}
		l.GitIn(tree, "commit", "-q", "-m", "and on")
	}
}

func TestUpdateRoundTripsThroughJSON(t *testing.T) {
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

// describeOverlaps returns the paths of an LocalChangesError with their reasons.
func describeOverlaps(err error) string {
	var e *LocalChangesError
	if !errors.As(err, &e) {
		return ""
	}
	var all []string
	for _, p := range e.Paths {
		all = append(all, p.Path+" "+p.Reason)
	}
	return strings.Join(all, ", ")
}

func TestBeginRefusesOverwritingLocalChanges(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := makeVariedCommit(l)
	l.WriteIn(l.Root, ".git/info/exclude", "*.ign\nbin\nnew\n")
	lab := newUpdateLab(l, to)
	aside := gittest.TempDir(t)
	lab.spec.Trusted = false
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"dirty", func() { l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"dirty and staged", func() { l.Write("a.txt", "mine\n"); l.Git("add", "a.txt") }, "a.txt staged"},
		{"staged, and as before on disk", func() { l.Write("a.txt", "mine\n"); l.Git("add", "a.txt"); l.Write("a.txt", "a\n") }, "a.txt staged"},
		{"staged, equal to the new content", func() { l.Write("a.txt", "changed\n"); l.Git("add", "a.txt") }, "a.txt staged"},
		{"removed from the index", func() { l.Git("rm", "-q", "--cached", "a.txt") }, "a.txt staged"},
		{"deleted", func() { l.Must(os.Remove(filepath.Join(l.Root, "a.txt"))) }, "a.txt dirty"},
		{"changed file that the update deletes", func() { l.Write("del.txt", "mine\n") }, "del.txt dirty"},
		{"another mode", func() { l.Must(os.Chmod(filepath.Join(l.Root, "run2.sh"), 0o711)) }, "run2.sh dirty"},
		{"replaced by a symlink", func() {
			l.Must(os.Remove(filepath.Join(l.Root, "a.txt")))
			l.Must(os.Symlink("run.sh", filepath.Join(l.Root, "a.txt")))
		}, "a.txt dirty"},
		{"replaced by a directory", func() { l.Must(os.Remove(filepath.Join(l.Root, "a.txt"))); l.Write("a.txt/mine", "x") }, "a.txt dirty"},
		{"assume-unchanged", func() { l.Git("update-index", "--assume-unchanged", "a.txt"); l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"skip-worktree, but on disk", func() { l.Git("update-index", "--skip-worktree", "a.txt"); l.Write("a.txt", "mine\n") }, "a.txt dirty"},
		{"same size and mtime", func() {
			name := filepath.Join(l.Root, "a.txt")
			fi, err := os.Lstat(name)
			l.Must(err)
			l.Must(os.WriteFile(name, []byte("b\n"), 0o644))
			l.Must(os.Chtimes(name, fi.ModTime(), fi.ModTime()))
		}, "a.txt dirty"},
		{"untracked", func() { l.Write("f2d.x", "x"); l.Write("m\xfe\nl", "mine\n") }, "m\xfe\nl untracked"},
		{"staged at the path of a new file", func() { l.Write("bin", "mine\n"); l.Git("add", "-f", "bin") }, "bin staged"},
		{"intent to add", func() { l.Write("bin", "mine\n"); l.Git("add", "-f", "-N", "bin") }, "bin staged"},
		{"staged below the path of a new file", func() { l.Write("bin/mine", "mine\n"); l.Git("add", "-f", "bin/mine") }, "bin/mine staged"},
		{"staged at the path of a new directory", func() { l.Write("new", "mine\n"); l.Git("add", "-f", "new") }, "new staged"},
		{"ignored", func() { l.Write("bin", "mine\n") }, "bin ignored"},
		{"ignored directory at the path of a new file", func() { l.Write("bin/a/mine", "mine\n") }, "bin/a/mine ignored"},
		{"ignored file at the path of a new directory", func() { l.Write("new", "mine\n") }, "new ignored"},
		{"ignored in a deleted directory", func() { l.Write("d2f/mine.ign", "mine\n") }, "d2f/mine.ign ignored"},
		{"untracked in a deleted directory", func() { l.Write("d2f/y/mine", "mine\n") }, "d2f/y/mine untracked"},
		{"symlink at the path of a new directory", func() { l.Must(os.Symlink(aside, filepath.Join(l.Root, "new"))) }, "new ignored"},
		{"symlink in place of a tracked directory", func() {
			l.Must(os.Rename(filepath.Join(l.Root, "dir"), filepath.Join(aside, "dir")))
			l.Must(os.Symlink(filepath.Join(aside, "dir"), filepath.Join(l.Root, "dir")))
		}, "dir untracked, dir/b.txt dirty"},
		{"repository at the path of a new file", func() { l.Git("init", "-q", "bin") }, "bin repository"},
		{"repository at the path of a new directory", func() { l.Git("init", "-q", "new") }, "new repository"},
		{"several", func() {
			l.Write("a.txt", "mine\n")
			l.Write("bin", "mine\n")
			l.Write("d2f/x", "mine\n")
			l.Write("dir/b.txt", "mine\n")
			l.Git("add", "dir/b.txt")
		}, "a.txt dirty, bin ignored, d2f/x dirty, dir/b.txt staged"},
	} {
		c.do()
		before := lab.diskState()
		if _, err := Begin(t.Context(), lab.repo, lab.spec); describeOverlaps(err) != c.want {
			t.Errorf("%s: %q, want %q: %v", c.name, describeOverlaps(err), c.want, err)
		}
		gittest.RequireSame(t, c.name, lab.diskState(), before)
		for _, flag := range []string{"--no-assume-unchanged", "--no-skip-worktree"} {
			_, _ = l.TryGit(l.Root, "update-index", flag, "a.txt") // fails if a.txt is not in the index
		}
		l.Git("clean", "-qffdx")
		l.Git("reset", "-q", "--hard")
		l.Must(os.RemoveAll(filepath.Join(aside, "dir")))
	}
	// Empty directories, unchanged content, deleted files that the update deletes, and other files do not overlap.
	l.Must(os.MkdirAll(filepath.Join(l.Root, "bin/empty/too"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(l.Root, "d2f/empty"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(l.Root, "new/in"), 0o755))
	l.Write("a.txt", "a\n") // only the mtime changes
	l.Must(os.Remove(filepath.Join(l.Root, "del.txt")))
	l.Write("deep/mine", "mine\n")
	l.Must(lab.runAll())
	lab.requireLanded("? deep/mine")
}

func TestBeginRefusesOperationInProgress(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	lab.repo.LockWait.Timeout = time.Millisecond
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
		l.WriteIn(l.Root, ".git/"+c.name, lab.spec.Old+"\n")
		before := lab.diskState()
		var e *OperationInProgressError
		if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &e) || e.Operation != c.what {
			t.Errorf("%s: %v", c.name, err)
		}
		gittest.RequireSame(t, c.name, lab.diskState(), before)
		top, _, _ := strings.Cut(c.name, "/")
		l.Must(os.RemoveAll(filepath.Join(l.Root, ".git", top)))
	}
	// A rebase that stopped at a pick also has CHERRY_PICK_HEAD; it is reported as a rebase.
	l.WriteIn(l.Root, ".git/rebase-merge/onto", lab.spec.Old+"\n")
	l.WriteIn(l.Root, ".git/CHERRY_PICK_HEAD", lab.spec.Old+"\n")
	var stopped *OperationInProgressError
	if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &stopped) || stopped.Operation != "rebase" {
		t.Errorf("a rebase stopped at a pick: %v", err)
	}
	l.Shell("rm -r .git/rebase-merge .git/CHERRY_PICK_HEAD")

	// An index.lock created after Begin.
	tx, err := Begin(t.Context(), lab.repo, lab.spec)
	l.Must(err)
	l.WriteIn(l.Root, ".git/index.lock", "")
	before := lab.diskState()
	var e *OperationInProgressError
	if err := tx.Lock(t.Context()); !errors.As(err, &e) || e.Operation != "index.lock" {
		t.Errorf("index.lock after Begin: %v", err)
	}
	l.Must(tx.Close())
	gittest.RequireSame(t, "index.lock after Begin", lab.diskState(), before)
	l.Must(os.Remove(filepath.Join(l.Root, ".git/index.lock")))

	// Unmerged index entries without an operation in progress.
	blob := l.Git("rev-parse", "main:a.txt")
	cmd := "100644 " + blob + " 1\tkeep.txt\n100644 " + blob + " 2\tkeep.txt\n"
	l.Write("../info", cmd)
	l.Git("rm", "-q", "--cached", "keep.txt")
	l.Shell("git update-index --index-info <../info")
	if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &e) || e.Operation != "conflicts" {
		t.Errorf("conflicts: %v", err)
	}
	l.Git("reset", "-q", "--hard")
	l.Git("checkout", "-q", "-b", "other")
	var elsewhere *WrongBranchError
	if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &elsewhere) || elsewhere.Head != "refs/heads/other" {
		t.Errorf("on another branch: %v", err)
	}
	l.Git("checkout", "-q", "--detach")
	if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &elsewhere) {
		t.Errorf("detached: %v", err)
	}
}
