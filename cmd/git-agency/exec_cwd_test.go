package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func TestExecCwdRefusesHostileNames(t *testing.T) {
	t.Parallel()
	l, tree, outside := newPutLab(t)
	ran := filepath.Join(l.dir, "home", "ran")
	names := append(hostileNames(t), tree+"/..", tree+"/../tree/..", tree+"/.git", tree+"/.agency", tree+"/sub/../..", outside, l.repo, tree+"x", "out")
	before, tried := l.dump(), 0
	for _, name := range names {
		if strings.ContainsRune(name, 0) || name == "" {
			continue // not possible as an argument
		}
		tried++
		o := l.runInProcess(gitagency.Options{}, "exec", sweepID, "--cwd", name, "--", "touch", ran)
		if o.code != 5 || !strings.Contains(o.stderr, "path confinement") {
			t.Errorf("%q: ended with %d: %s", name, o.code, o.stderr)
		}
		if term.Printable(name) == name && !strings.ContainsAny(name, "\n\t\u2028\u2029") && !strings.Contains(o.stderr, name) {
			t.Errorf("the error does not name %q: %s", name, o.stderr)
		}
	}
	if tried < 60 {
		t.Errorf("only %d names were tried", tried)
	}
	if d := dumpDiff(before, l.dump()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
}

func TestExecCwdFollowsLinksInside(t *testing.T) {
	t.Parallel()
	l, tree, _ := newPutLab(t)
	if err := os.Symlink(filepath.Join(tree, "sub"), filepath.Join(tree, "absolute")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub": "sub", "sub/": "sub", "./sub//deep": "sub/deep", "sub/in": "sub/deep", "absolute/in": "sub/deep",
		".": ".", tree: ".", tree + "/sub/in": "sub/deep", tree + "/": ".",
	} {
		o := l.try(nil, "git-agency", "exec", sweepID, "--cwd", name, "--", "pwd")
		if o.code != 0 || o.line() != filepath.Join(tree, want) {
			t.Errorf("%q: %+v", name, o)
		}
	}
}
