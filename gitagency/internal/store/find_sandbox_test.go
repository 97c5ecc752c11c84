package store

import "testing"

func TestFindSandbox(t *testing.T) {
	t.Parallel()
	const tree = "/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9/tree"
	for path, want := range map[string]string{
		tree:                      "/data",
		tree + "/a/b":             "/data",
		tree + "/x" + tree + "/y": "/data", // the outer one
		tree[len("/data"):]:       "/",
		"/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9":            "none",
		"/data/repos/0123456789abcdef/sandboxes/20260128120500-b7c9/walls/tree": "none",
		"/data/repos/0123456789abcdef/sandboxes/tree/tree":                      "none",
		"/data/repos/0123456789abcdef/worktrees/20260128120500-b7c9/tree":       "none",
		"":  "none",
		"/": "none",
	} {
		at, ok := FindSandbox(path)
		if got := at.Store.Root; ok != (want != "none") || ok && (got != want || at.RepoID != "0123456789abcdef" || at.ID != "20260128120500-b7c9") {
			t.Errorf("%s: %v, %v", path, at, ok)
		}
	}
}
