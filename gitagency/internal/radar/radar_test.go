package radar

import (
	"encoding/json"
	"fmt"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/cachefile"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// radarRepo is a repository with several sandboxes of one worktree.
type radarRepo struct {
	*sandboxtest.Fixture
	sandboxes []*sandbox.Sandbox
}

func newRadarRepo(t *testing.T, sandboxes int) *radarRepo {
	t.Helper()
	l := &radarRepo{sandboxtest.New(t, core.Options{}), nil}
	l.commitIn(l.Repo.CallerDir, "first", func(dir string) {
		for _, name := range []string{"a", "b", "dir/c", "dir/d", "dir/e"} {
			l.writeFileIn(dir, name, strings.Repeat(fmt.Sprintln("line of", name), 12))
		}
	})
	if _, err := l.Repo.CreateWorktree(t.Context(), core.CreateWorktreeRequest{Name: "radar"}); err != nil {
		t.Fatal(err)
	}
	for range sandboxes {
		inv, err := creation.Start(t.Context(), l.Repo, creation.Request{Worktree: "radar", Primitives: store.Primitives{Isolation: settings.IsolationNone}})
		if err != nil {
			t.Fatal(err)
		}
		l.sandboxes = append(l.sandboxes, sandbox.Of(l.Repo, inv.ID))
	}
	return l
}

func (l *radarRepo) writeFileIn(dir, name, content string) {
	l.T.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.T.Fatal(err)
	}
}

// commitIn changes a worktree and commits everything in it.
func (l *radarRepo) commitIn(dir, message string, change func(dir string)) {
	l.T.Helper()
	change(dir)
	l.Git("-C", dir, "add", "-A")
	l.Git("-C", dir, "commit", "-q", "--allow-empty", "-m", message)
}

func (l *radarRepo) runRadar() Result {
	l.T.Helper()
	found, err := Compute(l.T.Context(), l.Repo, "radar")
	if err != nil {
		l.T.Fatal(err)
	}
	return found
}

// radarWithoutCache runs radar with an empty fact cache, and restores the cache afterwards.
func (l *radarRepo) radarWithoutCache() Result {
	l.T.Helper()
	dir := l.Repo.Store.RadarDir(l.Repo.ID)
	if err := os.Rename(dir, dir+"-aside"); err != nil {
		l.T.Fatal(err)
	}
	found := l.runRadar()
	if err := os.RemoveAll(dir); err != nil {
		l.T.Fatal(err)
	}
	if err := os.Rename(dir+"-aside", dir); err != nil {
		l.T.Fatal(err)
	}
	return found
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Radar gives the same result with its cache as without, after random changes to the sandboxes and the integration
// branch.
func TestRadarCacheAgreesWithFreshRun(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 3)
	wt, err := l.Repo.Worktree("radar")
	if err != nil {
		t.Fatal(err)
	}
	l.runRadar()
	random := rand.New(rand.NewPCG(11, 5))
	did := map[string]int{}
	for step := range 20 {
		var what []string
		for range 1 + random.IntN(2) { // up to two changes between two runs of radar
			box := l.sandboxes[random.IntN(len(l.sandboxes))].Tree
			what = append(what, l.changeRandomly(random, step, box, wt)+" in "+filepath.Base(filepath.Dir(box)))
		}
		got, want := l.runRadar(), l.radarWithoutCache()
		if g, w := asJSON(t, got), asJSON(t, want); g != w {
			t.Fatalf("step %d (%q): with the cache:\n%s\nwithout it:\n%s", step, what, g, w)
		}
		for _, s := range got.Sandboxes {
			if s.Error != "" {
				t.Fatalf("step %d (%q): %s", step, what, s.Error)
			}
			word, _, _ := strings.Cut(got.Summary(s), "(")
			did[word]++
		}
	}
	if did["conflicts"] < 3 || did["rivals"] < 3 || did["nothing"] < 3 {
		t.Errorf("%v: too few cases of some kind", did)
	}
}

// changeRandomly makes a random change to a sandbox or to the integration branch, and returns its description.
func (l *radarRepo) changeRandomly(random *rand.Rand, step int, box string, wt core.Worktree) string {
	l.T.Helper()
	files := []string{"a", "b", "dir/c", "dir/d", "dir/new", "moved/c"}
	name := files[random.IntN(len(files))]
	switch random.IntN(9) {
	case 0, 1, 2:
		data, _ := os.ReadFile(filepath.Join(box, name))
		lines := strings.SplitAfter(string(data), "\n")
		lines[random.IntN(len(lines))] = fmt.Sprintf("step %02d\n", step)
		l.writeFileIn(box, name, strings.Join(lines, "")) // in place, so that the mtime of the directory stays
		return "change a line of " + name
	case 3:
		_ = os.Remove(filepath.Join(box, name))
		return "remove " + name
	case 4:
		_ = os.Rename(filepath.Join(box, "dir"), filepath.Join(box, "moved"))
		return "rename dir"
	case 5:
		l.commitIn(box, "work", func(string) {})
		return "commit"
	case 6:
		l.Git("-C", box, "reset", "-q", "--hard", wt.Branch)
		l.Git("-C", box, "clean", "-qfdx", "-e", ".agency")
		return "reset to the integration branch"
	case 7:
		l.commitIn(wt.TreePath, "integrated", func(dir string) { l.writeFileIn(dir, name, fmt.Sprintln("integrated", step)) })
		return "commit " + name + " to the integration branch"
	}
	l.commitIn(box, "work", func(string) {})
	l.Git("-C", box, "merge", "-q", "-s", "ours", "--no-edit", wt.Branch)
	return "merge"
}

