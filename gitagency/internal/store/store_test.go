package store

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
)

func TestStorePaths(t *testing.T) {
	t.Parallel()
	s := Store{Root: "/data"}
	for got, want := range map[string]string{
		s.RepoDir(repoID):                   "/data/repos/0123456789abcdef",
		s.WorktreeDir(repoID, wtID):         "/data/repos/0123456789abcdef/worktrees/20260128120000-a3f2",
		s.WorktreeTreePath(repoID, wtID):    "/data/repos/0123456789abcdef/worktrees/20260128120000-a3f2/tree",
		s.InvocationDir(repoID, invID):      "/data/repos/0123456789abcdef/invocations/20260128120500-b7c9",
		s.InvocationMetaPath(repoID, invID): "/data/repos/0123456789abcdef/invocations/20260128120500-b7c9/meta.json",
		s.SandboxDir(repoID, invID):         "/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9",
		s.SandboxTreePath(repoID, invID):    "/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9/tree",
		metaPath("/x"):                      "/x/meta.json",
		intentPath("/x"):                    "/x/intent.json",
		eventsPath("/x"):                    "/x/events.jsonl",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRepoIDIsTruncatedSHA256OfPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/repo/.git", "/é\n x", ""} {
		if got, want := RepoID(path), fmt.Sprintf("%x", sha256.Sum256([]byte(path)))[:16]; got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	if RepoID("/repo/.git") == RepoID("/repo/.git/") {
		t.Error("two paths have one id")
	}
}

func TestEnsureRepoMakesPrivateDirectoriesAndRecord(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir := s.RepoDir(repoID)
	if got := names(t, dir); !slices.Equal(got, []string{"invocations", "repo.json", "sandboxes", "worktrees"}) {
		t.Errorf("got %q", got)
	}
	for _, path := range []string{s.Root, dir, filepath.Join(dir, "invocations"), filepath.Join(dir, "sandboxes"), filepath.Join(dir, "worktrees")} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, %v", path, fi.Mode(), err)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "repo.json"))
	must(t, err)
	var record map[string]string
	must(t, json.Unmarshal(before, &record))
	if record["common_dir"] != "/repo/.git" || record["repo_id"] != repoID || record["schema_version"] != SchemaVersion || record["created_at"] != "2026-01-28T12:05:00Z" {
		t.Errorf("repo.json is %s", before)
	}
	must(t, s.EnsureRepo(repoID, "/repo/.git", at(9)))
	if after, _ := os.ReadFile(filepath.Join(dir, "repo.json")); string(after) != string(before) {
		t.Errorf("the second call changed repo.json: %s", after)
	}
	if err := s.EnsureRepo(repoID, "/other/.git", at(9)); err == nil || !strings.Contains(err.Error(), "/repo/.git") {
		t.Errorf("for another repository: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "repo.json"), []byte("rubbish"), 0o600))
	if err := s.EnsureRepo(repoID, "/repo/.git", at(9)); err == nil {
		t.Error("no error for a corrupt repo.json")
	}
}

func TestCreateDirSucceedsForOneCaller(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for name, ensure := range map[string]func() error{
		"invocation": func() error { return s.CreateInvocationDir(repoID, invID) },
		"worktree":   func() error { return s.CreateWorktreeDir(repoID, wtID) },
	} {
		var got atomic.Int32
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				switch err := ensure(); {
				case err == nil:
					got.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 {
			t.Errorf("%s: %d calls succeeded", name, got.Load())
		}
	}
	if fi, err := os.Stat(s.InvocationDir(repoID, invID)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory: %v, %v", fi.Mode(), err)
	}
	if err := s.CreateInvocationDir("ffffffffffffffff", invID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown repository: %v", err)
	}
	must(t, os.Symlink("/nowhere", s.InvocationDir(repoID, id(1))))
	if err := s.CreateInvocationDir(repoID, id(1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a dangling symlink: %v", err)
	}
}

func TestWriteMetaFormat(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, invID))
	must(t, s.WriteInvocationMeta(repoID, meta(s, invID)))
	got, err := os.ReadFile(s.InvocationMetaPath(repoID, invID))
	must(t, err)
	want := `{
  "schema_version": "1.0",
  "invocation_id": "20260128120500-b7c9",
  "invocation_name": "arch-agent",
  "integration_worktree_id": "20260128120000-a3f2",
  "sandbox_path": "` + s.SandboxTreePath(repoID, invID) + `",
  "sandbox_branch": "agency/sandbox-20260128120500-b7c9",
  "base_commit": "` + zeros + `",
  "runner": "claude",
  "mode": "headless",
  "status": "starting",
  "started_at": "2026-01-28T12:05:00Z",
  "primitives": {
    "changeset": "worktree",
    "platform": "local",
    "isolation": "os",
    "outputs": "open",
    "software": "host"
  }
}
`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if fi, err := os.Stat(s.InvocationMetaPath(repoID, invID)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode of meta.json: %v, %v", fi.Mode(), err)
	}
	if left := names(t, s.InvocationDir(repoID, invID)); !slices.Equal(left, []string{"meta.json"}) {
		t.Errorf("files in the directory: %q", left)
	}
	wt := WorktreeMeta{SchemaVersion: SchemaVersion, WorktreeID: wtID, Name: "feature", RepoID: repoID, Branch: "agency/feature-a3f2", TreePath: "/x", CreatedAt: at(0), State: Present}
	must(t, s.CreateWorktreeDir(repoID, wtID))
	must(t, s.WriteWorktreeMeta(wt))
	var keys map[string]any
	data, err := os.ReadFile(metaPath(s.WorktreeDir(repoID, wtID)))
	must(t, err)
	must(t, json.Unmarshal(data, &keys))
	for _, k := range []string{"schema_version", "worktree_id", "name", "repo_id", "branch", "parent_branch", "tree_path", "created_at", "state"} {
		if _, have := keys[k]; !have {
			t.Errorf("the record of a worktree has no %s: %s", k, data)
		}
	}
}

// TestReadersNeverSeePartialRecord reads a record while it is replaced: a reader sees the old or the new one.
func TestReadersNeverSeePartialRecord(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID, func(m *InvocationMeta) { m.Runner = "r" })
	done := make(chan struct{})
	var readers sync.WaitGroup
	var seen atomic.Int64
	for range 3 {
		readers.Go(func() {
			for {
				e := s.Invocation(repoID, invID, nil)
				if e.Defect != NoDefect {
					t.Errorf("%s: %s", e.Defect, e.Detail)
					return
				}
				if want := strings.Repeat(e.Record.Runner[:1], len(e.Record.Runner)); e.Record.Runner != want {
					t.Errorf("a mix of two records: %.40s…", e.Record.Runner)
					return
				}
				seen.Add(1)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 150 {
		m := meta(s, invID)
		m.Runner = strings.Repeat(string(rune('a'+i%26)), 1+i*97%20000)
		if i%2 == 0 {
			must(t, s.WriteInvocationMeta(repoID, m))
			continue
		}
		must(t, s.UpdateInvocationMeta(repoID, invID, func(have *InvocationMeta) { have.Runner = m.Runner }))
	}
	close(done)
	readers.Wait()
	if seen.Load() == 0 {
		t.Error("no reader ran")
	}
	if left := names(t, s.InvocationDir(repoID, invID)); !slices.Equal(left, []string{"meta.json"}) {
		t.Errorf("files in the directory: %q", left)
	}
}

func TestFailedWriteMetaLeavesNoFiles(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if err := s.WriteInvocationMeta(repoID, meta(s, invID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its directory: %v", err)
	}
	must(t, s.CreateInvocationDir(repoID, invID))
	must(t, os.Mkdir(s.InvocationMetaPath(repoID, invID), 0o700))
	if err := s.WriteInvocationMeta(repoID, meta(s, invID)); err == nil {
		t.Error("meta.json that is a directory was replaced")
	}
	if left := names(t, s.InvocationDir(repoID, invID)); !slices.Equal(left, []string{"meta.json"}) {
		t.Errorf("files in the directory: %q", left)
	}
}

func TestRemovalsAreIdempotent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for range 2 {
		must(t, RemoveMeta(s.InvocationDir(repoID, invID)))
		must(t, RemoveIntent(s.InvocationDir(repoID, invID)))
		must(t, s.RemoveSandboxTree(repoID, invID))
		must(t, RemoveEmptyRecordDirs(s.InvocationDir(repoID, invID), s.SandboxDir(repoID, invID)))
	}
	add(t, s, invID)
	must(t, os.WriteFile(filepath.Join(s.SandboxTreePath(repoID, invID), "file"), nil, 0o600))
	must(t, s.RemoveSandboxTree(repoID, invID))
	if exists(s.SandboxDir(repoID, invID)) {
		t.Error("the sandbox directory was not removed")
	}
	must(t, RemoveMeta(s.InvocationDir(repoID, invID)))
	must(t, os.WriteFile(filepath.Join(s.InvocationDir(repoID, invID), ".tmp-meta.json-1"), nil, 0o600))
	must(t, RemoveEmptyRecordDirs(s.InvocationDir(repoID, invID)))
	if exists(s.InvocationDir(repoID, invID)) {
		t.Error("the record directory was not removed")
	}
}

func TestRemoveEmptyRecordDirsKeepsContent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	if err := RemoveEmptyRecordDirs(s.InvocationDir(repoID, invID)); err == nil || !exists(s.InvocationMetaPath(repoID, invID)) {
		t.Errorf("a directory with a record: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(s.InvocationDir(repoID, id(1)), ".tmp-dir", "in"), 0o700))
	if err := RemoveEmptyRecordDirs(s.InvocationDir(repoID, id(1))); err == nil {
		t.Error("a non-empty directory named like a temporary file was removed")
	}
}

func TestConcurrentAppendEventWritesWholeLines(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, invID))
	type event struct {
		N    int       `json:"n"`
		Text string    `json:"text"`
		Time time.Time `json:"time"`
	}
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			if err := s.AppendEvent(repoID, invID, event{n, strings.Repeat("line\n", 100*n), at(n)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(eventsPath(s.InvocationDir(repoID, invID)))
	must(t, err)
	found := map[int]bool{}
	for line := range strings.Lines(string(data)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Text != strings.Repeat("line\n", 100*e.N) {
			t.Errorf("%q: %v", line, err)
		}
		found[e.N] = true
	}
	if len(found) != 50 {
		t.Errorf("%d of 50 events", len(found))
	}
}

func TestAppendEventEscapesTerminalControls(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.CreateInvocationDir(repoID, invID))
	argv := []string{"printf", "\x1b]0;t\x07\x7f\u009b31m\u202e\u200b\u2028é"}
	must(t, s.AppendEvent(repoID, invID, argv))
	data, err := os.ReadFile(eventsPath(s.InvocationDir(repoID, invID)))
	must(t, err)
	var got []string
	if err := json.Unmarshal(data, &got); err != nil || !slices.Equal(got, argv) {
		t.Errorf("%s decodes to %q, %v", data, got, err)
	}
	if line := strings.TrimSuffix(string(data), "\n"); strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) }) {
		t.Errorf("raw control characters: %q", line)
	}
}

// TestRemoveEmptyRecordDirsTakesPathLiterally uses a path with glob characters.
func TestRemoveEmptyRecordDirsTakesPathLiterally(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[data] *")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".tmp-meta.json-1"), nil, 0o600))
	if err := RemoveEmptyRecordDirs(dir); err != nil || exists(dir) {
		t.Errorf("the directory was not removed: %v", err)
	}
}

func TestRemoveEmptyRecordDirsTouchesNoOtherDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, other := filepath.Join(root, "*"), filepath.Join(root, "other")
	for _, d := range []string{dir, other} {
		must(t, os.MkdirAll(d, 0o700))
		must(t, os.WriteFile(filepath.Join(d, ".tmp-meta.json-1"), nil, 0o600))
	}
	must(t, RemoveEmptyRecordDirs(dir))
	if !exists(filepath.Join(other, ".tmp-meta.json-1")) {
		t.Error("a temporary file in another directory was removed")
	}
}

func TestIsBeingRemoved(t *testing.T) {
	t.Parallel()
	const sandbox = "/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9"
	for path, want := range map[string]bool{
		WithdrawnPath(sandbox + "/tree"):        true,
		WithdrawnPath(sandbox+"/tree") + "/a/b": true,
		RemovablePath(sandbox+"/tree") + "/a":   true,
		sandbox + "/tree":                       false,
		sandbox + "/tree/.aside":                false,
		sandbox:                                 false,
		"/home/me/.aside/project":               false,
		"/":                                     false,
	} {
		if got := IsBeingRemoved(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
