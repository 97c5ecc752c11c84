package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// newPutLab makes a sandbox with files, symbolic links and a hard link, and a directory outside that put must not
// change.
func newPutLab(t *testing.T) (l *lab, tree, outside string) {
	t.Helper()
	l = newSweepLab(t)
	if o := l.try(sweepEnv, "git-agency", "start", "wt"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	tree, outside = l.agency("path", sweepID), filepath.Join(l.dir, "home", "outside")
	l.write(filepath.Join(outside, "file"), "secret\n")
	for link, target := range map[string]string{"out": outside, "l": filepath.Join(outside, "file"), "sub/in": "deep"} {
		if err := os.Symlink(target, filepath.Join(tree, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(outside, "file"), filepath.Join(tree, "hard")); err != nil {
		t.Fatal(err)
	}
	return l, tree, outside
}

// hostileNames returns the names of the table that also tests package guard, and names below a symbolic link.
func hostileNames(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "hostile_names.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table []struct{ Name string }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, row := range table {
		names = append(names, row.Name)
	}
	return append(names, "out/x", "out/new/x")
}

func TestPutRefusesHostileNames(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	source, list := filepath.Join(l.dir, "home", "source"), filepath.Join(l.dir, "home", "list.json")
	before := l.dump()
	check := func(form, name string, args ...string) {
		t.Helper()
		o := l.runInProcess(gitagency.Options{}, append([]string{"put", sweepID}, args...)...)
		if o.code != 5 || !strings.Contains(o.stderr, "path confinement") || o.stdout != "" {
			t.Errorf("%s %q: exited with %d: %s", form, name, o.code, o.stderr)
		}
		if term.Printable(name) == name && !strings.ContainsAny(name, "\n\t\u2028\u2029") && !strings.Contains(o.stderr, name) {
			t.Errorf("%s %q: the error does not contain the name: %s", form, name, o.stderr)
		}
		if term.Printable(o.stderr) != o.stderr {
			t.Errorf("%s %q: the error contains control characters: %q", form, name, o.stderr)
		}
	}
	names := hostileNames(t)
	if len(names) < 60 {
		t.Errorf("only %d hostile names", len(names))
	}
	forms := map[string]int{}
	for _, name := range names {
		text, err := json.Marshal([]map[string]string{{"path": "first", "content": "1"}, {"path": name, "content": "2"}, {"path": "last", "content": "3"}})
		if err != nil {
			t.Fatal(err)
		}
		l.write(list, string(text))
		check("with --json", name, "--json", list)
		forms["json"]++
		if name != "" {
			check("as destination", name, filepath.Join(l.repo, "readme"), name)
			forms["destination"]++
		}
		if name == "" || strings.ContainsAny(name, "/\x00") || strings.Trim(name, ".") == "" || len(name) > 255 {
			continue // not a possible file name
		}
		l.write(filepath.Join(source, "first"), "1")
		l.write(filepath.Join(source, name), "2")
		check("in a source directory", name, source+"/.", ".")
		check("as source", name, filepath.Join(source, name), ".")
		forms["source"]++
		if err := os.RemoveAll(source); err != nil {
			t.Fatal(err)
		}
	}
	if forms["source"] < 40 {
		t.Errorf("too few source names: %v", forms)
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	if d := dumpDiff(before, l.dump()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
}

func TestPutReplacesLinksWithoutFollowing(t *testing.T) {
	t.Parallel()
	l, tree, outside := newPutLab(t)
	source := filepath.Join(l.dir, "home", "source")
	for _, name := range []string{"l", "hard", "sub/in/two", "readme"} {
		l.write(filepath.Join(source, name), "new\n")
	}
	// A directory does not replace a symbolic link, even if its target is in the worktree.
	if o := l.try(nil, "git-agency", "put", sweepID, source+"/.", "."); o.code != 1 || !strings.Contains(o.stderr, "sub/in: not a directory") {
		t.Errorf("%+v", o)
	}
	l.agency("put", sweepID, source+"/sub/in/two", "sub/in")
	l.agency("put", sweepID, source+"/l", source+"/hard", source+"/readme", ".")
	for _, name := range []string{"l", "hard", "readme", "sub/deep/two"} {
		if info, err := os.Lstat(filepath.Join(tree, name)); err != nil || !info.Mode().IsRegular() || l.read(filepath.Join(tree, name)) != "new\n" {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if got := l.read(filepath.Join(outside, "file")); got != "secret\n" {
		t.Errorf("the file outside is %q", got)
	}
}

func TestPutManyFiles(t *testing.T) {
	t.Parallel()
	l, tree, _ := newPutLab(t)
	type item struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	var items []item
	files := 10_000
	if testing.Short() {
		files = 1_000
	}
	for i := range files {
		items = append(items, item{fmt.Sprintf("many/d%d/e%d/f%d", i/1000, i/100, i), strconv.Itoa(i)})
	}
	text, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(l.dir, "home", "list.json")
	l.write(list, string(text))
	// The first put creates the files, the second replaces them.
	for range 2 {
		if o := l.try(nil, "git-agency", "put", sweepID, "--json", list); o.stderr != fmt.Sprintf("put %d files into %s\n", files, sweepID) {
			t.Fatalf("%+v", o)
		}
	}
	n := 0
	if err := filepath.WalkDir(filepath.Join(tree, "many"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		if name := filepath.Base(path); "f"+l.read(path) != name {
			return errors.New(name + " has the wrong content")
		}
		return nil
	}); err != nil || n != files {
		t.Errorf("%d files, %v", n, err)
	}
}

func TestInterruptedPutIsUndone(t *testing.T) {
	t.Parallel()
	l, _, _ := newPutLab(t)
	before := l.dump()
	for point, dest := range map[string]string{
		"put/check:before": ".", "put/stage:after": ".", "put/place new:after": "new/", "put/place readme:after": ".", "put/place sub/one:after": ".",
	} {
		for action, code := range map[string]int{"int": 130, "term": 143, "fail": 1} {
			o := l.try(append([]string{"TEST_FAULT=" + point + "=" + action}, sweepEnv...), "git-agency", "put", sweepID, "sub", "readme", dest)
			if o.code != code || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s=%s: exited with %d: %s", point, action, o.code, o.stderr)
			}
			if d := dumpDiff(before, l.dump()); d != "" {
				t.Fatalf("%s=%s: files changed:\n%s", point, action, d)
			}
		}
	}
}
