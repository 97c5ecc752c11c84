package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestInvocationDefects(t *testing.T) {
	t.Parallel()
	without := func(field string) func(*testing.T, Store) {
		return func(t *testing.T, s Store) {
			m := decodeGeneric(t, asJSON(t, meta(s, invID)))
			if _, have := m[field]; !have {
				t.Fatalf("no field %s", field)
			}
			delete(m, field)
			writeMeta(t, s, invID, m)
		}
	}
	raw := func(content string) func(*testing.T, Store) {
		return func(t *testing.T, s Store) { writeMeta(t, s, invID, []byte(content)) }
	}
	set := func(change func(*InvocationMeta)) func(*testing.T, Store) {
		return func(t *testing.T, s Store) {
			m := meta(s, invID)
			change(&m)
			writeMeta(t, s, invID, m)
		}
	}
	noTree := func(t *testing.T, s Store) { must(t, os.RemoveAll(s.SandboxDir(repoID, invID))) }
	all := func(steps ...func(*testing.T, Store)) func(*testing.T, Store) {
		return func(t *testing.T, s Store) {
			for _, step := range steps {
				step(t, s)
			}
		}
	}
	removeMeta := func(t *testing.T, s Store) { must(t, os.Remove(s.InvocationMetaPath(repoID, invID))) }

	for name, c := range map[string]struct {
		arrange func(*testing.T, Store)
		want    Defect
		known   bool // whether the record is returned
		hasTree bool
	}{
		"nothing":                {func(*testing.T, Store) {}, NoDefect, true, true},
		"unknown fields":         {raw(strings.Replace(asJSON(t, meta(Store{Root: "ROOT"}, invID)), "{", `{"future":{},`, 1)), CorruptMeta, true, false},
		"no tree":                {noTree, MissingTree, true, false},
		"empty sandbox dir":      {func(t *testing.T, s Store) { must(t, os.Remove(s.SandboxTreePath(repoID, invID))) }, MissingTree, true, false},
		"a file as tree":         {all(noTree, func(t *testing.T, s Store) { writeEmptyFile(t, s.SandboxTreePath(repoID, invID)) }), MissingTree, true, false},
		"a symlink as tree":      {all(noTree, func(t *testing.T, s Store) { makeDanglingLink(t, s.SandboxTreePath(repoID, invID)) }), MissingTree, true, false},
		"discarded, no tree":     {all(noTree, set(func(m *InvocationMeta) { m.Landing = Discarded })), NoDefect, true, false},
		"landed, no tree":        {all(noTree, set(func(m *InvocationMeta) { m.Landing = Landed })), NoDefect, true, false},
		"discarded, with a tree": {set(func(m *InvocationMeta) { m.Landing = Discarded }), NoDefect, true, true},
		"in review, no tree":     {all(noTree, set(func(m *InvocationMeta) { m.Landing = "review" })), MissingTree, true, false},
		"rejected, no tree":      {all(noTree, set(func(m *InvocationMeta) { m.Landing = "rejected" })), MissingTree, true, false},
		"no record":              {removeMeta, MissingMeta, false, true},
		"dangling meta.json":     {all(removeMeta, func(t *testing.T, s Store) { makeDanglingLink(t, s.InvocationMetaPath(repoID, invID)) }), MissingMeta, false, true},
		"only temporary files": {all(removeMeta, func(t *testing.T, s Store) {
			writeEmptyFile(t, filepath.Join(s.InvocationDir(repoID, invID), ".tmp-meta.json-1"))
		}), MissingMeta, false, true},
		"no record directory": {func(t *testing.T, s Store) { must(t, os.RemoveAll(s.InvocationDir(repoID, invID))) }, MissingMeta, false, true},
		"only a record dir":   {all(removeMeta, noTree), Incomplete, false, false},
		"only a sandbox dir": {all(removeMeta, noTree, func(t *testing.T, s Store) {
			must(t, os.Remove(s.InvocationDir(repoID, invID)))
			must(t, os.MkdirAll(s.SandboxDir(repoID, invID), 0o700))
		}), Incomplete, false, false},
		"garbage":                    {raw("garbage"), CorruptMeta, false, true},
		"an empty file":              {raw(""), CorruptMeta, false, true},
		"zeros":                      {raw(strings.Repeat("\x00", 500)), CorruptMeta, false, true},
		"half a record":              {raw(asJSON(t, meta(Store{}, invID))[:200]), CorruptMeta, false, true},
		"two records":                {raw("{} {}"), CorruptMeta, false, true},
		"null":                       {raw("null"), CorruptMeta, true, true},
		"an empty object":            {raw("{}"), CorruptMeta, true, true},
		"an array":                   {raw("[]"), CorruptMeta, false, true},
		"a wrong type":               {raw(`{"invocation_id":"` + invID + `","status":1}`), CorruptMeta, false, true},
		"an invalid time":            {raw(`{"invocation_id":"` + invID + `","started_at":"yesterday"}`), CorruptMeta, false, true},
		"a directory as meta.json":   {all(removeMeta, func(t *testing.T, s Store) { must(t, os.Mkdir(s.InvocationMetaPath(repoID, invID), 0o700)) }), CorruptMeta, false, true},
		"no schema_version":          {without("schema_version"), CorruptMeta, true, true},
		"no invocation_id":           {without("invocation_id"), CorruptMeta, true, true},
		"no integration_worktree_id": {without("integration_worktree_id"), CorruptMeta, true, true},
		"no sandbox_path":            {without("sandbox_path"), CorruptMeta, true, true},
		"no sandbox_branch":          {without("sandbox_branch"), CorruptMeta, true, true},
		"no base_commit":             {without("base_commit"), CorruptMeta, true, true},
		"no status":                  {without("status"), CorruptMeta, true, true},
		"no started_at":              {without("started_at"), CorruptMeta, true, true},
		"no name":                    {without("invocation_name"), NoDefect, true, true},
		"no runner":                  {without("runner"), NoDefect, true, true},
		"a newer minor version":      {set(func(m *InvocationMeta) { m.SchemaVersion = "1.9" }), NoDefect, true, true},
		"a newer major version":      {set(func(m *InvocationMeta) { m.SchemaVersion = "2.0" }), CorruptMeta, true, true},
		"version ten":                {set(func(m *InvocationMeta) { m.SchemaVersion = "10" }), CorruptMeta, true, true},
		"another id":                 {set(func(m *InvocationMeta) { m.InvocationID = id(1) }), IDMismatch, true, true},
		"another id, no status":      {set(func(m *InvocationMeta) { m.InvocationID, m.Status = id(1), "" }), IDMismatch, true, true},
		"another id, no tree":        {all(noTree, set(func(m *InvocationMeta) { m.InvocationID = id(1) })), IDMismatch, true, false},
		"the id in capitals":         {set(func(m *InvocationMeta) { m.InvocationID = strings.ToUpper(invID) }), IDMismatch, true, true},
		"no status and no tree":      {all(noTree, without("status")), CorruptMeta, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			add(t, s, invID)
			add(t, s, id(30)) // must not be affected
			c.arrange(t, s)
			if name == "unknown fields" { // replace the placeholder of the root
				data, err := os.ReadFile(s.InvocationMetaPath(repoID, invID))
				must(t, err)
				writeMeta(t, s, invID, []byte(strings.ReplaceAll(string(data), "ROOT", s.Root)))
				c.want, c.hasTree = NoDefect, true
			}
			entries, err := s.Invocations(repoID, nil)
			must(t, err)
			if !slices.Equal(idsOf(entries), []string{invID, id(30)}) || entries[1].Defect != NoDefect {
				t.Fatalf("listed %q", idsOf(entries))
			}
			e := entries[0]
			if e.Defect != c.want || e.HasTree != c.hasTree || e.BeingCreated || e.Intent != nil {
				t.Errorf("got %q (%s), tree %v; want %q, %v", e.Defect, e.Detail, e.HasTree, c.want, c.hasTree)
			}
			if (e.Detail != "") != (c.want != NoDefect) {
				t.Errorf("detail %q", e.Detail)
			}
			if !c.known && !reflect.DeepEqual(e.Record, InvocationMeta{}) {
				t.Errorf("an unreadable record was returned: %+v", e.Record)
			}
			if alone := s.Invocation(repoID, invID, nil); alone.Defect != e.Defect || alone.Detail != e.Detail || alone.TreePath != e.TreePath {
				t.Errorf("Invocation returns %q (%s)", alone.Defect, alone.Detail)
			}
		})
	}
}

