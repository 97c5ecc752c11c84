package store

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// newerRecord is a record of a later version, with unknown fields at both levels and another order.
const newerRecord = `{
  "z_first": {"nested": [1, 2.50, {"deep": null}], "big": 123456789012345678901234567890},
  "schema_version": "1.7",
  "invocation_id": "20260128120500-b7c9",
  "integration_worktree_id": "20260128120000-a3f2",
  "sandbox_path": "/x",
  "exit_code": 1e400,
  "sandbox_branch": "agency/sandbox-20260128120500-b7c9",
  "base_commit": "0000000000000000000000000000000000000000",
  "runner": "claude",
  "mode": "headless",
  "status": "starting",
  "started_at": "2026-01-28T13:05:00.000+01:00",
  "primitives": {"future": {"x": 9007199254740993}, "changeset": "worktree", "platform": "local", "isolation": "os", "outputs": "open", "software": "host", "last": true},
  "landing": "review",
  "finished_at": "2026-01-28T12:06:00Z",
  "session_id": "ünïcode \u00e9 \" \\ \n",
  "empty": {}
}
`

// updateRecord writes before as meta.json, applies UpdateInvocationMeta and returns the new file.
func updateRecord(t *testing.T, before string, change func(*InvocationMeta)) string {
	t.Helper()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, invID))
	must(t, os.WriteFile(s.InvocationMetaPath(repoID, invID), []byte(before), 0o644))
	must(t, s.UpdateInvocationMeta(repoID, invID, change))
	after, err := os.ReadFile(s.InvocationMetaPath(repoID, invID))
	must(t, err)
	if fi, err := os.Stat(s.InvocationMetaPath(repoID, invID)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode of meta.json: %v, %v", fi.Mode(), err)
	}
	return string(after)
}

// compact removes white space, which an update may change.
func compact(t *testing.T, doc string) string {
	t.Helper()
	var b bytes.Buffer
	must(t, json.Compact(&b, []byte(doc)))
	return b.String()
}

func TestUpdateMetaChangesOnlyGivenFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*InvocationMeta)
		old, new string // the one replacement in the compacted document
	}{
		"nothing":                  {func(m *InvocationMeta) {}, "", ""},
		"a value":                  {func(m *InvocationMeta) { m.Status = "running" }, `"status":"starting"`, `"status":"running"`},
		"a nested value":           {func(m *InvocationMeta) { m.Primitives.Isolation = "none" }, `"isolation":"os"`, `"isolation":"none"`},
		"a value cleared":          {func(m *InvocationMeta) { m.Landing = "" }, `"landing":"review",`, ``},
		"a pointer cleared":        {func(m *InvocationMeta) { m.FinishedAt = nil }, `"finished_at":"2026-01-28T12:06:00Z",`, ``},
		"a required field cleared": {func(m *InvocationMeta) { m.Runner = "" }, `"runner":"claude"`, `"runner":""`},
		"a time":                   {func(m *InvocationMeta) { m.StartedAt = at(1) }, `"2026-01-28T13:05:00.000+01:00"`, `"2026-01-28T12:05:01Z"`},
		"a new field":              {func(m *InvocationMeta) { m.InvocationName = "n" }, `"empty":{}`, `"empty":{},"invocation_name":"n"`},
		"one changed and one gone": {func(m *InvocationMeta) { m.Landing, m.FinishedAt = "", nil }, `"landing":"review","finished_at":"2026-01-28T12:06:00Z",`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := updateRecord(t, newerRecord, c.change)
			want := compact(t, newerRecord)
			if !strings.Contains(want, c.old) {
				t.Fatalf("the test's record does not contain %s", c.old)
			}
			want = strings.Replace(want, c.old, c.new, 1)
			if got := compact(t, after); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !strings.HasSuffix(after, "}\n") || !strings.HasPrefix(after, "{\n  \"z_first\"") {
				t.Errorf("not indented: %.60q…", after)
			}
			// Restoring the old record, as a rollback does, yields the old values.
			back := updateRecord(t, after, func(m *InvocationMeta) { *m = decode[InvocationMeta](t, newerRecord) })
			requireSameJSON(t, back, newerRecord)
		})
	}
}

