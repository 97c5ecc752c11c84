package gitagency

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	modulePath = "github.com/git-agency/git-agency"
	urfave     = "github.com/urfave/cli/v2"
)

// floors lists every package from the bottom up, with the packages of this module that it may import. A package imports
// only what its row names, and rows name only packages above them in the table, so imports run strictly downwards.
// Names are relative to gitagency/internal, unless they are "gitagency", "quote", "reason" or begin with "cmd/".
var floors = []struct {
	dir      string
	imports  string
	reserved string // an import from outside the module that only rows with it may have
}{
	// 0: without knowledge of git or agents
	{dir: "beneath"},
	{dir: "durable"},
	{dir: "ids"},
	{dir: "undo"},
	{dir: "lock", reserved: "github.com/nightlyone/lockfile"},
	{dir: "procfs"},
	{dir: "terminal", imports: "procfs"},
	{dir: "proc", imports: "procfs terminal", reserved: "os/exec"},
	{dir: "landlock"},
	{dir: "seccomp"},
	{dir: "readlimit", imports: "proc landlock seccomp"},

	// 1: git and the records on disk
	{dir: "git/object"},
	{dir: "git/config"},
	{dir: "git/ignore"},
	{dir: "git/index", imports: "durable proc git/object"},
	{dir: "git/overlay", imports: "beneath durable"},
	{dir: "git", imports: "durable lock proc readlimit git/object git/config git/index git/overlay"},
	{dir: "git/worktree", imports: "durable git git/object git/overlay"},
	{dir: "git/fsck", imports: "readlimit git git/object git/index"},
	{dir: "git/repair", imports: "durable proc git git/worktree git/object"},
	{dir: "git/transport", imports: "durable lock proc readlimit git/object git/config git/index git git/fsck git/repair"},
	{dir: "git/status", imports: "beneath durable proc readlimit git git/object git/config git/ignore git/index git/fsck"},
	{dir: "git/checkout", imports: "beneath durable proc git git/config git/worktree git/object git/index git/status"},
	{dir: "git/clone", imports: "durable git git/config git/object"},
	{dir: "git/layer", imports: "durable lock git git/config git/worktree git/object git/index git/fsck git/status git/checkout"},
	{dir: "git/snapshot", imports: "durable proc git git/worktree git/object git/index git/overlay git/fsck git/status"},
	{dir: "git/submodule", imports: "beneath durable git git/object git/config git/fsck git/index git/overlay git/status git/snapshot git/transport"},
	{dir: "git/merge", imports: "durable proc readlimit git git/object git/config git/index git/fsck git/repair git/status git/snapshot git/submodule"},
	{dir: "git/update", imports: "durable proc git git/worktree git/object git/config git/index git/fsck git/repair git/status git/merge"},
	{dir: "quote"},
	{dir: "cachefile"},
	{dir: "store", imports: "cachefile durable ids quote"},
	{dir: "guard"},

	// 2: mechanisms without knowledge of each other
	{dir: "archive", imports: "durable guard"},
	{dir: "changeset", imports: "durable undo git/object git/index guard git git/overlay git/worktree git/checkout git/clone git/layer git/repair git/snapshot"},
	{dir: "copies"},
	{dir: "provision", imports: "beneath durable git git/ignore git/overlay git/status guard quote"},
	{dir: "toolconfig", imports: "git/config"},
	{dir: "rootfs"},
	{dir: "images", imports: "durable lock proc quote"},
	{dir: "walls", imports: "landlock guard"},
	{dir: "confine", imports: "durable proc landlock seccomp guard rootfs walls"},
	{dir: "mailbox", imports: "quote guard"},
	{dir: "outlet"},
	{dir: "plaintext", imports: "quote"},
	{dir: "platform/engine", imports: "images proc quote"},
	{dir: "runner", imports: "proc quote"},
	{dir: "treediff", imports: "quote", reserved: "github.com/sergi/go-diff/diffmatchpatch"},
	{dir: "upload", imports: "undo lock guard"},

	// 3: the domain
	{
		dir: "fault",
		imports: "lock terminal proc readlimit git/object git/config git git/fsck git/repair git/status git/snapshot git/submodule git/merge git/update " +
			"store guard archive confine quote",
	},
	{dir: "settings", imports: "beneath durable proc readlimit git/config git store guard copies toolconfig rootfs images walls confine treediff runner platform/engine quote fault"},
	{dir: "platform/hub", imports: "proc git/object git/index git git/repair git/transport store quote fault settings"},
	{
		dir: "core",
		imports: "beneath durable ids undo lock procfs proc git/object git/config git/overlay git git/worktree git/checkout git/status git/snapshot git/submodule " +
			"git/update store guard mailbox archive changeset fault settings",
	},
	{
		dir:     "handoff",
		imports: "beneath durable lock proc readlimit git/config git/object git/index git/overlay git git/transport git/submodule guard changeset walls quote fault core",
	},
	{dir: "snapshots", imports: "durable ids undo git git/worktree git/status git/snapshot git/merge guard fault core"},
	{
		dir: "sandbox",
		imports: "beneath cachefile durable undo lock procfs proc git/object git/overlay git git/clone git/worktree git/repair git/status git/snapshot git/submodule git/merge store guard " +
			"changeset copies rootfs images walls confine mailbox outlet quote upload fault settings core handoff snapshots",
	},
	{
		dir: "creation",
		imports: "durable ids proc git/object git/overlay git git/worktree git/clone git/status git/snapshot git/submodule store guard changeset provision confine runner quote " +
			"fault settings core handoff snapshots sandbox",
	},
	{dir: "diff", imports: "proc git git/status git/merge treediff fault core snapshots sandbox"},
	{
		dir:     "pathset",
		imports: "beneath durable ids lock git git/object store guard changeset provision walls confine treediff fault settings core snapshots sandbox creation diff",
	},
	{dir: "discard", imports: "durable ids undo lock git git/worktree git/repair store guard changeset upload fault core sandbox creation pathset"},
	{dir: "pathland", imports: "beneath durable undo lock proc git git/object git/merge store fault core pathset discard"},
	{dir: "allow", imports: "proc store guard walls confine outlet fault settings core sandbox"},
	{
		dir:     "preflight",
		imports: "proc git/object git/config git/index git store guard provision rootfs images walls confine outlet runner platform/engine platform/hub quote fault settings core sandbox creation",
	},
	{
		dir: "landing",
		imports: "lock proc git/object git git/worktree git/clone git/transport git/status git/snapshot git/submodule git/merge git/update store " +
			"quote fault settings core snapshots sandbox creation discard",
	},
	{dir: "directory", imports: "git store guard fault settings core snapshots diff"},
	{dir: "listing", imports: "cachefile durable proc git git/status git/merge guard settings core"},
	{dir: "radar", imports: "cachefile proc git/object git git/status git/merge fault core handoff sandbox"},
	{
		dir: "doctor",
		imports: "durable ids lock procfs proc readlimit git/config git git/worktree git/layer git/repair git/status git/snapshot git/update store guard changeset " +
			"images confine runner quote upload fault settings core handoff sandbox creation discard landing pathland",
	},

	// 4: the public library
	{dir: "requests", imports: "guard mailbox fault core snapshots sandbox diff pathset landing listing doctor"},
	{dir: "runs", imports: "durable procfs terminal proc git store mailbox plaintext walls runner fault settings core snapshots sandbox creation preflight landing radar requests quote"},
	{dir: "resolve", imports: "durable git git/object git/merge store fault settings core sandbox landing radar runs quote"},
	{
		dir:     "platform/node",
		imports: "durable lock procfs proc git/object git git/transport store fault settings core snapshots sandbox creation discard preflight runs quote platform/hub",
	},
	{
		dir: "platform",
		imports: "durable ids lock procfs readlimit git/object git git/transport store runner fault settings core handoff snapshots sandbox runs quote " +
			"platform/engine platform/hub",
	},
	{dir: "reason"},
	{dir: "gitagency", imports: "reason ids terminal proc store guard archive confine mailbox runner treediff fault settings core snapshots sandbox creation diff discard pathset pathland allow preflight landing directory listing radar doctor requests runs resolve platform/engine platform/node platform"},

	// 5: the command
	{dir: "cmd/git-agency/internal/argv", reserved: urfave},
	{dir: "cmd/git-agency/internal/background"},
	{dir: "cmd/git-agency/internal/interrupt"},
	{dir: "cmd/git-agency/internal/manual"},
	{dir: "cmd/git-agency/internal/mcp"},
	{dir: "cmd/git-agency/internal/setup"},
	{dir: "cmd/git-agency/internal/term", imports: "quote", reserved: "os/exec"},
	{dir: "cmd/git-agency/internal/hints", imports: "gitagency reason quote cmd/git-agency/internal/argv"},
	{dir: "cmd/git-agency/internal/sources", imports: "gitagency"},
	{dir: "cmd/git-agency/internal/format", imports: "gitagency quote cmd/git-agency/internal/argv cmd/git-agency/internal/term"},
	{
		dir:      "cmd/git-agency/internal/complete",
		imports:  "gitagency cmd/git-agency/internal/argv cmd/git-agency/internal/term cmd/git-agency/internal/format",
		reserved: urfave,
	},
	{
		dir: "cmd/git-agency/internal/program",
		imports: "gitagency reason quote cmd/git-agency/internal/argv cmd/git-agency/internal/background cmd/git-agency/internal/term " +
			"cmd/git-agency/internal/hints cmd/git-agency/internal/format cmd/git-agency/internal/complete",
		reserved: urfave,
	},
	{
		dir:      "cmd/git-agency/internal/startflags",
		imports:  "gitagency cmd/git-agency/internal/format cmd/git-agency/internal/program cmd/git-agency/internal/term",
		reserved: urfave,
	},
	{
		dir: "cmd/git-agency/internal/runs",
		imports: "gitagency quote cmd/git-agency/internal/argv cmd/git-agency/internal/background cmd/git-agency/internal/hints " +
			"cmd/git-agency/internal/interrupt cmd/git-agency/internal/term cmd/git-agency/internal/format cmd/git-agency/internal/program " +
			"cmd/git-agency/internal/startflags",
		reserved: urfave,
	},
	{
		dir: "cmd/git-agency/internal/landing",
		imports: "gitagency reason quote cmd/git-agency/internal/argv cmd/git-agency/internal/hints cmd/git-agency/internal/interrupt " +
			"cmd/git-agency/internal/term cmd/git-agency/internal/format cmd/git-agency/internal/program",
		reserved: urfave,
	},
	{
		dir: "cmd/git-agency/internal/worktrees",
		imports: "gitagency reason cmd/git-agency/internal/hints cmd/git-agency/internal/term cmd/git-agency/internal/format " +
			"cmd/git-agency/internal/program",
		reserved: urfave,
	},
	{
		dir:      "cmd/git-agency/internal/inside",
		imports:  "gitagency cmd/git-agency/internal/argv cmd/git-agency/internal/hints cmd/git-agency/internal/interrupt cmd/git-agency/internal/mcp cmd/git-agency/internal/program",
		reserved: urfave,
	},
	{
		dir: "cmd/git-agency",
		imports: "gitagency reason quote cmd/git-agency/internal/argv " +
			"cmd/git-agency/internal/hints cmd/git-agency/internal/interrupt cmd/git-agency/internal/manual cmd/git-agency/internal/inside " +
			"cmd/git-agency/internal/setup cmd/git-agency/internal/term cmd/git-agency/internal/sources " +
			"cmd/git-agency/internal/format cmd/git-agency/internal/complete cmd/git-agency/internal/program cmd/git-agency/internal/startflags cmd/git-agency/internal/runs " +
			"cmd/git-agency/internal/landing cmd/git-agency/internal/worktrees",
		reserved: urfave,
	},
}

