package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// Defect classifies how a record and its tree are inconsistent.
type Defect string

// The defects of an entry.
const (
	NoDefect    Defect = ""
	MissingTree Defect = "missing-tree"
	MissingMeta Defect = "missing-meta"
	CorruptMeta Defect = "corrupt-meta"
	IDMismatch  Defect = "id-mismatch"
	Incomplete  Defect = "incomplete"
)

// Entry is everything found under one id.
type Entry[T any] struct {
	ID           string
	Record       T // zero value when unreadable
	TreePath     string
	HasTree      bool
	Intent       *Intent // intent of a creation that never finished
	Defect       Defect
	Detail       string // description of the defect
	BeingCreated bool   // another process is creating it; callers treat it as absent
}

// Invocations returns every invocation of a repository, including defective ones, oldest first. busy reports whether
// the repository lock is held; it is called only when needed.
func (s Store) Invocations(repoID string, busy func() bool) ([]Entry[InvocationMeta], error) {
	return s.InvocationsMatching(repoID, "", busy)
}

// InvocationsMatching is Invocations limited to ids that a query matches, as ids.Matches says. It opens no other records,
// and for a full id it lists no directory, so that finding one invocation among thousands costs no more than finding the
// only one.
func (s Store) InvocationsMatching(repoID, query string, busy func() bool) ([]Entry[InvocationMeta], error) {
	return scanEntries(
		[]string{s.InvocationDir(repoID, ""), s.SandboxDir(repoID, "")}, query,
		func(id string) Entry[InvocationMeta] { return s.Invocation(repoID, id, busy) })
}

// Invocation reads one invocation. An id with no files at all yields Incomplete, as an empty directory does; a caller
// that did not take the id from a listing must check for its existence first.
func (s Store) Invocation(repoID, id string, busy func() bool) Entry[InvocationMeta] {
	tree := s.SandboxTreePath(repoID, id)
	return loadEntry(id, s.InvocationDir(repoID, id), busy, func(m InvocationMeta) (string, bool, bool) {
		wanted := !m.HasEnded()
		if m.SandboxPath == "" || resolvesTo(m.SandboxPath, tree) {
			return tree, IsDir(tree), wanted
		}
		// The data directory may have moved. Never use this path to work in or to delete.
		return m.SandboxPath, IsDir(m.SandboxPath), wanted
	}, func(m InvocationMeta, hasTree bool) string {
		if hasTree && !resolvesTo(m.SandboxPath, tree) {
			return "sandbox_path is not " + tree
		}
		return ""
	}, false)
}

// InvocationIDs lists the ids of all invocations that have a directory, the newest first. It reads no record.
func (s Store) InvocationIDs(repoID string) ([]string, error) {
	found, err := listIDs(s.InvocationDir(repoID, ""), "")
	slices.Sort(found)
	slices.Reverse(found)
	return found, err
}

// Worktrees returns every integration worktree of a repository, including defective ones, oldest first.
func (s Store) Worktrees(repoID string, busy func() bool) ([]Entry[WorktreeMeta], error) {
	return scanEntries([]string{s.WorktreeDir(repoID, "")}, "",
		func(id string) Entry[WorktreeMeta] { return s.Worktree(repoID, id, busy) })
}

// Worktree reads one integration worktree.
func (s Store) Worktree(repoID, id string, busy func() bool) Entry[WorktreeMeta] {
	return loadEntry(id, s.WorktreeDir(repoID, id), busy, func(m WorktreeMeta) (string, bool, bool) {
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

// maxRecordBytes limits the size of a record file.
const maxRecordBytes = 1 << 20

type record interface {
	problem() string
	id() string
	startedAt() time.Time
}

// scanEntries collects the ids that have a directory in dirs and reads their records.
func scanEntries[T record](dirs []string, query string, look func(id string) Entry[T]) ([]Entry[T], error) {
	var found [][]string
	for _, dir := range dirs {
		names, err := listIDs(dir, query)
		if err != nil {
			return nil, err
		}
		found = append(found, names)
	}
	entries := slices.DeleteFunc(inParallel(sortedUnion(found...), look), func(e Entry[T]) bool { return e.BeingCreated })
	slices.SortStableFunc(entries, func(a, b Entry[T]) int { return CompareStart(&a, &b) })
	return entries, nil
}

// inParallel calls do for the id of every invocation, or for what it goes with, on more goroutines than there are processors: with a thousand of them,
// reading waits for the disk and not for the CPU.
func inParallel[From, To any](items []From, do func(From) To) []To {
	results := make([]To, len(items))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(items), 2*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(items); i = int(next.Add(1)) - 1 {
				results[i] = do(items[i])
			}
		})
	}
	workers.Wait()
	return results
}

