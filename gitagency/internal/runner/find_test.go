package runner

import (
	"os"
	"path/filepath"
	"testing"
)

// makePrograms makes scripts in a temporary directory. Each script leaves a file if it is run, which fails the test.
func makePrograms(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		path := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho >\"$0.ran\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := os.Lstat(path + ".ran"); err == nil {
				t.Errorf("%s was run", p)
			}
		})
	}
	return dir
}

func TestFindListsAgentsInTableOrder(t *testing.T) {
	t.Parallel()
	dir := makePrograms(t, "bin/qwen", "bin/claude", "other/codex", "other/claude", "bin/unknown-agent")
	env := []string{"PATH=" + dir + "/bin:" + dir + "/other"}
	requireAgents(t, Find(env, nil), []Agent{
		{Name: "claude", Program: "claude", Path: dir + "/bin/claude"},
		{Name: "codex", Program: "codex", Path: dir + "/other/codex"},
		{Name: "qwen", Program: "qwen", Path: dir + "/bin/qwen"},
	})
	requireAgents(t, Find([]string{"PATH=" + dir}, nil), nil)
	requireAgents(t, Find(nil, nil), nil)
}

func TestFindListsConfiguredAgents(t *testing.T) {
	t.Parallel()
	dir := makePrograms(t, "bin/claude", "bin/codex", "bin/mine", "my tools/agent", "opt/wrapper")
	env := []string{"HOME=" + dir, "PATH=" + dir + "/bin"}
	got := Find(env, map[string]string{
		"zeta":   "mine --fast",
		"codex":  "'" + dir + "/opt/wrapper' codex", // replaces the program on PATH
		"gemini": "not-there -p",
		"alpha":  `"~/my tools/agent" x`,
		"beta":   "~/nowhere",
		"gamma":  "opt/wrapper", // relative paths are not looked up
		"delta":  " ",
		"eps":    `"half`,
		"dir":    dir + "/bin",
		"env":    "KEY=value mine",
	})
	requireAgents(t, got, []Agent{
		{Name: "claude", Program: "claude", Path: dir + "/bin/claude"},
		{Name: "codex", Program: dir + "/opt/wrapper", Path: dir + "/opt/wrapper", Configured: true},
		{Name: "gemini", Program: "not-there", Configured: true},
		{Name: "alpha", Program: "~/my tools/agent", Path: dir + "/my tools/agent", Configured: true},
		{Name: "beta", Program: "~/nowhere", Configured: true},
		{Name: "delta", Program: " ", Configured: true},
		{Name: "dir", Program: dir + "/bin", Configured: true},
		{Name: "env", Program: "KEY=value", Configured: true},
		{Name: "eps", Program: `"half`, Configured: true},
		{Name: "gamma", Program: "opt/wrapper", Configured: true},
		{Name: "zeta", Program: "mine", Path: dir + "/bin/mine", Configured: true},
	})
	for _, a := range got {
		if (a.Err != nil) != (a.Path == "") {
			t.Errorf("%s: path %q and error %v", a.Name, a.Path, a.Err)
		}
	}
}

func TestFindTildeWithoutHome(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"HOME="}, {"HOME=relative"}} {
		got := Find(env, map[string]string{"x": "~/bin/x"})
		if len(got) != 1 || got[0].Path != "" || got[0].Err == nil {
			t.Errorf("%q: %+v", env, got)
		}
	}
}

func TestKnownAgentsAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range knownAgents {
		if seen[k.name] || len(k.programs) == 0 {
			t.Errorf("%s: %q", k.name, k.programs)
		}
		seen[k.name] = true
	}
}

func requireAgents(t *testing.T, got, want []Agent) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w Agent
		if i < len(got) {
			g = got[i]
			g.Err = nil
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%d: got %+v, want %+v", i, g, w)
		}
	}
}