// testOnlyPackages maps the packages that only tests import to the packages they may import.
var testOnlyPackages = map[string]string{"git/gittest": "", "git/repotest": "git git/object git/worktree git/gittest", "coretest": "core", "sandboxtest": "core coretest sandbox creation settings store"}

// bounds limit the production code of one package. A package that outgrows them should be split.
type bounds struct{ lines, files int }

var maxPackage = bounds{lines: 5_000, files: 45}

// maxCommandFiles is the number of files that cmd/git-agency may have: one file per command is a rule there, so that a
// list of its files is a list of the commands. Its lines are bounded as those of every package.
const maxCommandFiles = 90

// supervisorDir is the package that may call os.Exit and receive signals: its processes supervise programs.
const supervisorDir = "gitagency/internal/proc"

// signalDirs are the packages that may receive signals. That of terminals follows the size and the job control of the
// user's terminal.
var signalDirs = []string{supervisorDir, "gitagency/internal/terminal"}

// toolDirs hold programs for developers of this project, which the table does not restrict.
const toolDirs = "scripts/"

// packageDir returns the directory of a package that the table names.
func packageDir(name string) string {
	switch {
	case name == "gitagency" || strings.HasPrefix(name, "cmd/"):
		return name
	case name == "quote" || name == "reason": // public: callers print paths and commands too, and match reasons
		return "gitagency/" + name
	}
	return "gitagency/internal/" + name
}