// Radar sees a conflict in a file that was rewritten in place with the same size and mtime.
func TestRadarSeesChangesInPlace(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 2)
	l.writeFileIn(l.sandboxes[0].Tree, "a", "one\n")
	l.writeFileIn(l.sandboxes[1].Tree, "b", "two\n")
	if p := l.runRadar().Pairs[0]; !p.Clean {
		t.Errorf("got %+v", p)
	}
	c := filepath.Join(l.sandboxes[0].Tree, "dir", "c")
	fi, err := os.Stat(c)
	if err != nil {
		t.Fatal(err)
	}
	l.writeFileIn(l.sandboxes[0].Tree, "dir/c", strings.Repeat("enil of dir/c\n", 12)) // same length; Chtimes restores the mtime
	if err := os.Chtimes(c, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
	l.writeFileIn(l.sandboxes[1].Tree, "dir/c", strings.Repeat("line of other\n", 12))
	if p := l.runRadar().Pairs[0]; p.Clean || !slices.Equal(p.Paths, []string{"dir/c"}) {
		t.Errorf("got %+v", p)
	}
}

// TestRadarKeepsHashesOfPresentWorktree checks that only the hashes of an integration worktree that exists stay in the cache.
func TestRadarKeepsHashesOfPresentWorktree(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 1)
	wt, err := l.Repo.Worktree("radar")
	if err != nil {
		t.Fatal(err)
	}
	dir := l.Repo.Store.RadarDir(l.Repo.ID)
	for _, id := range []string{wt.ID, "20260101000000-0000", "no-id"} {
		l.writeFileIn(dir, id+".hashed", "hashes\n")
	}
	l.runRadar()
	kept, err := filepath.Glob(filepath.Join(dir, "*.hashed"))
	if err != nil || !slices.Equal(kept, []string{filepath.Join(dir, wt.ID+".hashed")}) {
		t.Errorf("kept %q, %v", kept, err)
	}
}

// Radar ignores invalid cache files and removes those it does not need.
func TestRadarIgnoresInvalidCacheFiles(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 2)
	l.writeFileIn(l.sandboxes[0].Tree, "a", "one\n")
	l.writeFileIn(l.sandboxes[1].Tree, "a", "two\n")
	want := asJSON(t, l.runRadar())
	dir := l.Repo.Store.RadarDir(l.Repo.ID)
	remembered := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			if filepath.Ext(e.Name()) != cachefile.Suffix { // of other packages
				names = append(names, e.Name())
			}
		}
		return names
	}
	// The state of a tree that changed in the same tick of the clock is not remembered.
	for deadline := time.Now().Add(2 * time.Minute); len(remembered()) < 3 && time.Now().Before(deadline); {
		l.runRadar()
	}
	names := remembered()
	if len(names) != 3 {
		t.Errorf("cache files: %q", names)
	}
	for _, text := range []string{"", "{", `{"version":1}`, `{"version":1,"bases":{"x":["y"]},"merges":null}`, "\x00\xff"} {
		for _, name := range append(slices.Clone(names), "stray") {
			l.writeFileIn(dir, name, text)
		}
		if got := asJSON(t, l.runRadar()); got != want {
			t.Errorf("%q: got %s", text, got)
		}
		if now := remembered(); !slices.Equal(now, names) {
			t.Errorf("%q: cache files are %q, and were %q", text, now, names)
		}
	}
	if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.sandboxes[0].ID}); err != nil {
		t.Fatal(err)
	}
	if found := l.runRadar(); len(found.Sandboxes) != 1 || len(found.Pairs) != 0 || len(remembered()) != 2 {
		t.Errorf("got %+v, with cache files %q", found, remembered())
	}
}

// Radar reports uncommitted content that must not land.
func TestRadarRefusesUncommittedContent(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 2)
	if err := os.Symlink("a", filepath.Join(l.sandboxes[0].Tree, ".gitignore")); err != nil {
		t.Fatal(err)
	}
	l.writeFileIn(l.sandboxes[1].Tree, "b", "two\n")
	for range 2 { // the second time from the cache
		for _, got := range l.runRadar().Sandboxes {
			refused := got.State == "refused" && strings.Contains(got.Error, "a symbolic link called .gitignore")
			if refused != (got.ID == l.sandboxes[0].ID) {
				t.Errorf("got %+v", got)
			}
		}
	}
}
