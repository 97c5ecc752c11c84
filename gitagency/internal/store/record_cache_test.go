package store

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"golang.org/x/sys/unix"
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
	if got, want := len(s.readRecordCache(repoID)), minUncached+1; got != want { // all but the broken one
		t.Errorf("%d invocations are cached, want %d", got, want)
	}
}

// versionOf returns the version of a record.
func versionOf(s Store, id string) durable.FileVersion {
	return durable.VersionIn(unix.AT_FDCWD, s.InvocationMetaPath(repoID, id), later())
}

// The cache is believed, or else it would be of no use: a record with its version is not read.
func TestLiveInvocationsReadNoCachedRecord(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	broken := live[1]
	must(t, s.writeRecordCache(repoID, []cachedRecord{{Version: versionOf(s, broken), Ended: true, Entry: Entry[InvocationMeta]{ID: broken}}}))
	requireLive(t, s, time.Now().Add(2*time.Hour), live[0])

	m := meta(s, broken)
	m.InvocationName = "cached"
	must(t, os.MkdirAll(s.SandboxTreePath(repoID, broken), 0o755))
	must(t, s.writeRecordCache(repoID, []cachedRecord{{Version: versionOf(s, broken), Entry: Entry[InvocationMeta]{ID: broken, Record: m}}}))
	entries, err := s.liveInvocations(repoID, nil, later(), func(err error) { t.Error(err) })
	must(t, err)
	if e := entryOf(t, entries, broken); e.Defect != NoDefect || e.Record.InvocationName != "cached" {
		t.Errorf("got %+v", e)
	}
}

func entryOf(t *testing.T, entries []*Entry[InvocationMeta], id string) *Entry[InvocationMeta] {
	t.Helper()
	for _, e := range entries {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("%s is not listed", id)
	return nil
}

// newLiveStore returns a store with as many live invocations as are cached.
func newLiveStore(t *testing.T) Store {
	t.Helper()
	s := newStore(t)
	for n := range minUncached {
		add(t, s, id(n))
	}
	return s
}

// With the cache and without it, every change of an invocation that has not ended is seen.
func TestLiveInvocationsSeeEveryChangeOfLiveInvocation(t *testing.T) {
	t.Parallel()
	changed := func(record []byte) []byte {
		return bytes.Replace(record, []byte("arch-agent"), []byte("arch-boss!"), 1)
	}
	for name, change := range map[string]func(t *testing.T, s Store, file string, record []byte, old time.Time){
		"record replaced": func(t *testing.T, _ Store, file string, record []byte, old time.Time) {
			must(t, os.WriteFile(file+".new", changed(record), 0o600))
			must(t, os.Chtimes(file+".new", old, old))
			must(t, os.Rename(file+".new", file))
		},
		"record written in place": func(t *testing.T, _ Store, file string, record []byte, old time.Time) {
			must(t, os.WriteFile(file, changed(record), 0o600))
			must(t, os.Chtimes(file, old, old))
		},
		"record gone": func(t *testing.T, _ Store, file string, _ []byte, _ time.Time) { must(t, os.Remove(file)) },
		"record not a file": func(t *testing.T, _ Store, file string, _ []byte, _ time.Time) {
			must(t, os.Remove(file))
			must(t, os.Mkdir(file, 0o700))
		},
		"ended": func(t *testing.T, s Store, _ string, _ []byte, _ time.Time) {
			must(t, s.UpdateInvocationMeta(repoID, id(3), func(m *InvocationMeta) { m.Landing = Discarded }))
		},
		"tree gone": func(t *testing.T, s Store, _ string, _ []byte, _ time.Time) {
			must(t, os.RemoveAll(s.SandboxTreePath(repoID, id(3))))
		},
		"sandbox gone": func(t *testing.T, s Store, _ string, _ []byte, _ time.Time) {
			must(t, os.RemoveAll(s.SandboxDir(repoID, id(3))))
		},
		"tree a symlink": func(t *testing.T, s Store, _ string, _ []byte, _ time.Time) {
			must(t, os.Rename(s.SandboxTreePath(repoID, id(3)), s.SandboxTreePath(repoID, id(3))+".moved"))
			must(t, os.Symlink("tree.moved", s.SandboxTreePath(repoID, id(3))))
		},
		"all gone": func(t *testing.T, s Store, _ string, _ []byte, _ time.Time) {
			must(t, os.RemoveAll(s.SandboxDir(repoID, id(3))))
			must(t, os.RemoveAll(s.InvocationDir(repoID, id(3))))
		},
		"nothing": func(*testing.T, Store, string, []byte, time.Time) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLiveStore(t)
			list := func() []*Entry[InvocationMeta] {
				entries, err := s.liveInvocations(repoID, nil, later(), func(err error) { t.Error(err) })
				must(t, err)
				return entries
			}
			list()
			if got := len(s.readRecordCache(repoID)); got != minUncached {
				t.Fatalf("%d records are cached, want %d", got, minUncached)
			}
			file := s.InvocationMetaPath(repoID, id(3))
			record, err := os.ReadFile(file)
			must(t, err)
			fi, err := os.Stat(file)
			must(t, err)
			change(t, s, file, record, fi.ModTime())
			cached := list()
			must(t, os.RemoveAll(s.RadarDir(repoID)))
			if plain := list(); !reflect.DeepEqual(cached, plain) {
				t.Errorf("with the cache:    %+v\nwithout the cache: %+v", cached, plain)
			}
		})
	}
}