// CompareStart orders entries by the time of their start, the oldest first.
func CompareStart[T record](a, b *Entry[T]) int {
	return cmp.Or(startTime(a).Compare(startTime(b)), strings.Compare(a.ID, b.ID))
}

// ListIDs lists the ids that are names in a directory, sorted. A missing directory has none.
func ListIDs(dir string) ([]string, error) { return listIDs(dir, "") }

// listIDs lists the ids in a directory that a query matches, sorted.
func listIDs(dir, query string) ([]string, error) {
	if ids.Valid(query) { // a full id is never a part of another
		_, err := os.Lstat(filepath.Join(dir, query))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return []string{query}, err
	}
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1) // faster than os.ReadDir, which makes an os.DirEntry of each
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(names, func(name string) bool { return !ids.Valid(name) || !ids.Matches(name, query) })
	slices.Sort(found)
	return found, nil
}

// startTime returns the start time of an entry, from the id if the record is unreadable.
func startTime[T record](e *Entry[T]) time.Time {
	if at := e.Record.startedAt(); !at.IsZero() {
		return at
	}
	at, _ := ids.Time(e.ID)
	return at
}

// loadEntry reads one record and checks it against its directory and its tree. where returns the path of a record's
// tree, whether it exists, and whether it should.
func loadEntry[T record](id, dir string, busy func() bool, where func(T) (tree string, there, wanted bool), verify func(T, bool) string, again bool) Entry[T] {
	e := Entry[T]{ID: id}
	data, readErr := durable.ReadFile(metaPath(dir), maxRecordBytes)
	var decodeErr error
	if readErr == nil {
		decodeErr = json.Unmarshal(data, &e.Record)
	}
	if decodeErr != nil {
		var none T // discard a partly decoded record
		e.Record = none
	}
	tree, there, wanted := where(e.Record)
	e.TreePath, e.HasTree = tree, there

	switch {
	case errors.Is(readErr, fs.ErrNotExist):
		if there {
			busy = nil // the tree is created after the intent, so no creation is waiting to write its intent
		}
		e.Intent, e.BeingCreated = readIntent(id, dir, busy)
		if _, err := os.Lstat(metaPath(dir)); err == nil && !again {
			return loadEntry(id, dir, busy, where, verify, true) // the creation finished during the check
		}
		e.Defect, e.Detail = Incomplete, "there is neither a record nor a tree"
		if there {
			e.Defect, e.Detail = MissingMeta, "the tree exists, the record does not"
		}
		if e.Intent != nil {
			e.Detail += "; its creation was interrupted"
		}
	case readErr != nil:
		e.Defect, e.Detail = CorruptMeta, readErr.Error()
	case decodeErr != nil:
		e.Defect, e.Detail = CorruptMeta, decodeErr.Error()
	case e.Record.id() != "" && e.Record.id() != id:
		e.Defect, e.Detail = IDMismatch, "the record names "+e.Record.id()
	default:
		if what := e.Record.problem(); what != "" {
			e.Defect, e.Detail = CorruptMeta, what
		} else if what := verify(e.Record, there); what != "" {
			e.Defect, e.Detail = CorruptMeta, what
		} else if wanted && !there && !again {
			return loadEntry(id, dir, busy, where, verify, true) // a removal updates the record before the tree, possibly after our read
		} else if wanted && !there {
			e.Defect, e.Detail = MissingTree, tree+" is gone"
		}
	}
	return e
}

// resolvesTo reports whether a recorded path is the expected path, possibly by way of a symlink at the former place
// of the data directory.
func resolvesTo(recorded, path string) bool {
	if recorded == path {
		return true
	}
	resolved, err := filepath.EvalSymlinks(recorded)
	return err == nil && resolved == path
}

// IsDir reports whether a path is a directory and not a symlink to one.
func IsDir(path string) bool { return durable.IsDir(path) }

// FirstExisting returns the first of the paths that exists, and whether any does.
func FirstExisting(paths ...string) (string, bool) {
	for _, p := range paths {
		if _, err := os.Lstat(filepath.Clean(p)); err == nil {
			return p, true
		}
	}
	return "", false
}
