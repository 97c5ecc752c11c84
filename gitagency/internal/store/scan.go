package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// Reason says how record and tree disagree.
type Reason string

// The ways to be broken.
const (
	Whole       Reason = ""
	MissingTree Reason = "missing-tree"
	MissingMeta Reason = "missing-meta"
	CorruptMeta Reason = "corrupt-meta"
	IDMismatch  Reason = "id-mismatch"
	Incomplete  Reason = "incomplete"
)

// Entry is what was found under one id.
type Entry[T any] struct {
	ID       string
	Record   T // what could be read; zero when nothing could
	Tree     string
	HasTree  bool
	Intent   *Intent // of a creation that never finished
	Broken   Reason
	Detail   string // what exactly is wrong
	UnderWay bool   // somebody is creating it right now; it is not there yet
}

// Invocations yields every invocation of a repository, also the broken ones, the oldest first.
// busy says whether the repository lock is held; it is asked only when it matters.
func (s Store) Invocations(repoID string, busy func() bool) ([]Entry[InvocationMeta], error) {
	return s.InvocationsLike(repoID, "", busy)
}

// InvocationsLike is Invocations of which only those count whose ids begin like that. The records of others
// are not even opened, and for a full id no directory is listed: finding one among thousands costs no more
// than finding one.
func (s Store) InvocationsLike(repoID, prefix string, busy func() bool) ([]Entry[InvocationMeta], error) {
	return scan(
		[]string{s.InvocationDir(repoID, ""), s.SandboxDir(repoID, "")}, prefix,
		func(id string) Entry[InvocationMeta] { return s.Invocation(repoID, id, busy) })
}

// Invocation looks at one invocation. Nothing under that id is Incomplete, like a directory with
// nothing in it; a caller who did not get the id from a listing checks that first.
func (s Store) Invocation(repoID, id string, busy func() bool) Entry[InvocationMeta] {
	tree := s.SandboxTreePath(repoID, id)
	return load(id, s.InvocationDir(repoID, id), busy, func(m InvocationMeta) (string, bool, bool) {
		wanted := m.Landing != Landed && m.Landing != Discarded
		if m.SandboxPath == "" || leadsTo(m.SandboxPath, tree) {
			return tree, IsDir(tree), wanted
		}
		// Moved with its data dir, perhaps. Never trust it as a place to work in or to delete.
		return m.SandboxPath, IsDir(m.SandboxPath), wanted
	}, func(m InvocationMeta, hasTree bool) string {
		if hasTree && !leadsTo(m.SandboxPath, tree) {
			return "sandbox_path is not " + tree
		}
		return ""
	}, false)
}

// Worktrees yields every integration worktree of a repository, also the broken ones, the oldest first.
func (s Store) Worktrees(repoID string, busy func() bool) ([]Entry[WorktreeMeta], error) {
	return scan([]string{s.WorktreeDir(repoID, "")}, "",
		func(id string) Entry[WorktreeMeta] { return s.Worktree(repoID, id, busy) })
}

// Worktree looks at one integration worktree.
func (s Store) Worktree(repoID, id string, busy func() bool) Entry[WorktreeMeta] {
	return load(id, s.WorktreeDir(repoID, id), busy, func(m WorktreeMeta) (string, bool, bool) {
		tree := m.TreePath
		if tree == "" {
			tree = s.WorktreeTreePath(repoID, id)
		}
		return tree, IsDir(tree), m.State != Archived
	}, func(m WorktreeMeta, _ bool) string {
		if m.RepoID != repoID {
			return "repo_id is " + m.RepoID
		}
		return ""
	}, false)
}

// maxRecord bounds what is read as a record.
const maxRecord = 1 << 20

type record interface {
	check() string
	id() string
	began() time.Time
}

