package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const movedID = "fedcba9876543210"

func TestReposListsRepositoryDirectories(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for name, content := range map[string]string{
		"1111111111111111": `{"repo_id": "another", "common_dir": "/other/.git"}`,
		"2222222222222222": `{"common_dir": "/half`,
		"3333333333333333": `[]`,
		"4444444444444444": `{"common_dir": "` + strings.Repeat("x", maxRecordBytes) + `"}`,
		".tmp-5":           `{"common_dir": "/temporary/.git"}`,
	} {
		must(t, os.MkdirAll(s.RepoDir(name), 0o700))
		must(t, os.WriteFile(filepath.Join(s.RepoDir(name), "repo.json"), []byte(content), 0o600))
	}
	must(t, os.MkdirAll(filepath.Join(s.RepoDir("6666666666666666"), "repo.json"), 0o700))
	must(t, os.WriteFile(s.RepoDir("file"), nil, 0o600))
	repos, err := s.Repos()
	must(t, err)
	got := map[string]string{}
	for _, r := range repos {
		got[r.RepoID] = r.CommonDir
	}
	want := map[string]string{
		repoID: "/repo/.git", "1111111111111111": "/other/.git", "2222222222222222": "", "3333333333333333": "", "4444444444444444": "", "6666666666666666": "",
	}
	for id, dir := range want {
		if have, there := got[id]; have != dir || !there {
			t.Errorf("%s is at %q, %v", id, have, there)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %q", got)
	}
	if repos, err := (Store{Root: filepath.Join(s.Root, "nowhere")}).Repos(); len(repos) > 0 || err != nil {
		t.Errorf("%v, %v", repos, err)
	}
}

func TestRelocateRepoMovesRecordsAndTrees(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := add(t, s, invID)
	must(t, os.WriteFile(filepath.Join(s.SandboxTreePath(repoID, invID), "work"), []byte("w"), 0o644))
	must(t, os.MkdirAll(s.WorktreeTreePath(repoID, wtID), 0o755))
	must(t, s.RelocateRepo(repoID, movedID, "/moved/.git", at(9)))
	must(t, s.RelocateRepo(repoID, movedID, "/moved/.git", at(9))) // idempotent
	if exists(s.RepoDir(repoID)) {
		t.Error("the old directory still exists")
	}
	if data, err := os.ReadFile(filepath.Join(s.SandboxTreePath(movedID, invID), "work")); string(data) != "w" || err != nil {
		t.Errorf("the file in the tree is %q, %v", data, err)
	}
	if e := s.Invocation(movedID, invID, nil); !reflect.DeepEqual(e.Record, m) { // the record keeps the old path
		t.Errorf("the record is %+v", e.Record)
	}
	if !exists(s.WorktreeTreePath(movedID, wtID)) {
		t.Error("the worktree was lost")
	}
	repos, err := s.Repos()
	must(t, err)
	if len(repos) != 1 || repos[0].CommonDir != "/moved/.git" || !slices.Equal(repos[0].FormerIDs, []string{repoID}) {
		t.Errorf("got %+v", repos)
	}
}

func TestRelocateRepoReplacesNothingAndResumes(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	must(t, os.MkdirAll(s.WorktreeTreePath(repoID, wtID), 0o755))
	inTheWay := filepath.Join(s.WorktreeTreePath(movedID, wtID), "work")
	must(t, os.MkdirAll(filepath.Dir(inTheWay), 0o755))
	must(t, os.WriteFile(inTheWay, []byte("theirs"), 0o644))
	if err := s.RelocateRepo(repoID, movedID, "/moved/.git", at(9)); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v", err)
	}
	if data, err := os.ReadFile(inTheWay); string(data) != "theirs" || err != nil {
		t.Errorf("the file at the destination is %q, %v", data, err)
	}
	if !exists(s.WorktreeTreePath(repoID, wtID)) {
		t.Error("the source of the move is gone")
	}
	must(t, os.RemoveAll(s.WorktreeDir(movedID, wtID)))
	must(t, s.RelocateRepo(repoID, movedID, "/moved/.git", at(9)))
	if !exists(s.WorktreeTreePath(movedID, wtID)) || !exists(s.SandboxTreePath(movedID, invID)) || exists(s.RepoDir(repoID)) {
		t.Error("the second attempt did not finish the move")
	}
}

func TestRelocateRepoRefusesForeignDestination(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	must(t, s.EnsureRepo(movedID, "/another/.git", at(0)))
	if err := s.RelocateRepo(repoID, movedID, "/moved/.git", at(9)); err == nil {
		t.Error("the directory of another repository was used")
	}
	if !exists(s.SandboxTreePath(repoID, invID)) {
		t.Error("the source of the move is gone")
	}
}

func TestListIDsIgnoresOtherNames(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, name := range []string{invID, wtID, ".tmp-x", "x", invID + "x", "20269999999999-b7c9"} {
		must(t, os.MkdirAll(filepath.Join(s.RepoDir(repoID), "invocations", name), 0o700))
	}
	if got, err := s.ListIDs(repoID, "invocations"); !slices.Equal(got, []string{wtID, invID}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.ListIDs("nowhere", "invocations"); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRemoveRecordKeepsForeignFiles(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]bool{
		"meta.json": true, "intent.json": true, "events.jsonl": true, ".tmp-meta.json-1": true, ".done/half": true,
		"tree/work": false, ".aside/work": false, "notes": false, "meta.json.bak": false,
	} {
		dir := filepath.Join(t.TempDir(), "record")
		for _, file := range []string{"meta.json", name} {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
			must(t, os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600))
		}
		if err := RemoveRecord(dir); (err == nil) != goes {
			t.Errorf("with %s: %v", name, err)
		}
		if exists(dir) == goes || !goes && (!exists(filepath.Join(dir, name)) || !exists(filepath.Join(dir, "meta.json"))) {
			t.Errorf("with %s: the directory exists: %v", name, exists(dir))
		}
	}
	must(t, RemoveRecord(filepath.Join(t.TempDir(), "nowhere")))
}

func TestReadRawMetaReturnsPrintableText(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{"half": `:      `{"half": `,
		"a\x00b\xffc":    "a?b?c",
		"":               "",
		"line\nline\r\n": "line\nline\r\n",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(metaPath(dir), []byte(content), 0o600))
		if got := ReadRawMeta(dir); got != want {
			t.Errorf("%q became %q", content, got)
		}
	}
	if got := ReadRawMeta(t.TempDir()); got != "" {
		t.Errorf("without meta.json: %q", got)
	}
}

func TestIsUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, closed := IsUnreadable(dir); closed {
		t.Error("a missing record is reported unreadable")
	}
	must(t, os.WriteFile(metaPath(dir), nil, 0))
	if meta, closed := IsUnreadable(dir); closed != (os.Geteuid() != 0) || meta != metaPath(dir) {
		t.Errorf("%s is unreadable: %v", meta, closed)
	}
}
