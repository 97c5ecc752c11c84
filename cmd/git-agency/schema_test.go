package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// jsonOutputs says of every command with --json which file in schema/ describes what it prints, and how
// to have it print all that there is to describe. A new command with --json gets a line here. They are
// run in this order, in one repository: those that take things away come last.
var jsonOutputs = []jsonOutput{
	{"git agency ls", "invocation.json", true, every([]string{}, []string{"--all"})},
	{"git agency show", "invocation.json", false, func(c *jsonCast) [][]string { return [][]string{{c.live}, {c.discarded}, {c.broken}, {c.empty}} }},
	{"git agency path", "path.json", false, func(c *jsonCast) [][]string { return [][]string{{c.live}, {c.broken}} }},
	{"git agency worktree ls", "worktree.json", true, every([]string{}, []string{"--all"})},
	{"git agency worktree show", "worktree.json", false, every([]string{"payments"})},
	{"git agency worktree path", "path.json", false, every([]string{"payments"})},
	{"git agency doctor", "diagnosis.json", false, func(c *jsonCast) [][]string {
		c.write(filepath.Join(c.repo, ".git", "index.lock"), "")
		return [][]string{{}, {"--fix", "index.lock"}}
	}},
	{"git agency setup", "installed.json", false, func(c *jsonCast) [][]string {
		prefix := []string{"--prefix", filepath.Join(c.dir, "home", "there")}
		return [][]string{append(prefix, "-n"), prefix, append(prefix, "--undo")}
	}},
	{"git agency config", "setting.json", true, every([]string{})},
	{"git agency version", "version.json", false, every([]string{})},
	{"git agency start", "invocation.json", false, func(c *jsonCast) [][]string {
		c.agency("snapshot", "create", c.stem)
		return [][]string{
			{"payments", "--name", "日本 é", "--runner", "claude", "--mode", "headed"},
			{"payments", "--memory", "1g", "--processes", "50", "--file-size", "1m", "--timeout", "1h", "--nice", "3", "--best-effort-limits"},
			{"--from-snapshot", c.stem + "/1"},
		}
	}},
	{"git agency worktree create", "worktree.json", false, every([]string{"another"}, []string{"third", "--from", "HEAD^0"})},
	{"git agency worktree adopt", "worktree.json", false, every([]string{"--name", "main-one"})},
	{"git agency exec", "executed.json", false, func(c *jsonCast) [][]string {
		return [][]string{
			{c.live, "--", "sh", "-c", `printf "out\377"; echo err >&2; exit 3`},
			{c.live, "--timeout", "1ms", "--grace", "0", "--", "sleep", "1000"},
			{c.live, "--", "no-such-program"},
			{c.live, "--memory", "1g", "--processes", "50", "--file-size", "1m", "--nice", "3", "--best-effort-limits", "--", "true"},
		}
	}},
	{"git agency denials", "denial.json", true, func(c *jsonCast) [][]string {
		c.write(filepath.Join(c.repoData(), "invocations", c.live, "events.jsonl"), `
{"time":"2026-01-28T12:00:00Z","event":"denied","kind":"connect","target":"x.example:443","reason":"not among the outputs","allow":"x.example","count":3}
{"time":"2026-01-28T12:00:00Z","event":"denied","kind":"socks","target":"(other targets)","reason":"too many","allow":""}
`)
		return [][]string{{c.live}}
	}},
	{"git agency snapshot create", "snapshot.json", false, func(c *jsonCast) [][]string { return [][]string{{c.live, "-m", "first"}, {c.live}} }},
	{"git agency snapshot ls", "taken-snapshot.json", true, func(c *jsonCast) [][]string { return [][]string{{c.live}} }},
	{"git agency snapshot verify", "verified-snapshot.json", false, func(c *jsonCast) [][]string {
		added := filepath.Join(c.agency("path", c.live), "lost")
		c.write(added, "lost\n")
		c.agency("snapshot", "create", c.live)
		lost := c.git("rev-parse", "refs/agency/snapshots/"+c.live+"/2:lost")
		if err := errors.Join(os.Remove(added), os.Remove(filepath.Join(c.repo, ".git", "objects", lost[:2], lost[2:]))); err != nil {
			c.t.Fatal(err)
		}
		return [][]string{{c.live + "/1"}, {c.live + "/2"}}
	}},
	{"git agency snapshot checkout", "checked-out.json", false, func(c *jsonCast) [][]string {
		return [][]string{{c.live + "/1", filepath.Join(c.dir, "copy")}}
	}},
	{"git agency diff", "diff.json", false, func(c *jsonCast) [][]string {
		tree := c.agency("path", c.live)
		c.write(filepath.Join(tree, "not \xff utf"), "line \xff\xfe one\nline two")
		c.write(filepath.Join(tree, "binary"), "\x00")
		c.write(filepath.Join(tree, "readme"), "hello, world\n")
		c.must("mv", filepath.Join(tree, "sub", "one"), filepath.Join(tree, "moved"))
		c.must("ln", "-sf", "nowhere", filepath.Join(tree, "run.sh"))
		return [][]string{{c.live}, {c.live, "--to", c.live + "/1"}, {c.discarded, "--to", "integration"}, {c.live, "--", "readme"}}
	}},
	{"git agency radar", "radar.json", false, every([]string{"payments"})}, // what diff was shown, and one that is broken
	{"git agency snapshot rollback", "rolled.json", false, func(c *jsonCast) [][]string {
		c.write(filepath.Join(c.agency("path", c.live), "later"), "x")
		return [][]string{{c.live, c.live + "/1"}, {c.live, c.live + "/3"}, {c.live, c.live + "/3"}}
	}},
	{"git agency submit", "submitted.json", true, func(c *jsonCast) [][]string {
		c.must("sh", "-c", `cd "$0" && echo new >new && git add new && git commit -q -m work`, c.agency("path", c.stem))
		return [][]string{{c.stem, "-m", "done"}}
	}},
	{"git agency reject", "rejection.json", false, func(c *jsonCast) [][]string { return [][]string{{c.stem, "-m", "why"}} }},
	{"git agency sync", "synced.json", false, func(c *jsonCast) [][]string {
		c.git("-C", c.agency("worktree", "path", "payments"), "commit", "-q", "--allow-empty", "-m", "meanwhile")
		return [][]string{{c.stem}, {c.stem}}
	}},
	{"git agency land", "landed.json", true, func(c *jsonCast) [][]string {
		lands, clashes := c.worked("fine\n"), c.worked("not so fine\n")
		return [][]string{{lands, "-n"}, {lands}, {lands}, {clashes}, {c.live, "--commit-all", "-m", "all"}}
	}},
	{"git agency unland", "unlanded.json", false, func(c *jsonCast) [][]string {
		lands, later := c.worked("better\n"), ""
		c.agency("land", lands)
		later = c.worked("later\n")
		c.agency("land", later)
		return [][]string{{lands}, {later}, {later}, {c.stem}}
	}},
	{"git agency discard", "discarded.json", true, func(c *jsonCast) [][]string { return [][]string{{c.live, c.discarded, c.broken, c.empty}} }},
	{"git agency worktree rm", "removed-worktree.json", false, every([]string{"payments", "--force"}, []string{"dirty", "--force"})},
	{"git agency prune", "pruned.json", true, every([]string{"--expire", "now", "-n"}, []string{"--expire", "now"}, []string{})},
}

