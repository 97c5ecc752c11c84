package gitagency

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/git-agency/git-agency"

// floors is the house: every package, the floor it stands on, and what of the outside world only it
// may use. A package imports from floors strictly below its own.
var floors = []struct {
	floor    int
	dir      string
	reserved []string // imports no other package may have
}{
	{4, "cmd/git-agency", []string{"github.com/urfave/cli/v2"}},

	{3, "gitagency", nil},

	{2, "gitagency/internal/changeset", nil},
	{2, "gitagency/internal/upload", nil},
	{2, "gitagency/internal/confine", nil},
	{2, "gitagency/internal/runner", nil},
	{2, "gitagency/internal/outlet", nil},
	{2, "gitagency/internal/treediff", []string{"github.com/sergi/go-diff/diffmatchpatch"}},

	{1, "gitagency/internal/git", nil},
	{1, "gitagency/internal/store", nil},
	{1, "gitagency/internal/guard", nil},

	{0, "gitagency/internal/proc", []string{"os/exec"}},
	{0, "gitagency/internal/ids", nil},
	{0, "gitagency/internal/undo", nil},
	{0, "gitagency/internal/durable", nil},
	{0, "gitagency/internal/lock", []string{"github.com/nightlyone/lockfile"}},
}

// supervisors are processes of their own, which may end themselves and hear signals; so may what stands
// between a person's terminal and a program.
const supervisors = "gitagency/internal/proc"

// workshop packages are programs for those who work on the house; nobody lives there.
const workshop = "scripts/"

func TestImportsRunStrictlyDownwards(t *testing.T) {
	t.Parallel()
	floorOf, keeper := map[string]int{}, map[string]string{}
	for _, p := range floors {
		floorOf[p.dir] = p.floor
		for _, r := range p.reserved {
			keeper[r] = p.dir
		}
	}
	seen := map[string]bool{}
	for dir, imports := range packages(t) {
		floor, listed := floorOf[dir]
		switch {
		case strings.HasPrefix(dir, workshop):
			continue
		case !listed:
			t.Errorf("%s is on no floor: add it to the table", dir)
			continue
		}
		seen[dir] = true
		for _, imp := range imports {
			if k := keeper[imp]; k != "" && k != dir {
				t.Errorf("%s imports %s, which only %s may", dir, imp, k)
			}
			below, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			if floorOf[below] >= floor {
				t.Errorf("%s (floor %d) imports %s (floor %d)", dir, floor, below, floorOf[below])
			}
			if dir == "cmd/git-agency" && below != "gitagency" {
				t.Errorf("%s imports %s; it may import gitagency alone", dir, below)
			}
		}
	}
	for _, p := range floors {
		if !seen[p.dir] {
			t.Errorf("%s is in the table but not in the house", p.dir)
		}
	}
}

// The root package is the nouns, the verbs and the transactions; output and processes are elsewhere.
func TestTheLibraryNeitherForksNorPrints(t *testing.T) {
	t.Parallel()
	for dir, imports := range packages(t) {
		if !strings.HasPrefix(dir, "gitagency") {
			continue
		}
		for _, banned := range []string{"log", "flag", "os/signal"} {
			if slices.Contains(imports, banned) && (banned != "os/signal" || dir != supervisors) {
				t.Errorf("%s imports %s", dir, banned)
			}
		}
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, banned := range []string{"fmt.Print", "os.Stdout", "os.Stderr", "os.Exit", "os.Getenv", "os.LookupEnv"} {
			if strings.Contains(string(data), banned) && (banned != "os.Exit" || !strings.HasPrefix("gitagency/"+name, supervisors+"/supervisor")) {
				t.Errorf("%s uses %s", name, banned)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheTopLevelHasOnlyTheNamesThatWereChosen(t *testing.T) {
	t.Parallel()
	chosen := []string{"cmd", "gitagency", "scripts", "testdata", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE"}
	built := []string{"bin", "coverage.out"} // ignored by git
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(chosen, e.Name()) && !slices.Contains(built, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}

// packages maps every package directory to what its non-test files import.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := path.Dir(strings.TrimPrefix(filepath.ToSlash(name), "../"))
		found[dir] = append(found[dir], "")
		for _, imp := range file.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			found[dir] = append(found[dir], p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