func TestPackagesImportOnlyAllowedPackages(t *testing.T) {
	t.Parallel()
	allowed, owners := map[string]map[string]bool{}, map[string][]string{}
	add := func(name, imports string) {
		dir := packageDir(name)
		allowed[dir] = map[string]bool{}
		for imp := range strings.FieldsSeq(imports) {
			if allowed[packageDir(imp)] == nil {
				t.Errorf("the row of %s names %s, which is not above it in the table", name, imp)
			}
			allowed[dir][packageDir(imp)] = true
		}
	}
	for _, p := range floors {
		add(p.dir, p.imports)
		if p.reserved != "" {
			owners[p.reserved] = append(owners[p.reserved], packageDir(p.dir))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(testOnlyPackages)) {
		add(name, testOnlyPackages[name])
	}
	seen := map[string]bool{}
	for dir, p := range readPackages(t) {
		if strings.HasPrefix(dir, toolDirs) {
			continue
		}
		if allowed[dir] == nil {
			t.Errorf("%s is not in the table", dir)
			continue
		}
		seen[dir] = true
		_, forTests := testOnlyPackages[strings.TrimPrefix(dir, "gitagency/internal/")]
		for _, imp := range p.imports {
			if o := owners[imp]; o != nil && !slices.Contains(o, dir) && !forTests {
				t.Errorf("%s imports %s, which only %q may", dir, imp, o)
			}
			if below, ours := strings.CutPrefix(imp, modulePath+"/"); ours && !allowed[dir][below] {
				t.Errorf("%s imports %s, which its row does not name", dir, below)
			}
		}
		for imp := range allowed[dir] {
			if !slices.Contains(p.imports, modulePath+"/"+imp) {
				t.Errorf("the row of %s names %s, which it does not import", dir, imp)
			}
		}
	}
	for dir := range allowed {
		if !seen[dir] {
			t.Errorf("%s is in the table but does not exist", dir)
		}
	}
}

func TestPackagesStayWithinBounds(t *testing.T) {
	t.Parallel()
	found := readPackages(t)
	for _, row := range floors {
		most := maxPackage
		if row.dir == "cmd/git-agency" {
			most.files = maxCommandFiles
		}
		if p := found[packageDir(row.dir)]; p.lines > most.lines || p.files > most.files {
			t.Errorf("%s has %d lines in %d files, more than %d in %d", row.dir, p.lines, p.files, most.lines, most.files)
		}
	}
}

// Packages of the library do not print, log, exit or read the process environment; only the command does.
func TestLibraryDoesNotPrintOrExit(t *testing.T) {
	t.Parallel()
	for dir, p := range readPackages(t) {
		if !strings.HasPrefix(dir, "gitagency") {
			continue
		}
		for _, banned := range []string{"log", "flag", "os/signal"} {
			if slices.Contains(p.imports, banned) && (banned != "os/signal" || !slices.Contains(signalDirs, dir)) {
				t.Errorf("%s imports %s", dir, banned)
			}
		}
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		if _, forTests := testOnlyPackages[strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), "internal/")]; forTests {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, banned := range []string{"fmt.Print", "os.Stdout", "os.Stderr", "os.Exit", "os.Getenv", "os.LookupEnv"} {
			if strings.Contains(string(data), banned) && (banned != "os.Exit" || !strings.HasPrefix("gitagency/"+name, supervisorDir+"/supervisor")) {
				t.Errorf("%s uses %s", name, banned)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTopLevelEntries(t *testing.T) {
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

// oversized lists the files that may hold more than maxFileLines or a function of more than maxFunctionLines, and why.
var oversized = map[string]string{
	"gitagency/internal/sandbox/transition.go": "runTransition is a transaction whose numbered steps read from top to bottom",
}

const (
	maxFileLines     = 400
	maxFunctionLines = 80
)

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	t.Parallel()
	large := map[string]bool{}
	walkProduction(t, func(name string, data []byte) error {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, data, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if lines := bytes.Count(data, []byte("\n")); lines > maxFileLines {
			large[name] = true
			if oversized[name] == "" {
				t.Errorf("%s has %d lines", name, lines)
			}
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			if lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; lines > maxFunctionLines {
				large[name] = true
				if oversized[name] == "" {
					t.Errorf("%s: %s has %d lines", name, f.Name.Name, lines)
				}
			}
		}
		return nil
	})
	for name := range oversized {
		if !large[name] {
			t.Errorf("%s is listed as oversized and is not", name)
		}
	}
}

// slowInitializers are functions that no package variable may call: every process of git-agency would, and a command
// behind walls starts two. A sync.OnceValue calls them when the value is needed.
var slowInitializers = []string{"regexp.MustCompile", "netip.MustParsePrefix", "crc32.MakeTable"}

func TestPackageVariablesAreInitializedFast(t *testing.T) {
	t.Parallel()
	walkProduction(t, func(name string, data []byte) error {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, data, parser.SkipObjectResolution)
		if err != nil || strings.HasPrefix(name, toolDirs) {
			return err
		}
		for _, d := range file.Decls {
			if _, is := d.(*ast.GenDecl); !is {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if call, is := n.(*ast.CallExpr); is && slices.Contains(slowInitializers, types.ExprString(call.Fun)) {
					t.Errorf("%s: every start of git-agency calls %s", files.Position(n.Pos()), types.ExprString(call.Fun))
				}
				_, isFunction := n.(*ast.FuncLit)
				return !isFunction
			})
		}
		return nil
	})
}

// packageCode describes the production code of one package.
type packageCode struct {
	imports []string
	bounds
}

// readPackages reads every package directory of the repository, without tests.
func readPackages(t *testing.T) map[string]packageCode {
	t.Helper()
	found := map[string]packageCode{}
	walkProduction(t, func(name string, data []byte) error {
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ImportsOnly)
		if err != nil {
			return err
		}
		p := found[path.Dir(name)]
		p.files++
		p.lines += bytes.Count(data, []byte("\n"))
		for _, imp := range file.Imports {
			text, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			p.imports = append(p.imports, text)
		}
		found[path.Dir(name)] = p
		return nil
	})
	return found
}

// walkProduction calls visit for every Go file of the repository that is not a test, with its path from the top level.
func walkProduction(t *testing.T, visit func(name string, data []byte) error) {
	t.Helper()
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
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return visit(strings.TrimPrefix(filepath.ToSlash(name), "../"), data)
	})
	if err != nil {
		t.Fatal(err)
	}
}
