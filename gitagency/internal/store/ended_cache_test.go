package store

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"
)

// later is a time at which the records that a test has just written are old enough to be cached.
func later() time.Time { return time.Now().Add(time.Hour) }

// newEndedStore returns a store with enough ended invocations for the cache, and the ids of two that have not ended: a live
// one and one with a broken record.
func newEndedStore(t *testing.T) (s Store, live []string) {
	t.Helper()
	s = newStore(t)
	for n := range minUncached {
		addEnded(t, s, id(n))
	}
	live = []string{id(100), id(101)}
	add(t, s, live[0])
	addEnded(t, s, live[1])
	must(t, os.WriteFile(metaPath(s.InvocationDir(repoID, live[1])), []byte("rubbish"), 0o600))
	return s, live
}

// addEnded makes an invocation that was discarded.
func addEnded(t *testing.T, s Store, id string) {
	t.Helper()
	add(t, s, id, func(m *InvocationMeta) { m.Landing = Discarded })
	must(t, os.RemoveAll(s.SandboxDir(repoID, id)))
}

func requireLive(t *testing.T, s Store, now time.Time, want ...string) {
	t.Helper()
	entries, err := s.liveInvocations(repoID, nil, now, func(err error) { t.Error(err) })
	must(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLiveInvocationsLeaveOutEndedOnes(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	for range 3 { // without a cache, and with it
		requireLive(t, s, later(), live...)
	}
	if got := len(s.readEndedCache(repoID)); got != minUncached {
		t.Errorf("%d invocations are cached, want %d", got, minUncached)
	}
}

// The cache is believed, or else it would be of no use: a record with its fingerprint is not read.
func TestLiveInvocationsReadNoCachedRecord(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	broken := live[1]
	fingerprint := s.recordFingerprint(repoID, broken, later())
	must(t, s.writeEndedCache(repoID, map[string]string{broken: fingerprint}))
	requireLive(t, s, time.Now().Add(2*time.Hour), live[0])
}

func TestLiveInvocationsSeeEveryChangeOfRecord(t *testing.T) {
	t.Parallel()
	// changed returns a record of the same size that is not ended.
	changed := func(record []byte) []byte {
		return bytes.Replace(record, []byte(`"discarded"`), []byte(`"dis arded"`), 1)
	}
	for name, change := range map[string]func(t *testing.T, s Store, file string, record []byte, old time.Time){
		"replaced": func(t *testing.T, _ Store, file string, record []byte, old time.Time) {
			must(t, os.WriteFile(file+".new", changed(record), 0o600))
			must(t, os.Chtimes(file+".new", old, old))
			must(t, os.Rename(file+".new", file))
		},
		"written in place": func(t *testing.T, _ Store, file string, record []byte, old time.Time) {
			must(t, os.WriteFile(file, changed(record), 0o600))
			must(t, os.Chtimes(file, old, old))
		},
		"gone": func(t *testing.T, _ Store, file string, _ []byte, _ time.Time) { must(t, os.Remove(file)) },
		"a symlink to itself elsewhere": func(t *testing.T, _ Store, file string, record []byte, _ time.Time) {
			must(t, os.Rename(file, file+".moved"))
			must(t, os.WriteFile(file+".moved", changed(record), 0o600))
			must(t, os.Symlink(file+".moved", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, live := newEndedStore(t)
			requireLive(t, s, later(), live...)
			file := metaPath(s.InvocationDir(repoID, id(3)))
			record, err := os.ReadFile(file)
			must(t, err)
			fi, err := os.Stat(file)
			must(t, err)
			change(t, s, file, record, fi.ModTime())
			requireLive(t, s, later(), append([]string{id(3)}, live...)...)
		})
	}
}

// A tree that is there again, or still, is not hidden by the cache.
func TestLiveInvocationsReadRecordOfTree(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	requireLive(t, s, later(), live...)
	file := metaPath(s.InvocationDir(repoID, id(3)))
	must(t, os.MkdirAll(s.SandboxTreePath(repoID, id(3)), 0o755))
	requireLive(t, s, later(), live...)
	must(t, os.Remove(file))
	requireLive(t, s, later(), append([]string{id(3)}, live...)...)
}

// A record that was written just now could be written again without a change of its fingerprint.
func TestLiveInvocationsDoNotCacheYoungRecords(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	requireLive(t, s, time.Now(), live...)
	if got := s.readEndedCache(repoID); got != nil {
		t.Errorf("cached: %v", got)
	}
}

func TestLiveInvocationsIgnoreDamagedCache(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	for _, damage := range []string{"", "rubbish", `{"version":1,"ended":7}`, `{"version":2,"ended":{}}`, `{"version":1,"ended":{"` + live[0] + `":""}}`} {
		must(t, s.WriteRadarCache(repoID, endedCacheName, []byte(damage)))
		requireLive(t, s, later(), live...)
	}
}

func TestLiveInvocationsWarnOfUnwritableCache(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	must(t, os.WriteFile(s.RadarDir(repoID), nil, 0o600))
	warned := 0
	entries, err := s.liveInvocations(repoID, nil, later(), func(error) { warned++ })
	if err != nil || len(entries) != len(live) || warned != 1 {
		t.Errorf("got %d invocations, %d warnings and %v", len(entries), warned, err)
	}
}
