package transport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// checkComplete checks that every object reachable from in.New, and every one of in.Blobs, exists in the quarantine or
// in the repository, and that the ref is not symbolic and, unless in.LeaveRef is set, at in.Old. Git has checked every
// object of the pack (index-pack --strict), and that the objects to which it points exist. It has not checked to which
// objects those point in turn: a repository may hold unreachable objects whose own references are missing.
//
// Everything reachable from in.Old exists: it was checked when it was received, or is the repository's own. So a commit
// is complete if its first parent is, and all that its tree adds to the parent's tree exists. Git's own connectivity
// check reads every tree of the old commit first, which takes longer than everything else in a large repository; and
// git diff-tree reads a directory as often as it occurs, so that the time it needs for a pack of some hundred bytes grows
// exponentially with the depth of the directories.
func checkComplete(ctx context.Context, r *git.Repo, q git.RunOptions, in ReceiveRequest) (checked Checked, err error) {
	target := proc.Async(func() (string, error) { return r.SymrefTarget(ctx, in.Ref) })
	commits, descends, err := receivedCommits(ctx, r, q, in)
	if to, terr := target(); terr != nil || to != "" {
		if terr == nil {
			terr = &git.SymrefError{Ref: in.Ref, Target: to}
		}
		return checked, terr
	}
	if err != nil {
		return checked, err
	}
	t, err := r.OpenCatFileAt(ctx, q)
	if err != nil {
		return checked, err
	}
	defer t.Close()
	tip, err := fsck.LookupStrict(ctx, t, []string{in.New})
	if err != nil {
		return checked, err
	}
	if tip[0].Type != "commit" {
		return checked, &object.IncompleteError{OID: in.New, Want: "commit", Have: tip[0].Type}
	}
	if err := in.checkNotMoved(ctx, r); err != nil {
		return checked, err
	}
	w := fsck.TreeWalk{
		Objects: t, Seen: map[string]bool{}, Blobs: map[string]bool{}, Size: object.FormatOf(in.New).IDSize(), Reading: q.Reading,
		IsOwn: ownPatternFiles(ctx, r, q, in),
	}
	for _, c := range commits {
		if err := w.WalkCommit(c); err != nil {
			return checked, err
		}
	}
	checked.Descends = descends
	for _, oid := range in.Blobs {
		if !w.Blobs[oid] {
			checked.LooseBlobs = append(checked.LooseBlobs, oid)
		}
	}
	for _, oid := range checked.LooseBlobs {
		w.Blobs[oid] = true
	}
	return checked, checkBlobs(ctx, t, slices.Collect(maps.Keys(w.Blobs)))
}

// checkBlobs checks that blobs exist.
func checkBlobs(ctx context.Context, objects *git.CatFile, oids []string) error {
	found, err := fsck.LookupStrict(ctx, objects, oids)
	if err != nil {
		return err
	}
	for i, f := range found {
		if f.Type != "blob" {
			return &object.IncompleteError{OID: oids[i], Want: "blob", Have: f.Type}
		}
	}
	return nil
}

// checkNotMoved checks that the ref is at in.Old, unless in.LeaveRef is set.
func (in ReceiveRequest) checkNotMoved(ctx context.Context, r *git.Repo) error {
	if in.LeaveRef {
		return nil
	}
	oid, known := r.ReadRefFile(in.Ref)
	if !known {
		found, err := r.Lookup(ctx, in.Ref)
		if err != nil {
			return err
		}
		oid = found[0].OID
	}
	if oid != in.Old {
		return &git.RefMovedError{Ref: in.Ref, Want: in.Old, Have: oid}
	}
	return nil
}