func decode[T any](t *testing.T, doc string) (v T) {
	t.Helper()
	must(t, json.Unmarshal([]byte(doc), &v))
	return v
}

// requireSameJSON compares values and ignores order, because a key that was removed and added again comes last.
// Times are compared as times, because an update rewrites their format.
func requireSameJSON(t *testing.T, got, want string) {
	t.Helper()
	a, b := decodeGeneric(t, got), decodeGeneric(t, want)
	for _, m := range []map[string]any{a, b} {
		if s, ok := m["started_at"].(string); ok {
			when, err := time.Parse(time.RFC3339, s)
			must(t, err)
			m["started_at"] = when.UTC()
		}
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %v\nwant %v", a, b)
	}
}

func decodeGeneric(t *testing.T, doc string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var m map[string]any
	must(t, dec.Decode(&m))
	return m
}

func TestUpdateMetaRefusesInvalidRecord(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "rubbish", "null", "[]", "1", `"x"`, `{"status":1}`, `{"primitives":[]}`, `{"started_at":"yesterday"}`, `{"status":"x"} more`, "{"} {
		s := newStore(t)
		must(t, s.CreateInvocationDir(repoID, invID))
		path := s.InvocationMetaPath(repoID, invID)
		must(t, os.WriteFile(path, []byte(before), 0o644))
		if err := s.UpdateInvocationMeta(repoID, invID, func(m *InvocationMeta) { m.Status = "x" }); err == nil {
			t.Errorf("%q was updated", before)
		} else if before != "" && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: the error does not name the file: %v", before, err)
		}
		if after, _ := os.ReadFile(path); string(after) != before {
			t.Errorf("%q became %q", before, after)
		}
		if left := names(t, s.InvocationDir(repoID, invID)); len(left) != 1 {
			t.Errorf("%q: files left in the directory: %q", before, left)
		}
	}
	if err := newStore(t).UpdateInvocationMeta(repoID, invID, func(*InvocationMeta) {}); !os.IsNotExist(err) {
		t.Errorf("missing record: %v", err)
	}
}

func TestUpdateWorktreeMetaKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateWorktreeDir(repoID, wtID))
	path := metaPath(s.WorktreeDir(repoID, wtID))
	must(t, os.WriteFile(path, []byte(`{"future":[1.0],"state":"present","name":"n"}`), 0o600))
	must(t, s.UpdateWorktreeMeta(repoID, wtID, func(m *WorktreeMeta) { m.State = Archived }))
	got, err := os.ReadFile(path)
	must(t, err)
	if compact(t, string(got)) != `{"future":[1.0],"state":"archived","name":"n"}` {
		t.Errorf("got %s", got)
	}
}

// FuzzPatchJSON checks for any document that patchJSON does not panic, keeps the text of unknown fields and applies
// the change.
func FuzzPatchJSON(f *testing.F) {
	f.Add([]byte(newerRecord), "running", false)
	f.Add([]byte(`{"status":"a","status":"b","x":1e999,"primitives":{"y":[{}]}}`), "c", true)
	f.Add([]byte(`{"primitives":null,"landing":null,"finished_at":null}`), "", false)
	f.Add([]byte(`{"":{"":0}}`), "x", true)
	f.Fuzz(func(t *testing.T, doc []byte, status string, clear bool) {
		status = strings.ToValidUTF8(status, "")
		change := func(m *InvocationMeta) {
			m.Status, m.Primitives.Isolation = status, status
			if clear {
				m.Landing, m.FinishedAt = "", nil
			} else {
				m.Landing = status + "!"
			}
		}
		out, err := patchJSON(doc, change)
		if err != nil {
			return
		}
		var before, after jsonObject
		var value, want InvocationMeta
		if err := json.Unmarshal(doc, &before); err != nil {
			t.Fatalf("patched a document that is not an object: %q", doc)
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", doc, out, err)
		}
		if !hasUnambiguousKeys(before) {
			return
		}
		must(t, json.Unmarshal(doc, &want))
		change(&want)
		must(t, json.Unmarshal(out, &value))
		if got, want := asJSON(t, value), asJSON(t, want); got != want {
			t.Errorf("%q became %q\ngot  %s\nwant %s", doc, out, got, want)
		}
		requireUnknownKept(t, before, after, InvocationMeta{})
		if nested := (jsonObject{}); json.Unmarshal(before.values["primitives"], &nested) == nil {
			var now jsonObject
			must(t, json.Unmarshal(after.values["primitives"], &now))
			requireUnknownKept(t, nested, now, Primitives{})
		}
	})
}

