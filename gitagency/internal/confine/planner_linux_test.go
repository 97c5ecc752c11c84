package confine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// TestMakePlanMatchesApply plans for this machine, applies the plan and compares visible and writable paths with it.
func TestMakePlanMatchesApply(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "home/.ssh/id=key", "home/.ssh/known_hosts=k", "home/.netrc=n", "home/.cache/c=c", "home/real/x=x", "home/.npm->real", "home/.agent/s=s", "home/shared/f=f",
			"home/data/s/tree/.git=gitdir: x", "home/data/s/walls/", "home/data/other/tree/f=f", "home/repo/.git/HEAD=h", "home/repo/file=f")
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		home := dir + "/home"
		r := walls.Request{
			Tree: home + "/data/s/tree", GitFile: home + "/data/s/tree/.git", GitDir: home + "/repo/.git", DataDir: home + "/data", OverlayDir: home + "/data/s/walls",
			IntegrationTrees: []string{home + "/repo"}, Home: home, PathDirs: filepath.SplitList(os.Getenv("PATH")), KeepVisible: []string{os.Args[0]}, Outputs: "none", AgentSockets: []string{home + "/.agent/s"},
			Policy: walls.Policy{
				Secrets: joinAll(home, ".ssh", ".netrc", ".aws"), Caches: joinAll(home, ".cache", ".npm", ".gone"),
				Read: joinAll(home, ".ssh/known_hosts"), Write: joinAll(home, "shared"),
			},
		}
		plan, err := walls.MakePlan(r, InspectMachine())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range plan.Overlays {
			if err := os.MkdirAll(l.Upper, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(l.Work, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		runInNamespaces(t, home, plan)
		for _, l := range plan.Overlays {
			removeWorkDir(t, l.Work)
		}
		return
	}
	home, p := applyPlan(t)
	for name, want := range map[string]string{
		".ssh/known_hosts": "k", ".cache/c": "c", ".npm/x": "x", "shared/f": "f", "data/s/tree/.git": "gitdir: x", "repo/.git/HEAD": "h", "repo/file": "f",
		".ssh/id": "", ".netrc": "", ".agent/s": "", "data/other/tree/f": "",
	} {
		data, _ := os.ReadFile(filepath.Join(home, name))
		if string(data) != want {
			t.Errorf("%s is %q, want %q", name, data, want)
		}
	}
	for name, can := range map[string]bool{
		"new": false, ".cache/new": true, ".npm/new": true, "shared/new": true, "data/new": false, "data/s/new": false, "data/s/tree/new": true, "repo/new": false, "repo/.git/new": true, ".ssh/new": false,
	} {
		path := filepath.Join(home, name)
		err := os.WriteFile(path, nil, 0o600)
		if (err == nil) != can {
			t.Errorf("write %s: %v", name, err)
		}
		real, _ := filepath.EvalSymlinks(filepath.Dir(path))
		if p.IsWritable(filepath.Join(real, "new")) != can {
			t.Errorf("Plan.IsWritable and the kernel disagree on %s", name)
		}
	}
	for _, dir := range []string{"/tmp", "/run", "/var/tmp"} {
		if err := unix.Access(dir, unix.W_OK); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