// scan collects the ids named by the directories and looks at each, several at once: with a
// thousand of them the disk, not the processor, is what one waits for.
func scan[T record](dirs []string, prefix string, look func(id string) Entry[T]) ([]Entry[T], error) {
	var names []string
	for _, dir := range dirs {
		found, err := idsIn(dir, prefix)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	names = slices.Compact(names)

	entries := make([]Entry[T], len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(len(names), 2*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				entries[i] = look(names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	workers.Wait()

	entries = slices.DeleteFunc(entries, func(e Entry[T]) bool { return e.UnderWay })
	slices.SortStableFunc(entries, func(a, b Entry[T]) int {
		if c := startOf(a).Compare(startOf(b)); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return entries, nil
}

// idsIn lists the ids in a directory that begin like that.
func idsIn(dir, prefix string) ([]string, error) {
	if ids.Valid(prefix) { // no id begins with another
		_, err := os.Lstat(filepath.Join(dir, prefix))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return []string{prefix}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && ids.Valid(e.Name()) {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

// startOf is when an entry began; what has no readable record still has an id that says so.
func startOf[T record](e Entry[T]) time.Time {
	if at := e.Record.began(); !at.IsZero() {
		return at
	}
	at, _ := ids.Time(e.ID)
	return at
}

// load reads one record and holds it against its directory and its tree. where says where the tree
// of a record is, whether it is there, and whether it should be.
func load[T record](id, dir string, busy func() bool, where func(T) (tree string, there, wanted bool), verify func(T, bool) string, again bool) Entry[T] {
	e := Entry[T]{ID: id}
	data, readErr := durable.ReadFile(metaPath(dir), maxRecord)
	var decodeErr error
	if readErr == nil {
		decodeErr = json.Unmarshal(data, &e.Record)
	}
	if decodeErr != nil {
		var none T // half a record is no record
		e.Record = none
	}
	tree, there, wanted := where(e.Record)
	e.Tree, e.HasTree = tree, there

	switch {
	case errors.Is(readErr, fs.ErrNotExist):
		if there {
			busy = nil // a tree comes after the intent, so nobody is only about to write one
		}
		e.Intent, e.UnderWay = readIntent(id, dir, busy)
		if _, err := os.Lstat(metaPath(dir)); err == nil && !again {
			return load(id, dir, busy, where, verify, true) // it was finished while we looked
		}
		e.Broken, e.Detail = Incomplete, "there is neither a record nor a tree"
		if there {
			e.Broken, e.Detail = MissingMeta, "the tree is there, the record is not"
		}
		if e.Intent != nil {
			e.Detail += "; its creation was interrupted"
		}
	case readErr != nil:
		e.Broken, e.Detail = CorruptMeta, readErr.Error()
	case decodeErr != nil:
		e.Broken, e.Detail = CorruptMeta, decodeErr.Error()
	case e.Record.id() != "" && e.Record.id() != id:
		e.Broken, e.Detail = IDMismatch, "the record names "+e.Record.id()
	default:
		if what := e.Record.check(); what != "" {
			e.Broken, e.Detail = CorruptMeta, what
		} else if what := verify(e.Record, there); what != "" {
			e.Broken, e.Detail = CorruptMeta, what
		} else if wanted && !there && !again {
			return load(id, dir, busy, where, verify, true) // who takes a tree away says so first, perhaps after we read
		} else if wanted && !there {
			e.Broken, e.Detail = MissingTree, tree+" is gone"
		}
	}
	return e
}

// leadsTo reports whether a recorded path is the path it should be, also by a link that was put where
// the data directory used to be.
func leadsTo(recorded, path string) bool {
	if recorded == path {
		return true
	}
	resolved, err := filepath.EvalSymlinks(recorded)
	return err == nil && resolved == path
}

// IsDir reports whether a path is a directory, and not a link to one.
func IsDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// Taken reports the first of these paths that exists.
func Taken(paths ...string) (string, bool) {
	for _, p := range paths {
		if _, err := os.Lstat(filepath.Clean(p)); err == nil {
			return p, true
		}
	}
	return "", false
}
