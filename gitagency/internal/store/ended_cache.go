package store

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// endedCache is the form on disk of a cache of the invocations that have ended. Their records hardly ever change again, so
// that a listing of the others need not read them.
type endedCache struct {
	Version int               `json:"version"`
	Ended   map[string]string `json:"ended"` // fingerprints of their records: see recordFingerprint
}

const (
	endedCacheName    = "ended.json"
	endedCacheVersion = 1

	// minUncached is the number of ended invocations missing in the cache from which on it is written again. Reading
	// fewer records takes no longer than writing it.
	minUncached = 32

	// minRecordAge is the age from which on a record is cached. A younger one could be replaced within the resolution of
	// the clock of its file system, so that the fingerprint would be the same.
	minRecordAge = 2 * time.Second
)

// LiveInvocations is Invocations without those that have ended; defective ones are included. A cache that cannot be written
// is passed to warn, since only the time of the next call depends on it.
func (s Store) LiveInvocations(repoID string, busy func() bool, warn func(error)) ([]Entry[InvocationMeta], error) {
	return s.liveInvocations(repoID, busy, time.Now(), warn)
}

func (s Store) liveInvocations(repoID string, busy func() bool, now time.Time, warn func(error)) ([]Entry[InvocationMeta], error) {
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
	cached, names := s.readEndedCache(repoID), sortedUnion(records, trees)
	ended := map[string]string{} // fingerprints of those that have ended
	fingerprints := inParallel(names, func(id string) string {
		if hasTree[id] { // its removal is still to be finished, or it has not ended
			return ""
		}
		return s.recordFingerprint(repoID, id, now)
	})
	var unknown, before []string // those to read, and their fingerprints
	for i, id := range names {
		if fingerprints[i] != "" && cached[id] == fingerprints[i] {
			ended[id] = fingerprints[i]
		} else {
			unknown, before = append(unknown, id), append(before, fingerprints[i])
		}
	}
	entries := inParallel(unknown, func(id string) Entry[InvocationMeta] { return s.Invocation(repoID, id, busy) })
	uncached, live := 0, entries[:0]
	for i, e := range entries {
		switch {
		case e.Defect != NoDefect || !e.Record.HasEnded():
			if !e.BeingCreated {
				live = append(live, e)
			}
		case before[i] != "" && s.recordFingerprint(repoID, e.ID, now) == before[i]:
			ended[e.ID] = before[i]
			uncached++
		}
	}
	if uncached >= minUncached {
		if err := s.writeEndedCache(repoID, ended); err != nil {
			warn(err)
		}
	}
	slices.SortStableFunc(live, CompareStart)
	return live, nil
}

// recordFingerprint returns a text that changes whenever the record of an invocation does: its inode, size and ctime, which
// no program can set. It is empty if there is no such file or if it has changed just before now.
func (s Store) recordFingerprint(repoID, id string, now time.Time) string {
	var st unix.Stat_t
	if err := unix.Lstat(metaPath(s.InvocationDir(repoID, id)), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}
	changed := time.Unix(st.Ctim.Unix())
	if now.Sub(changed) < minRecordAge {
		return ""
	}
	text := strconv.AppendUint(nil, st.Ino, 10)
	text = strconv.AppendInt(append(text, ' '), st.Size, 10)
	text = strconv.AppendInt(append(text, ' '), changed.UnixNano(), 10)
	return string(text)
}

// readEndedCache returns the cached fingerprints by id. A file that cannot be read counts as empty.
func (s Store) readEndedCache(repoID string) map[string]string {
	var c endedCache
	if json.Unmarshal(s.ReadRadarCache(repoID, endedCacheName), &c) != nil || c.Version != endedCacheVersion {
		return nil
	}
	return c.Ended
}

func (s Store) writeEndedCache(repoID string, ended map[string]string) error {
	data, err := json.Marshal(endedCache{Version: endedCacheVersion, Ended: ended})
	if err != nil {
		return err
	}
	return s.WriteRadarCache(repoID, endedCacheName, data)
}