type jsonOutput struct {
	command string
	schema  string
	many    bool                         // an array of them
	lines   func(c *jsonCast) [][]string // what to run, one after another
}

func every(lines ...[]string) func(*jsonCast) [][]string {
	return func(*jsonCast) [][]string { return lines }
}

// jsonCast is a repository in which there is one of every kind.
type jsonCast struct {
	*lab
	live, discarded, broken, empty, stem string // invocations; from the last one others start
}

// worked is an invocation with a commit that says something else in a file that all of them have.
func (c *jsonCast) worked(text string) string {
	id := c.agency("start", "payments", "--isolation", "none")
	tree := c.agency("path", id)
	c.write(filepath.Join(tree, "readme"), text)
	c.git("-C", tree, "commit", "-qam", text)
	return id
}

func newJSONCast(t *testing.T) *jsonCast {
	t.Helper()
	c := &jsonCast{lab: newLab(t), empty: "20260128120000-0000"}
	c.agency("worktree", "create", "payments")
	c.write(filepath.Join(c.agency("worktree", "create", "dirty"), "untracked"), "x")
	c.live = c.agency("start", "payments", "--name", `"live" & kicking`)
	c.discarded, c.broken, c.stem = c.agency("start", "payments"), c.agency("start", "payments"), c.agency("start", "payments")
	c.write(filepath.Join(c.agency("path", c.discarded), "untracked"), "x")
	c.agency("discard", c.discarded)
	tree := c.agency("path", c.broken)
	if err := os.RemoveAll(tree); err != nil {
		t.Fatal(err)
	}
	records := filepath.Dir(filepath.Dir(filepath.Dir(tree)))
	for _, kind := range []string{"invocations", "worktrees"} {
		if err := os.MkdirAll(filepath.Join(records, kind, c.empty), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.git("config", "agency.autoDetach", "false") // else somebody goes on tidying up when the test is over
	c.git("config", "agency.lockTimeout", "sometime")
	c.git("config", "--add", "agency.lockTimeout", "40s")
	c.git("config", "agency.mine.command", "evil")
	c.git("config", "agency.nonsense", "x")
	return c
}

func TestEveryCommandWithJSONHasASchema(t *testing.T) {
	t.Parallel()
	var with, described []string
	for name, command := range leaves("git agency", newTool(io.Discard, io.Discard, gitagency.Options{}).commands()) {
		if slices.ContainsFunc(command.Flags, printsJSON) {
			with = append(with, name)
		}
	}
	for _, output := range jsonOutputs {
		described = append(described, output.command)
	}
	slices.Sort(with)
	slices.Sort(described)
	if !slices.Equal(with, described) {
		t.Errorf("these have --json: %q\nthese have a schema in jsonOutputs: %q", with, described)
	}
}

// printsJSON tells the flag that asks for output from the one of put, which takes the name of an input.
func printsJSON(f cli.Flag) bool {
	_, isSwitch := f.(*cli.BoolFlag)
	return isSwitch && slices.Contains(f.Names(), "json")
}

func TestJSONIsWhatItsSchemaSays(t *testing.T) {
	t.Parallel()
	schemas, c := askSchemas(t), newJSONCast(t)
	for _, output := range jsonOutputs {
		for _, line := range output.lines(c) {
			at := len(line) // behind a -- it would belong to somebody else
			if i := slices.Index(line, "--"); i >= 0 {
				at = i
			}
			argv := slices.Concat(strings.Fields(output.command), line[:at], []string{"--json"}, line[at:])
			out := c.try(nil, argv...)
			var things []json.RawMessage
			many := json.Unmarshal([]byte(out.stdout), &things) == nil
			if !many {
				things = []json.RawMessage{[]byte(out.stdout)}
			}
			if many != output.many || len(things) == 0 {
				t.Errorf("%q does not print what the schema describes:\n%s", argv, out.stdout)
			}
			for _, thing := range things {
				if wrong := schemas.wrong(t, output.schema, string(thing)); wrong != "" {
					t.Errorf("%q ended with %d: %s\n%s%s", argv, out.code, wrong, thing, out.stderr)
				}
			}
		}
	}
}

// described is what these tests need to know of a schema.
type described struct {
	Description          string
	Type                 string
	Properties           map[string]described
	Required             []string
	AdditionalProperties *bool
}

func readSchema(t *testing.T, name string) described {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("schema", name))
	if err != nil {
		t.Fatal(err)
	}
	var d described
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

func TestASchemaNamesItsCommandsDescribesEveryFieldAndAllowsNoOther(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("schema", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		d, named := readSchema(t, filepath.Base(file)), 0
		if filepath.Base(file) == putSchema {
			checkDescribed(t, file, d)
			continue // it describes what a command reads
		}
		for _, output := range jsonOutputs {
			mentioned := strings.Contains(d.Description, "'"+output.command+" --json'")
			if mentioned != (output.schema == filepath.Base(file)) {
				t.Errorf("%s: says of %s the wrong thing: %q", file, output.command, d.Description)
			}
			if mentioned {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s describes what no command prints", file)
		}
		checkDescribed(t, file, d)
	}
}

func checkDescribed(t *testing.T, name string, d described) {
	t.Helper()
	if d.Description == "" {
		t.Errorf("%s is not described", name)
	}
	if d.Type == "object" && (d.AdditionalProperties == nil || *d.AdditionalProperties) {
		t.Errorf("%s allows fields that nobody has described", name)
	}
	for _, field := range d.Required {
		if _, ok := d.Properties[field]; !ok {
			t.Errorf("%s requires %s, which is not described", name, field)
		}
	}
	for field, property := range d.Properties {
		checkDescribed(t, name+": "+field, property)
	}
}

// What the schema says there is, the library has, and --format knows: three lists that stay one.
func TestTheSchemaOfAnInvocationHasTheFieldsOfTheFormat(t *testing.T) {
	t.Parallel()
	var inSchema, inFormat []string
	for field, property := range readSchema(t, "invocation.json").Properties {
		inSchema = append(inSchema, fieldsOf(field, property)...)
	}
	for _, name := range atomNames() {
		if !strings.Contains(name, ":") {
			inFormat = append(inFormat, name)
		}
	}
	slices.Sort(inSchema)
	slices.Sort(inFormat)
	if !slices.Equal(inSchema, inFormat) {
		t.Errorf("the schema has %q\n--format has %q", inSchema, inFormat)
	}
}

func fieldsOf(name string, d described) []string {
	if len(d.Properties) == 0 {
		return []string{name}
	}
	var names []string
	for field, property := range d.Properties {
		names = append(names, fieldsOf(name+"."+field, property)...)
	}
	return names
}