// Every field of a record comes out of the cache as it was.
func TestRecordCachePreservesRecords(t *testing.T) {
	t.Parallel()
	s := newLiveStore(t)
	full := cachedRecord{Version: versionOf(s, id(3)), Entry: Entry[InvocationMeta]{ID: id(3)}}
	fill(reflect.ValueOf(&full.Entry.Record).Elem())
	empty := cachedRecord{Version: versionOf(s, id(4)), Entry: Entry[InvocationMeta]{ID: id(4), Record: meta(s, id(4))}}
	empty.Entry.Record.Warnings, empty.Entry.Record.Allowed = []string{}, &Allowed{} // which are not nil
	must(t, s.writeRecordCache(repoID, []cachedRecord{full, empty}))
	cached := s.readRecordCache(repoID)
	for _, want := range []cachedRecord{full, empty} {
		if got := cached[want.Entry.ID]; got == nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// fill sets every field to a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at(7)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("7")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.1)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	default:
		panic("no value for a " + v.Type().String())
	}
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
	if got := s.readRecordCache(repoID); got != nil {
		t.Errorf("cached: %v", got)
	}
}

func TestLiveInvocationsIgnoreDamagedCache(t *testing.T) {
	t.Parallel()
	s, live := newEndedStore(t)
	requireLive(t, s, later(), live...)
	cache := s.ReadRadarCache(repoID, recordCacheName)
	if len(cache) == 0 {
		t.Fatal("nothing is cached")
	}
	other, err := cachefile.Encode([]struct{ ID, Version string }{{live[0], "1"}}) // of another version
	must(t, err)
	damaged := [][]byte{nil, []byte("rubbish"), []byte("long rubbish"), cache[:len(cache)/2], append([]byte{0}, cache...), other}
	for i := 0; i < len(cache); i += 7 {
		flipped := bytes.Clone(cache)
		flipped[i] ^= 1
		damaged = append(damaged, flipped)
	}
	for _, data := range damaged {
		must(t, s.WriteRadarCache(repoID, recordCacheName, data))
		if got := s.readRecordCache(repoID); got != nil {
			t.Fatalf("cached: %v", got)
		}
	}
	for _, data := range damaged[:6] {
		must(t, s.WriteRadarCache(repoID, recordCacheName, data))
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
