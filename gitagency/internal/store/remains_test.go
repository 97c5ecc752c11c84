package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFindRemains(t *testing.T) {
	t.Parallel()
	dirs := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, name := range names {
				must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
			}
		}
	}
	file := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		want SandboxRemains
	}{
		"nothing":            {func(*testing.T, string) {}, SandboxRemains{}},
		"a tree":             {dirs("tree/sub"), SandboxRemains{HasTree: true, HasOther: true}},
		"a withdrawn tree":   {dirs(".aside"), SandboxRemains{HasWithdrawn: true, HasOther: true}},
		"a removable tree":   {dirs(".done/sub"), SandboxRemains{HasOther: true}},
		"an empty directory": {dirs("."), SandboxRemains{HasOther: true}},
		"tree and withdrawn": {dirs("tree", ".aside"), SandboxRemains{HasTree: true, HasWithdrawn: true, HasOther: true}},
		"a foreign file":     {file("notes"), SandboxRemains{HasOther: true, ForeignPath: "notes"}},
		"a file as tree":     {file("tree"), SandboxRemains{HasOther: true, ForeignPath: "tree"}},
		"a file as .aside":   {file(".aside"), SandboxRemains{HasOther: true, ForeignPath: ".aside"}},
		"a file as the dir":  {file("."), SandboxRemains{ForeignPath: "."}},
		"a symlink as tree": {func(t *testing.T, dir string) {
			dirs(".")(t, dir)
			must(t, os.Symlink("/", filepath.Join(dir, "tree")))
		}, SandboxRemains{HasOther: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			dir := s.SandboxDir(repoID, invID)
			c.make(t, dir)
			if c.want.ForeignPath != "" {
				c.want.ForeignPath = filepath.Join(dir, c.want.ForeignPath)
			}
			got, err := s.FindRemains(repoID, invID)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
			if got.Any() != (c.want.HasTree || c.want.HasWithdrawn || c.want.HasOther) {
				t.Errorf("any: %v", got.Any())
			}
		})
	}
}

func TestRemoveInvocationIsAtomic(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID, func(m *InvocationMeta) { m.Landing = Discarded })
	must(t, os.RemoveAll(s.SandboxDir(repoID, invID)))
	must(t, os.WriteFile(filepath.Join(s.InvocationDir(repoID, invID), "events.jsonl"), []byte("{}\n"), 0o600))
	must(t, s.RemoveInvocation(repoID, invID))
	must(t, s.RemoveInvocation(repoID, invID)) // idempotent
	if found, err := s.Invocations(repoID, nil); err != nil || len(found) > 0 {
		t.Errorf("got %v, %v", idsOf(found), err)
	}
	if left := names(t, s.InvocationDir(repoID, "")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// A process killed during the removal leaves part of the record under its temporary name.
	away := filepath.Join(s.InvocationDir(repoID, ""), ".tmp-"+invID)
	must(t, os.MkdirAll(away, 0o700))
	must(t, os.WriteFile(filepath.Join(away, "events.jsonl"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(s.RepoDir(repoID), ".tmp-repo.json-1"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(s.SandboxDir(repoID, ""), ".tmp-x"), 0o700))
	if found, err := s.Invocations(repoID, nil); err != nil || len(found) > 0 {
		t.Errorf("got %v, %v", idsOf(found), err)
	}
	got, err := s.ListTemps(repoID)
	want := []string{filepath.Join(s.RepoDir(repoID), ".tmp-repo.json-1"), away, filepath.Join(s.SandboxDir(repoID, ""), ".tmp-x")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	// An invocation with the same id can be removed in spite of that remainder.
	add(t, s, invID)
	must(t, s.RemoveInvocation(repoID, invID))
	if left := names(t, s.InvocationDir(repoID, "")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestListLeftovers(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	add(t, s, invID)
	dir := s.InvocationDir(repoID, invID)
	for _, name := range []string{"", "intent.json", ".tmp-meta.json-1"} {
		if name != "" {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		if got, err := ListLeftovers(dir); err != nil || len(got) > 0 != (name != "") {
			t.Errorf("%q: %v, %v", name, got, err)
		}
		must(t, RemoveLeftovers(dir))
	}
	if got, err := ListLeftovers(s.InvocationDir(repoID, id(3))); err != nil || len(got) > 0 {
		t.Errorf("a missing record: %v, %v", got, err)
	}
}

func TestHasRepo(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if !s.HasRepo(repoID) || s.HasRepo("fedcba9876543210") {
		t.Error("HasRepo is wrong")
	}
	must(t, os.Remove(filepath.Join(s.RepoDir(repoID), "repo.json")))
	if s.HasRepo(repoID) {
		t.Error("HasRepo is true without repo.json")
	}
}