// hasUnambiguousKeys reports whether no two keys differ only in letter case or in invalid UTF-8. encoding/json
// matches keys without regard to case, so the result for such documents is unspecified.
func hasUnambiguousKeys(o jsonObject) bool {
	seen := map[string]bool{}
	for _, k := range o.keys {
		folded := strings.ToLower(strings.ToUpper(k))
		if seen[folded] || strings.ContainsRune(k, utf8.RuneError) || (!isASCII(k) && isKnownKey(folded)) {
			return false
		}
		seen[folded] = true
		if isKnownKey(folded) && k != folded {
			return false
		}
		var nested jsonObject
		if json.Unmarshal(o.values[k], &nested) == nil && !hasUnambiguousKeys(nested) {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0
}

// isKnownKey reports whether a key belongs to InvocationMeta or Primitives.
func isKnownKey(key string) bool {
	return knownKeys(InvocationMeta{})[key] || knownKeys(Primitives{})[key]
}

// knownKeys returns the JSON keys of a record type.
func knownKeys(v any) map[string]bool {
	keys := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			keys[name] = true
		}
	}
	return keys
}

// requireUnknownKept checks that keys which record does not have keep their value and their order.
func requireUnknownKept(t *testing.T, before, after jsonObject, record any) {
	t.Helper()
	ours := knownKeys(record)
	next := 0
	for _, k := range before.keys {
		if ours[k] {
			continue
		}
		var was, is bytes.Buffer
		must(t, json.Compact(&was, before.values[k]))
		if err := json.Compact(&is, after.values[k]); err != nil {
			t.Errorf("%q is gone", k)
			continue
		}
		if !bytes.Equal(was.Bytes(), is.Bytes()) {
			t.Errorf("%q was %s and is %s", k, &was, &is)
		}
		for next < len(after.keys) && after.keys[next] != k {
			next++
		}
		if next == len(after.keys) {
			t.Errorf("%q changed its position: %q became %q", k, before.keys, after.keys)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data)
}

// TestRecordsDoNotEscapeHTMLCharacters keeps the promise that all state can be read with cat: & and < are not escaped.
func TestRecordsDoNotEscapeHTMLCharacters(t *testing.T) {
	t.Parallel()
	s := Store{Root: t.TempDir() + "/R&D <data>"}
	must(t, s.EnsureRepo(repoID, "/R&D/.git", at(0)))
	must(t, s.CreateInvocationDir(repoID, invID))
	must(t, s.WriteInvocationMeta(repoID, meta(s, invID)))
	data, err := os.ReadFile(s.InvocationMetaPath(repoID, invID))
	must(t, err)
	if !strings.Contains(string(data), s.Root) {
		t.Errorf("%s is not in the record: %s", s.Root, data)
	}
}

func TestUpdateMetaKeepsTextOfUnknownFields(t *testing.T) {
	t.Parallel()
	const unknown = `"note":"a <b> & c"`
	after := compact(t, updateRecord(t, `{`+unknown+`,"status":"x"}`, func(m *InvocationMeta) { m.Status = "y" }))
	if want := `{` + unknown + `,"status":"y"}`; after != want {
		t.Errorf("got %s, want %s", after, want)
	}
}
