package store

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// LiveInvocations is Invocations without those that have ended; defective ones are included. A cache that cannot be written
// is passed to warn, since only the time of the next call depends on it.
func (s Store) LiveInvocations(repoID string, busy func() bool, warn func(error)) ([]*Entry[InvocationMeta], error) {
	return s.liveInvocations(repoID, busy, time.Now(), warn)
}

func (s Store) liveInvocations(repoID string, busy func() bool, now time.Time, warn func(error)) ([]*Entry[InvocationMeta], error) {
	cache := make(chan map[string]*cachedRecord, 1)
	go func() { cache <- s.readRecordCache(repoID) }()
	trees, err := listIDs(s.SandboxDir(repoID, ""), "")
	if err != nil {
		return nil, err
	}
	records, err := listIDs(s.InvocationDir(repoID, ""), "")
	if err != nil {
		return nil, err
	}
	hasTree := make(map[string]bool, len(trees))
	for _, id := range trees {
		hasTree[id] = true
	}
	dirs := s.openDirs(repoID)
	defer dirs.close()
	names := sortedUnion(records, trees)
	versions := inParallel(names, func(id string) durable.FileVersion { return dirs.recordVersion(id, now) })
	cached := <-cache

	var found []liveItem
	for i, id := range names {
		it := liveItem{id: id, version: versions[i]}
		if known := cached[id]; known != nil && it.version.IsKnown() && known.Version == it.version {
			it.known = known
		}
		if it.known == nil || !it.known.Ended || hasTree[id] { // the removal of a tree may still be to be finished
			found = append(found, it)
		}
	}
	entries := inParallel(found, func(it liveItem) *Entry[InvocationMeta] {
		if it.known != nil && dirs.completeEntry(it.known) {
			return &it.known.Entry
		}
		e := s.Invocation(repoID, it.id, busy)
		return &e
	})
	var uncached []cachedRecord
	live := entries[:0]
	for i, e := range entries {
		ended := e.Defect == NoDefect && e.Record.HasEnded()
		if it := found[i]; it.known == nil && e.Defect == NoDefect && it.version.IsKnown() && dirs.recordVersion(it.id, now) == it.version {
			uncached = append(uncached, newCachedRecord(e, it.version))
		}
		if !ended && !e.BeingCreated {
			live = append(live, e)
		}
	}
	if len(uncached) >= max(minUncached, len(names)/uncachedPart) {
		if err := s.updateRecordCache(repoID, cached, names, versions, uncached); err != nil {
			warn(err)
		}
	}
	slices.SortStableFunc(live, CompareStart)
	return live, nil
}

// liveItem is an invocation that may not have ended.
type liveItem struct {
	id      string
	version durable.FileVersion // of its record
	known   *cachedRecord       // nil if its record must be read
}

// openDirs are the directories of the records and of the sandboxes, opened: the kernel finds a thousand files faster relative
// to them than by absolute paths.
type openDirs struct {
	records, sandboxes *os.File // nil if they cannot be opened
	sandboxesPath      string
}

func (s Store) openDirs(repoID string) openDirs {
	d := openDirs{sandboxesPath: s.SandboxesDir(repoID)}
	d.records, _ = os.Open(s.InvocationDir(repoID, ""))
	d.sandboxes, _ = os.Open(d.sandboxesPath)
	return d
}

func (d openDirs) close() {
	_ = d.records.Close() // only reading
	_ = d.sandboxes.Close()
}

// recordVersion returns the version of the record of an invocation.
func (d openDirs) recordVersion(id string, now time.Time) durable.FileVersion {
	if d.records == nil {
		return durable.FileVersion{}
	}
	return durable.VersionIn(int(d.records.Fd()), id+"/meta.json", now)
}

// completeEntry makes of the cached part of an entry what Store.Invocation returns. It is not done, and the entry has to be
// read by that, unless the invocation has not ended and its tree is where it should be.
func (d openDirs) completeEntry(known *cachedRecord) (done bool) {
	e := &known.Entry
	if known.Ended || d.sandboxes == nil || e.Record.SandboxPath != d.sandboxesPath+"/"+e.ID+"/tree" {
		return false
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(d.sandboxes.Fd()), e.ID+"/tree", &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	e.TreePath, e.HasTree = e.Record.SandboxPath, true
	return true
}