// receivedCommits lists the commits that are reachable from in.New and not from the ref. Git rev-list has read each of
// them, down to commits that the repository had before. Parents are before their children. descends is whether in.New is known to
// descend from in.Old.
func receivedCommits(ctx context.Context, r *git.Repo, q git.RunOptions, in ReceiveRequest) (commits []fsck.ReceivedCommit, descends bool, err error) {
	list := func(not ...string) ([]fsck.ReceivedCommit, error) {
		out, err := r.RunRead(ctx, q, slices.Concat([]string{"rev-list", "--topo-order", "--reverse", "--no-commit-header", "--format=%H %T %P", in.New, "--not"}, not)...)
		if err != nil {
			return nil, err
		}
		// A descendant of the old commit has one that is not reachable from it, and is its child, among its ancestors.
		descends = descends || slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
			words := strings.Fields(line)
			return len(words) > 2 && slices.Contains(words[2:], in.Old)
		})
		return parseReceivedCommits(string(out))
	}
	descends = in.New == in.Old
	if in.Old == "" {
		commits, err = list("--all")
		return commits, descends, err
	}
	commits, err = list(in.Old)
	if err == nil && len(commits) > fsck.ManyReceivedCommits {
		commits, err = list(in.Old, "--all")
	}
	return commits, descends, err
}

// parseReceivedCommits parses lines of a commit, its tree and its parents. The tree of a parent that has a line, too, is
// known by its id, so that it is read once; any other parent's is named by the parent.
func parseReceivedCommits(lines string) ([]fsck.ReceivedCommit, error) {
	var found []fsck.ReceivedCommit
	trees := map[string]string{} // by commit
	for line := range strings.Lines(lines) {
		words := append(strings.Fields(line), "", "", "")
		if !object.IsOID(words[0]) || !object.IsOID(words[1]) {
			return nil, fmt.Errorf("unexpected output of git rev-list: %q", line)
		}
		trees[words[0]] = words[1]
		found = append(found, fsck.ReceivedCommit{OID: words[0], Tree: words[1], ParentTree: words[2]}) // the parent itself, for now
	}
	for i, c := range found {
		if c.ParentTree != "" {
			found[i].ParentTree = cmp.Or(trees[c.ParentTree], c.ParentTree+"^{tree}")
		}
	}
	return found, nil
}

// ownPatternFiles returns a function that reports whether a .gitattributes or .gitignore of a received commit is the
// repository's own: the commit is reachable from another ref, such as the integration branch that a sandbox merged, or
// the last such commits of its history have a file of patterns with that id. That the object exists is not enough: the
// sandbox can have staged it before.
func ownPatternFiles(ctx context.Context, r *git.Repo, q git.RunOptions, in ReceiveRequest) func(commit, oid string) (bool, error) {
	list := sync.OnceValues(func() (own ownFiles, err error) {
		out, err := r.RunRead(ctx, q, "rev-list", "--boundary", in.New, "--not", "--all")
		if err != nil {
			return own, err
		}
		own = ownFiles{map[string]bool{}, map[string]bool{}}
		var last []string
		for line := range strings.FieldsSeq(string(out)) {
			if commit, is := strings.CutPrefix(line, "-"); is {
				last = append(last, commit)
			} else {
				own.newCommits[line] = true
			}
		}
		const most = 20 // commits; for each a git lists all files
		for _, commit := range last[:min(len(last), most)] {
			if err := own.addPatternFiles(ctx, r, q, commit); err != nil {
				return own, err
			}
		}
		return own, nil
	})
	return func(commit, oid string) (bool, error) {
		own, err := list()
		return !own.newCommits[commit] || own.patternFiles[oid], err
	}
}

// ownFiles tells the files of the repository's own commits from those of new commits.
type ownFiles struct {
	newCommits   map[string]bool // received commits that no ref reaches
	patternFiles map[string]bool // ids of the files of patterns in the commits from which the new ones were made
}

// addPatternFiles adds the files of patterns of a commit.
func (f ownFiles) addPatternFiles(ctx context.Context, r *git.Repo, q git.RunOptions, commit string) error {
	out, err := r.RunRead(ctx, q, "ls-tree", "-r", "-z", commit)
	for line := range strings.SplitSeq(string(out), "\x00") {
		info, name, _ := strings.Cut(line, "\t")
		if words := strings.Fields(info); len(words) == 3 && index.PatternFile([]byte(path.Base(name))) != "" {
			f.patternFiles[words[2]] = true
		}
	}
	return err
}
