package store

import (
	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// cachedRecord is what the cache has of an invocation. Decoding a thousand records from JSON takes longer than all the rest of
// a listing. Of an invocation that has ended and has no tree, a listing of the others need not know the record.
type cachedRecord struct {
	Version durable.FileVersion // of the file that the record was read from
	Ended   bool
	Entry   Entry[InvocationMeta] // only ID and Record in the file, and without the record if Ended; see completeEntry
}

func newCachedRecord(e *Entry[InvocationMeta], version durable.FileVersion) cachedRecord {
	c := cachedRecord{Version: version, Ended: e.Record.HasEnded(), Entry: Entry[InvocationMeta]{ID: e.ID}}
	if !c.Ended {
		c.Entry.Record = e.Record
	}
	return c
}

const (
	recordCacheName = "records" + cachefile.Suffix

	// minUncached is the number of records missing in the cache from which on it is written again. Reading fewer takes no
	// longer than writing it.
	minUncached = 32

	// uncachedPart is the part of all records that must be missing, too: of many agents, some change their records between
	// any two listings.
	uncachedPart = 16
)

// readRecordCache returns the cached records by id. A file that cannot be read counts as empty.
func (s Store) readRecordCache(repoID string) map[string]*cachedRecord {
	records, err := cachefile.Decode[[]cachedRecord](s.ReadRadarCache(repoID, recordCacheName))
	if err != nil {
		return nil
	}
	cached := make(map[string]*cachedRecord, len(records))
	for i := range records {
		cached[records[i].Entry.ID] = &records[i]
	}
	return cached
}

// updateRecordCache adds records to those in the cache that are still valid, and stores all of them. versions are those of
// the records of names.
func (s Store) updateRecordCache(repoID string, cached map[string]*cachedRecord, names []string, versions []durable.FileVersion, added []cachedRecord) error {
	for i, id := range names {
		if known := cached[id]; known != nil && known.Version == versions[i] {
			known.Entry = Entry[InvocationMeta]{ID: id, Record: known.Entry.Record}
			added = append(added, *known)
		}
	}
	return s.writeRecordCache(repoID, added)
}

// writeRecordCache stores records.
func (s Store) writeRecordCache(repoID string, records []cachedRecord) error {
	data, err := cachefile.Encode(records)
	if err != nil {
		return err
	}
	return s.WriteRadarCache(repoID, recordCacheName, data)
}