// writeEmptyFile makes an empty file and its parent directories.
func writeEmptyFile(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, nil, 0o600))
}

// makeDanglingLink makes a dangling symlink and its parent directories.
func makeDanglingLink(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.Symlink(filepath.Join(t.TempDir(), "nowhere"), path))
}

// TestInvocationWithForeignSandboxPathIsBroken: a record may name any path; it is reported, and never used as the tree
// of the invocation.
func TestInvocationWithForeignSandboxPathIsBroken(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	elsewhere := t.TempDir()
	for i, c := range []struct {
		path string
		want Defect
	}{
		{elsewhere, CorruptMeta},
		{filepath.Join(elsewhere, "gone"), MissingTree},
		{"/", CorruptMeta},
		{".", CorruptMeta},
		{s.SandboxTreePath(repoID, id(1)) + "/", CorruptMeta},
		{s.SandboxTreePath(repoID, id(50)), CorruptMeta}, // tree of another invocation
		{s.SandboxDir(repoID, id(6)), CorruptMeta},
	} {
		add(t, s, id(i), func(m *InvocationMeta) { m.SandboxPath = c.path })
		if i == 0 {
			add(t, s, id(50))
		}
		e := s.Invocation(repoID, id(i), nil)
		if e.Defect != c.want {
			t.Errorf("%s: %q (%s), want %q", c.path, e.Defect, e.Detail, c.want)
		}
		if e.TreePath == s.SandboxTreePath(repoID, id(i)) {
			t.Errorf("%s: the path shown is not the one in the record", c.path)
		}
	}
}

