package gitagency

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// radarLab is a repository with a few sandboxes.
type radarLab struct {
	*lab
	boxes []*Sandbox
}

func newRadarLab(t *testing.T, sandboxes int) *radarLab {
	t.Helper()
	l := &radarLab{lab: newLab(t, Options{})}
	l.commitTo(l.repo.callerDir, "first", func(dir string) {
		for _, name := range []string{"a", "b", "dir/c", "dir/d", "dir/e"} {
			l.put(dir, name, strings.Repeat(fmt.Sprintln("line of", name), 12))
		}
	})
	if _, err := l.repo.CreateWorktree(t.Context(), CreateWorktreeRequest{Name: "radar"}); err != nil {
		t.Fatal(err)
	}
	for range sandboxes {
		inv, err := l.repo.Start(t.Context(), StartRequest{Worktree: "radar", Primitives: Primitives{Isolation: isolationNone}})
		if err != nil {
			t.Fatal(err)
		}
		l.boxes = append(l.boxes, l.repo.sandboxOf(inv.ID))
	}
	return l
}

func (l *radarLab) put(dir, name, content string) {
	l.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// commitTo changes something in a worktree, and commits it.
func (l *radarLab) commitTo(dir, message string, change func(dir string)) {
	l.t.Helper()
	change(dir)
	l.git("-C", dir, "add", "-A")
	l.git("-C", dir, "commit", "-q", "--allow-empty", "-m", message)
}

func (l *radarLab) radar() RadarResult {
	l.t.Helper()
	found, err := l.repo.Radar(l.t.Context(), "radar")
	if err != nil {
		l.t.Fatal(err)
	}
	return found
}

// afresh is radar for who remembers nothing. What was remembered is there again afterwards.
func (l *radarLab) afresh() RadarResult {
	l.t.Helper()
	dir := l.repo.store.RadarDir(l.repo.ID)
	if err := os.Rename(dir, dir+"-aside"); err != nil {
		l.t.Fatal(err)
	}
	found := l.radar()
	if err := os.RemoveAll(dir); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(dir+"-aside", dir); err != nil {
		l.t.Fatal(err)
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

// Whatever happens in the sandboxes and on the integration branch: who remembers what was found out says the same as who
// finds out everything anew.
func TestRadarRemembersNothingThatIsNotSoAnyMore(t *testing.T) {
	t.Parallel()
	l := newRadarLab(t, 3)
	wt, err := l.repo.Worktree("radar")
	if err != nil {
		t.Fatal(err)
	}
	l.radar()
	random := rand.New(rand.NewPCG(11, 5))
	did := map[string]int{}
	for step := range 20 {
		var what []string
		for range 1 + random.IntN(2) { // two may happen without anybody looking in between
			box := l.boxes[random.IntN(len(l.boxes))].tree
			what = append(what, l.something(random, step, box, wt)+" in "+filepath.Base(filepath.Dir(box)))
		}
		got, want := l.radar(), l.afresh()
		if g, w := asJSON(t, got), asJSON(t, want); g != w {
			t.Fatalf("step %d (%q): remembered:\n%s\nfound out anew:\n%s", step, what, g, w)
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
		t.Errorf("%v: this proves too little", did)
	}
}

// something happens to a sandbox, or to the integration branch.
func (l *radarLab) something(random *rand.Rand, step int, box string, wt Worktree) string {
	l.t.Helper()
	files := []string{"a", "b", "dir/c", "dir/d", "dir/new", "moved/c"}
	name := files[random.IntN(len(files))]
	switch random.IntN(9) {
	case 0, 1, 2:
		data, _ := os.ReadFile(filepath.Join(box, name))
		lines := strings.SplitAfter(string(data), "\n")
		lines[random.IntN(len(lines))] = fmt.Sprintf("step %02d\n", step)
		l.put(box, name, strings.Join(lines, "")) // in place, so that no directory tells of it
		return "a line of " + name
	case 3:
		_ = os.Remove(filepath.Join(box, name))
		return "no " + name
	case 4:
		_ = os.Rename(filepath.Join(box, "dir"), filepath.Join(box, "moved"))
		return "dir is moved"
	case 5:
		l.commitTo(box, "work", func(string) {})
		return "a commit"
	case 6:
		l.git("-C", box, "reset", "-q", "--hard", wt.Branch)
		l.git("-C", box, "clean", "-qfdx", "-e", ".agency")
		return "begun anew"
	case 7:
		l.commitTo(wt.TreePath, "integrated", func(dir string) { l.put(dir, name, fmt.Sprintln("integrated", step)) })
		return "integrated " + name
	}
	l.commitTo(box, "work", func(string) {})
	l.git("-C", box, "merge", "-q", "-s", "ours", "--no-edit", wt.Branch)
	return "a merge"
}

// Two who write to a file that nobody had touched are seen, although no directory tells of it.
func TestRadarSeesWhatNoDirectoryTellsOf(t *testing.T) {
	t.Parallel()
	l := newRadarLab(t, 2)
	l.put(l.boxes[0].tree, "a", "one\n")
	l.put(l.boxes[1].tree, "b", "two\n")
	if p := l.radar().Pairs[0]; !p.Clean {
		t.Errorf("got %+v", p)
	}
	c := filepath.Join(l.boxes[0].tree, "dir", "c")
	fi, err := os.Stat(c)
	if err != nil {
		t.Fatal(err)
	}
	l.put(l.boxes[0].tree, "dir/c", strings.Repeat("enil of dir/c\n", 12)) // of the same length, and as old
	if err := os.Chtimes(c, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
	l.put(l.boxes[1].tree, "dir/c", strings.Repeat("line of other\n", 12))
	if p := l.radar().Pairs[0]; p.Clean || !slices.Equal(p.Paths, []string{"dir/c"}) {
		t.Errorf("got %+v", p)
	}
}

// What lies where radar remembers things may be anything, and goes when nobody needs it.
func TestRadarTrustsNothingThatItRemembers(t *testing.T) {
	t.Parallel()
	l := newRadarLab(t, 2)
	l.put(l.boxes[0].tree, "a", "one\n")
	l.put(l.boxes[1].tree, "a", "two\n")
	want := asJSON(t, l.radar())
	dir := l.repo.store.RadarDir(l.repo.ID)
	remembered := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	names := remembered()
	if len(names) != 3 {
		t.Errorf("there are %q", names)
	}
	for _, text := range []string{"", "{", `{"version":1}`, `{"version":1,"bases":{"x":["y"]},"merges":null}`, "\x00\xff"} {
		for _, name := range append(slices.Clone(names), "stray") {
			l.put(dir, name, text)
		}
		if got := asJSON(t, l.radar()); got != want {
			t.Errorf("%q: got %s", text, got)
		}
		if now := remembered(); !slices.Equal(now, names) {
			t.Errorf("%q: there are %q, and were %q", text, now, names)
		}
	}
	if _, err := l.repo.Discard(t.Context(), l.boxes[0].ID); err != nil {
		t.Fatal(err)
	}
	if found := l.radar(); len(found.Sandboxes) != 1 || len(found.Pairs) != 0 || len(remembered()) != 2 {
		t.Errorf("got %+v, and %q are remembered", found, remembered())
	}
}

// What must not land is told of whether or not it is in a commit.
func TestRadarRefusesWhatMustNotLandBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	l := newRadarLab(t, 2)
	if err := os.Symlink("a", filepath.Join(l.boxes[0].tree, ".gitignore")); err != nil {
		t.Fatal(err)
	}
	l.put(l.boxes[1].tree, "b", "two\n")
	for range 2 { // also when it is remembered
		for _, got := range l.radar().Sandboxes {
			refused := got.State == "refused" && strings.Contains(got.Error, "a link in the place of .gitignore")
			if refused != (got.ID == l.boxes[0].ID) {
				t.Errorf("got %+v", got)
			}
		}
	}
}
