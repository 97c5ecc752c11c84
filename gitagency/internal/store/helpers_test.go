package store

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	repoID = "0123456789abcdef"
	invID  = "20260128120500-b7c9"
	wtID   = "20260128120000-a3f2"
	zeros  = "0000000000000000000000000000000000000000"
)

// newStore returns a store with the record of one repository.
func newStore(t *testing.T) Store {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	s := Store{Root: filepath.Join(root, "agency")}
	must(t, s.EnsureRepo(repoID, "/repo/.git", at(0)))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at returns the time n seconds after the one in invID.
func at(n int) time.Time { return time.Date(2026, 1, 28, 12, 5, n, 0, time.UTC) }

// id returns an id with the time at(n).
func id(n int) string { return at(n).Format("20060102150405") + fmt.Sprintf("-%04x", n) }

// meta returns the record of an invocation with valid fields.
func meta(s Store, id string) InvocationMeta {
	return InvocationMeta{
		SchemaVersion: SchemaVersion, InvocationID: id, InvocationName: "arch-agent", IntegrationWorktreeID: wtID,
		SandboxPath: s.SandboxTreePath(repoID, id), SandboxBranch: "agency/sandbox-" + id, BaseCommit: zeros,
		Runner: "claude", Mode: "headless", Status: "starting", StartedAt: at(0),
		Primitives: Primitives{Changeset: "worktree", Platform: "local", Isolation: "os", Outputs: "open", Software: "host"},
	}
}

// add makes a complete invocation, record and tree, with changes to its record.
func add(t *testing.T, s Store, id string, change ...func(*InvocationMeta)) InvocationMeta {
	t.Helper()
	m := meta(s, id)
	for _, c := range change {
		c(&m)
	}
	must(t, s.CreateInvocationDir(repoID, id))
	must(t, os.MkdirAll(s.SandboxTreePath(repoID, id), 0o755))
	writeMeta(t, s, id, m)
	return m
}

// writeMeta writes a record, or raw bytes, as meta.json of an id; the record may name another id.
func writeMeta(t *testing.T, s Store, id string, v any) {
	t.Helper()
	data, ok := v.([]byte)
	if !ok {
		var err error
		data, err = json.Marshal(v)
		must(t, err)
	}
	must(t, os.WriteFile(s.InvocationMetaPath(repoID, id), data, 0o600))
}

func idsOf[T any](entries []Entry[T]) []string {
	var found []string
	for _, e := range entries {
		found = append(found, e.ID)
	}
	return found
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