func TestWorktreeDefects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*WorktreeMeta)
		want   Defect
	}{
		"nothing":           {func(m *WorktreeMeta) {}, NoDefect},
		"detached":          {func(m *WorktreeMeta) { m.Branch = "" }, NoDefect},
		"no tree":           {func(m *WorktreeMeta) { m.TreePath = "/nowhere/at/all" }, MissingTree},
		"archived, no tree": {func(m *WorktreeMeta) { m.TreePath, m.State = "/nowhere/at/all", Archived }, NoDefect},
		"another id":        {func(m *WorktreeMeta) { m.WorktreeID = id(1) }, IDMismatch},
		"another repo":      {func(m *WorktreeMeta) { m.RepoID = "ffffffffffffffff" }, CorruptMeta},
		"no id":             {func(m *WorktreeMeta) { m.WorktreeID = "" }, CorruptMeta},
		"no name":           {func(m *WorktreeMeta) { m.Name = "" }, CorruptMeta},
		"no repo":           {func(m *WorktreeMeta) { m.RepoID = "" }, CorruptMeta},
		"no path":           {func(m *WorktreeMeta) { m.TreePath = "" }, CorruptMeta},
		"no state":          {func(m *WorktreeMeta) { m.State = "" }, CorruptMeta},
		"no time":           {func(m *WorktreeMeta) { m.CreatedAt = time.Time{} }, CorruptMeta},
		"another schema":    {func(m *WorktreeMeta) { m.SchemaVersion = "0.9" }, CorruptMeta},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			m := WorktreeMeta{SchemaVersion: SchemaVersion, WorktreeID: wtID, Name: "feature", RepoID: repoID, Branch: "b", TreePath: t.TempDir(), CreatedAt: at(0), State: Present}
			c.change(&m)
			must(t, s.CreateWorktreeDir(repoID, wtID))
			must(t, os.WriteFile(metaPath(s.WorktreeDir(repoID, wtID)), []byte(asJSON(t, m)), 0o600))
			entries, err := s.Worktrees(repoID, nil)
			must(t, err)
			if len(entries) != 1 || entries[0].Defect != c.want {
				t.Errorf("got %+v, want %q", entries, c.want)
			}
		})
	}
}

func TestInvocationsAreOrderedByTimeThenID(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	started := map[string]int{id(1): 40, id(2): 10, id(3): 10, id(4): 50, "20260128120502-ffff": 10}
	for id, n := range started {
		add(t, s, id, func(m *InvocationMeta) { m.StartedAt = at(n) })
	}
	add(t, s, id(20)) // corrupt: ordered by the time in its id
	writeMeta(t, s, id(20), []byte("garbage"))
	add(t, s, id(21), func(m *InvocationMeta) { m.StartedAt = at(45).In(time.FixedZone("", 3600)) })
	want := []string{id(2), "20260128120502-ffff", id(3), id(20), id(1), id(21), id(4)}
	for range 5 {
		entries, err := s.Invocations(repoID, nil)
		must(t, err)
		if got := idsOf(entries); !slices.Equal(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	}
}

func TestInvocationsIgnoreOtherNames(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	for _, name := range []string{
		".tmp-x", ".DS_Store", "lost+found", "20260128120500-b7c9.bak", "20260128120500-B7C9", "20260128120500", "20260128120500-b7c",
		"20261328120500-b7c9", "2026012812050\xff-b7c9", " 20260128120500-b7c9", "20260128120500-b7c9 ",
	} {
		must(t, os.Mkdir(s.InvocationDir(repoID, name), 0o700))
		must(t, os.MkdirAll(s.SandboxTreePath(repoID, name), 0o700))
		must(t, os.WriteFile(s.InvocationMetaPath(repoID, name), []byte(asJSON(t, meta(s, invID))), 0o600))
	}
	entries, err := s.Invocations(repoID, nil)
	if err != nil || !slices.Equal(idsOf(entries), []string{invID}) {
		t.Errorf("got %q, %v", idsOf(entries), err)
	}
	worktrees, err := s.Worktrees(repoID, nil)
	if err != nil || len(worktrees) != 0 {
		t.Errorf("got %q, %v", idsOf(worktrees), err)
	}
}

func TestInvocationsOfUnknownRepository(t *testing.T) {
	t.Parallel()
	s := Store{Root: filepath.Join(t.TempDir(), "not", "there")}
	if entries, err := s.Invocations(repoID, nil); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v", entries, err)
	}
	if exists(s.Root) {
		t.Error("Invocations created a directory")
	}
	// A directory that cannot be read is an error.
	s = newStore(t)
	dir := s.InvocationDir(repoID, "")
	must(t, os.Remove(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	if entries, err := s.Invocations(repoID, nil); err == nil {
		t.Errorf("got %v", entries)
	}
}

func TestInvocationsFindsAllOfMany(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const many = 300
	var want []string
	broken := map[string]Defect{}
	for i := range many {
		id := time.Date(2026, 1, 1, 0, 0, i/2, 0, time.UTC).Format("20060102150405") + fmt.Sprintf("-%04x", i)
		want = append(want, id)
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(many)
	for _, i := range order {
		add(t, s, want[i], func(m *InvocationMeta) { m.StartedAt = time.Date(2026, 1, 1, 0, 0, i/2, 0, time.UTC) })
		switch i % 10 {
		case 3:
			must(t, os.RemoveAll(s.SandboxDir(repoID, want[i])))
			broken[want[i]] = MissingTree
		case 7:
			must(t, os.Remove(s.InvocationMetaPath(repoID, want[i])))
			broken[want[i]] = MissingMeta
		}
	}
	entries, err := s.Invocations(repoID, nil)
	must(t, err)
	if !slices.Equal(idsOf(entries), want) {
		t.Errorf("got %d entries, or another order", len(entries))
	}
	for _, e := range entries {
		if e.Defect != broken[e.ID] {
			t.Errorf("%s is %q, want %q", e.ID, e.Defect, broken[e.ID])
		}
	}
}

func TestFirstExisting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeDanglingLink(t, filepath.Join(dir, "dangling"))
	writeEmptyFile(t, filepath.Join(dir, "file"))
	for path, want := range map[string]bool{"dangling": true, "file": true, "none": false, "": true, "none/": false, "file/below": false} {
		path = dir + "/" + path
		if got, taken := FirstExisting(filepath.Join(dir, "none"), path); taken != want || (taken && got != path) {
			t.Errorf("%s: %q %v", path, got, taken)
		}
	}
	if _, taken := FirstExisting(); taken {
		t.Error("FirstExisting without paths found one")
	}
}

// TestInvocationsListBrokenTreeWhileLocked: a creation writes the intent before the tree and removes it after the tree,
// so a tree without an intent is not being created and must be listed even while a command holds the lock.
func TestInvocationsListBrokenTreeWhileLocked(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	must(t, os.Remove(s.InvocationMetaPath(repoID, invID)))
	entries, err := s.Invocations(repoID, func() bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Defect != MissingMeta {
		t.Errorf("got %+v, %v", entries, err)
	}
}

// TestInvocationsListBrokenHistoryWhileLocked: a history is written long after the record, so an invocation with one is
// not being created.
func TestInvocationsListBrokenHistoryWhileLocked(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	must(t, s.AppendEvent(repoID, invID, "x"))
	must(t, os.Remove(s.InvocationMetaPath(repoID, invID)))
	must(t, os.RemoveAll(s.SandboxDir(repoID, invID)))
	entries, err := s.Invocations(repoID, func() bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Defect != Incomplete {
		t.Errorf("got %+v, %v", entries, err)
	}
}

// TestEndedInvocationIsIntactAfterDataDirMoved: a discarded or landed invocation has a record and no tree, and is not
// broken, even when the data directory moved and the path in the record no longer exists.
func TestEndedInvocationIsIntactAfterDataDirMoved(t *testing.T) {
	t.Parallel()
	for _, landing := range []string{Discarded, Landed} {
		s := newStore(t)
		add(t, s, invID, func(m *InvocationMeta) { m.Landing = landing })
		must(t, os.RemoveAll(s.SandboxDir(repoID, invID)))
		moved := Store{Root: s.Root + "-moved"}
		must(t, os.Rename(s.Root, moved.Root))
		if e := moved.Invocation(repoID, invID, nil); e.Defect != NoDefect {
			t.Errorf("%s: %q (%s)", landing, e.Defect, e.Detail)
		}
	}
}

func TestInvocationsMatchingReadsOnlyMatches(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for n := range 3 {
		add(t, s, id(n))
	}
	must(t, os.RemoveAll(s.InvocationDir(repoID, id(2)))) // only a tree
	empty := "20270128120500-0000"
	must(t, s.CreateInvocationDir(repoID, empty))
	for prefix, want := range map[string][]string{
		"":                        {id(0), id(1), id(2)}, // the empty record directory may be an invocation being created
		"2026":                    {id(0), id(1), id(2)},
		id(1)[:14]:                {id(1)},
		id(1):                     {id(1)},
		id(2):                     {id(2)},
		id(4):                     nil,
		empty:                     nil,
		"2027":                    nil,
		"x":                       nil,
		"../invocations/" + id(1): nil,
		id(1) + "/":               nil,
	} {
		asked := 0
		got, err := s.InvocationsMatching(repoID, prefix, func() bool { asked++; return true })
		must(t, err)
		if !slices.Equal(idsOf(got), want) {
			t.Errorf("%q: %q; want %q", prefix, idsOf(got), want)
		}
		// The callback is called only for an empty record directory.
		if looked := strings.HasPrefix(empty, prefix); (asked > 0) != looked {
			t.Errorf("%q: the empty record was read: %v; want %v", prefix, asked > 0, looked)
		}
	}
}

// TestLoadEntryRereadsRecordWhenTreeIsGone discards the invocation after its record was read and before its tree is
// looked up: the entry is not broken.
func TestLoadEntryRereadsRecordWhenTreeIsGone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, os.MkdirAll(s.InvocationDir(repoID, invID), 0o700))
	must(t, s.WriteInvocationMeta(repoID, meta(s, invID)))
	looks := 0
	e := loadEntry(invID, s.InvocationDir(repoID, invID), nil, func(m InvocationMeta) (string, bool, bool) {
		if looks++; looks == 1 {
			must(t, s.UpdateInvocationMeta(repoID, invID, func(m *InvocationMeta) { m.Landing = Discarded }))
		}
		return "tree", false, m.Landing != Discarded
	}, func(InvocationMeta, bool) string { return "" }, false)
	if e.Defect != NoDefect || e.Record.Landing != Discarded {
		t.Errorf("%+v", e)
	}
}
