package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
)

// jsonOutputs lists for every command with --json the file in schema/ that describes its output and the arguments that
// make it print all fields. A new command with --json needs a line here. The commands run in this order in one
// repository, so those that remove things come last.
var jsonOutputs = []jsonOutput{
	{"git agency ls", "invocation.json", true, fixedArgs([]string{}, []string{"--all"})},
	{"git agency show", "invocation.json", false, func(c *jsonLab) [][]string { return [][]string{{c.live}, {c.discarded}, {c.broken}, {c.empty}} }},
	{"git agency path", "path.json", false, func(c *jsonLab) [][]string { return [][]string{{c.live}, {c.broken}} }},
	{"git agency worktree ls", "worktree.json", true, fixedArgs([]string{}, []string{"--all"})},
	{"git agency worktree show", "worktree.json", false, fixedArgs([]string{"payments"})},
	{"git agency worktree path", "path.json", false, fixedArgs([]string{"payments"})},
	{"git agency doctor", "diagnosis.json", false, func(c *jsonLab) [][]string {
		c.write(filepath.Join(c.repo, ".git", "index.lock"), "")
		return [][]string{{}, {"--fix", "index.lock"}}
	}},
	{"git agency setup", "installed.json", false, func(c *jsonLab) [][]string {
		prefix := []string{"--prefix", filepath.Join(c.dir, "home", "there")}
		return [][]string{append(prefix, "-n"), prefix, append(prefix, "--undo")}
	}},
	{"git agency setup --hide-refs", "hidden-refs.json", false, fixedArgs([]string{"-n"}, []string{}, []string{"--undo"})},
	{"git agency config", "setting.json", true, fixedArgs([]string{})},
	{"git agency version", "version.json", false, fixedArgs([]string{})},
	{"git agency restore", "invocation.json", false, func(c *jsonLab) [][]string { return [][]string{{c.discarded}} }},
	{"git agency start", "invocation.json", false, func(c *jsonLab) [][]string {
		c.agency("snapshot", "create", c.base)
		return [][]string{
			{"payments", "--name", "日本 é", "--runner", "claude", "--mode", "headed"},
			{"payments", "--memory", "1g", "--processes", "50", "--file-size", "1m", "--timeout", "1h", "--nice", "3", "--best-effort-limits"},
			{"--from-snapshot", c.base + "/1"},
		}
	}},
	{"git agency preflight", "preflight.json", false, fixedArgs([]string{"payments"}, []string{"payments", "--", "no-such-program"})},
	{"git agency worktree create", "worktree.json", false, fixedArgs([]string{"another"}, []string{"third", "--from", "HEAD^0"})},
	{"git agency worktree adopt", "worktree.json", false, fixedArgs([]string{"--name", "main-one"})},
	{"git agency exec", "executed.json", false, func(c *jsonLab) [][]string {
		return [][]string{
			{c.live, "--", "sh", "-c", `printf "out\377"; echo err >&2; exit 3`},
			{c.live, "--timeout", "1ms", "--grace", "0", "--", "sleep", "1000"},
			{c.live, "--", "no-such-program"},
			{c.live, "--memory", "1g", "--processes", "50", "--file-size", "1m", "--nice", "3", "--best-effort-limits", "--", "true"},
		}
	}},
	{"git agency denials", "denial.json", true, func(c *jsonLab) [][]string {
		c.write(filepath.Join(c.repoData(), "invocations", c.live, "events.jsonl"), `
{"time":"2026-01-28T12:00:00Z","event":"denied","kind":"connect","target":"x.example:443","reason":"not among the outputs","allow":"x.example","count":3}
{"time":"2026-01-28T12:00:00Z","event":"denied","kind":"socks","target":"(other targets)","reason":"too many","allow":""}
`)
		return [][]string{{c.live}}
	}},
	{"git agency show --walls", "walls.json", false, func(c *jsonLab) [][]string { return [][]string{{}, {c.live}, {c.base}} }},
	{"git agency allow", "allowed.json", false, func(c *jsonLab) [][]string {
		id := c.agency("start", "payments", "--outputs", "none", "--file-size", "1m")
		return [][]string{{id, "--outputs", "hosts:a.example", "-n"}, {id, "--outputs", "hosts:a.example", "--read", "/usr", "--file-size", "2m"}, {id, "--reset"}}
	}},
	{"git agency run", "run.json", false, func(c *jsonLab) [][]string {
		return [][]string{{"payments", "--", "true"}, {"payments", "--", "touch", "new"}, {"payments", "-p", "x", "--", "sh", "-c", `echo '{"question":"q?","options":["a"]}' >$AGENCY_QUESTION_FILE`}}
	}},
	{"git agency questions", "question.json", true, fixedArgs([]string{})},
	{"git agency resume", "run.json", false, fixedArgs([]string{"@", "--answer", "yes"})},
	{"git agency log", logSchema, true, func(c *jsonLab) [][]string {
		return [][]string{{"@"}, {c.live}, {c.discarded}, {c.broken}}
	}},
	{"git agency review", "invocation.json", true, func(c *jsonLab) [][]string { return [][]string{{}, {c.live}} }},
	{"git agency run --detach", "invocation.json", true, fixedArgs([]string{"payments", "--", "true"})},
	{"git agency wait", "invocation.json", true, fixedArgs([]string{"@"})},
	{"git agency stop", "invocation.json", true, fixedArgs([]string{"@"})},
	{"git agency snapshot create", "snapshot.json", false, func(c *jsonLab) [][]string { return [][]string{{c.live, "-m", "first"}, {c.live}} }},
	{"git agency snapshot ls", "taken-snapshot.json", true, func(c *jsonLab) [][]string { return [][]string{{c.live}} }},
	{"git agency snapshot verify", "verified-snapshot.json", false, func(c *jsonLab) [][]string {
		added := filepath.Join(c.agency("path", c.live), "lost")
		c.write(added, "lost\n")
		c.agency("snapshot", "create", c.live)
		lost := c.git("rev-parse", "refs/agency/snapshots/"+c.live+"/2:lost")
		if err := errors.Join(os.Remove(added), os.Remove(filepath.Join(c.repo, ".git", "objects", lost[:2], lost[2:]))); err != nil {
			c.t.Fatal(err)
		}
		return [][]string{{c.live + "/1"}, {c.live + "/2"}}
	}},
	{"git agency snapshot checkout", "checked-out.json", false, func(c *jsonLab) [][]string {
		return [][]string{{c.live + "/1", filepath.Join(c.dir, "copy")}}
	}},
	{"git agency diff", "diff.json", false, func(c *jsonLab) [][]string {
		tree := c.agency("path", c.live)
		c.write(filepath.Join(tree, "not \xff utf"), "line \xff\xfe one\nline two")
		c.write(filepath.Join(tree, "binary"), "\x00")
		c.write(filepath.Join(tree, "readme"), "hello, world\n")
		c.must("mv", filepath.Join(tree, "sub", "one"), filepath.Join(tree, "moved"))
		c.must("ln", "-sf", "nowhere", filepath.Join(tree, "run.sh"))
		return [][]string{{c.live}, {c.live, "--to", c.live + "/1"}, {c.discarded, "--to", "integration"}, {c.live, "--", "readme"}}
	}},
	{"git agency radar", "radar.json", false, fixedArgs([]string{"payments"})}, // reads the sandboxes changed for diff, and a broken one
	{"git agency snapshot rollback", "rolled.json", false, func(c *jsonLab) [][]string {
		c.write(filepath.Join(c.agency("path", c.live), "later"), "x")
		return [][]string{{c.live, c.live + "/1"}, {c.live, c.live + "/3"}, {c.live, c.live + "/3"}}
	}},
	{"git agency submit", "submitted.json", true, func(c *jsonLab) [][]string {
		c.must("sh", "-c", `cd "$0" && echo new >new && git add new && git commit -q -m work`, c.agency("path", c.base))
		return [][]string{{c.base, "-m", "done"}}
	}},
	{"git agency reject", "rejection.json", false, func(c *jsonLab) [][]string { return [][]string{{c.base, "-m", "why"}} }},
	{"git agency sync", "synced.json", false, func(c *jsonLab) [][]string {
		c.git("-C", c.agency("worktree", "path", "payments"), "commit", "-q", "--allow-empty", "-m", "meanwhile")
		return [][]string{{c.base}, {c.base}}
	}},
	{"git agency land", "landed.json", true, func(c *jsonLab) [][]string {
		lands, clashes := c.startWithCommit("fine\n"), c.startWithCommit("not so fine\n")
		return [][]string{{lands, "-n"}, {lands}, {lands}, {clashes}, {c.live, "--commit-all", "-m", "all"}}
	}},
	{"git agency unland", "unlanded.json", false, func(c *jsonLab) [][]string {
		lands, later := c.startWithCommit("better\n"), ""
		c.agency("land", lands)
		later = c.startWithCommit("later\n")
		c.agency("land", later)
		return [][]string{{lands}, {later}, {later}, {c.base}}
	}},
	{"git agency discard", "discarded.json", true, func(c *jsonLab) [][]string { return [][]string{{c.live, c.discarded, c.broken, c.empty}} }},
	{"git agency worktree finish", "finished-worktree.json", false, func(c *jsonLab) [][]string {
		for _, name := range []string{"finish", "clash"} {
			c.must("sh", "-c", `cd "$0" && echo "$1" >finished && git add finished && git commit -q -m "$1"`, c.agency("worktree", "create", name), name)
		}
		return [][]string{{"finish"}, {"clash"}}
	}},
	{"git agency worktree rm", "removed-worktree.json", false, fixedArgs([]string{"payments", "--force"}, []string{"dirty", "--force"})},
	{"git agency prune", "pruned.json", true, fixedArgs([]string{"--expire", "now", "-n"}, []string{"--expire", "now"}, []string{})},
}

type jsonOutput struct {
	command  string // with the option that selects this output, if one does
	schema   string
	isArray  bool                        // the output is an array of such objects
	argLists func(c *jsonLab) [][]string // arguments of the runs, in order
}

// fixedArgs returns argument lists that do not depend on the lab.
func fixedArgs(lines ...[]string) func(*jsonLab) [][]string {
	return func(*jsonLab) [][]string { return lines }
}

// jsonLab is a repository with invocations and worktrees in every state that the schemas describe.
type jsonLab struct {
	*lab
	live, discarded, broken, empty, base string // ids of invocations; base has the snapshot from which others start
}

// startWithCommit starts an invocation that commits the text to readme and returns its id.
func (c *jsonLab) startWithCommit(text string) string {
	id := c.agency("start", "payments", "--isolation", "none")
	tree := c.agency("path", id)
	c.write(filepath.Join(tree, "readme"), text)
	c.git("-C", tree, "commit", "-qam", text)
	return id
}

func newJSONLab(t *testing.T) *jsonLab {
	t.Helper()
	c := &jsonLab{lab: newLab(t), empty: "20260128120000-0000"}
	c.agency("worktree", "create", "payments")
	c.write(filepath.Join(c.agency("worktree", "create", "dirty"), "untracked"), "x")
	c.live = c.agency("start", "payments", "--name", `"live" & kicking`)
	c.discarded, c.broken, c.base = c.agency("start", "payments"), c.agency("start", "payments"), c.agency("start", "payments")
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
	c.git("config", "agency.autoDetach", "false") // otherwise clean-up would continue in the background after the test
	c.git("config", "agency.lockTimeout", "sometime")
	c.git("config", "--add", "agency.lockTimeout", "40s")
	c.git("config", "agency.mine.command", "evil")
	c.git("config", "agency.nonsense", "x")
	return c
}

func TestJSONCommandsHaveSchemas(t *testing.T) {
	t.Parallel()
	var with, described []string
	for name, command := range leafCommands("git agency", allCommands()) {
		if slices.ContainsFunc(command.Flags, printsJSON) && command.Name != "events" { // it prints lines of events of all versions
			with = append(with, name)
		}
	}
	for _, output := range jsonOutputs {
		command, _, _ := strings.Cut(output.command, " --")
		described = append(described, command)
	}
	slices.Sort(with)
	slices.Sort(described)
	described = slices.Compact(described) // a command may have several results
	if !slices.Equal(with, described) {
		t.Errorf("commands with --json: %q\ncommands in jsonOutputs: %q", with, described)
	}
}

// printsJSON reports whether a flag is the switch --json for output, not the --json of put, which names an input file.
func printsJSON(f cli.Flag) bool {
	_, isSwitch := f.(*cli.BoolFlag)
	return isSwitch && slices.Contains(f.Names(), "json")
}

func TestJSONOutputMatchesSchema(t *testing.T) {
	t.Parallel()
	validator, c := startSchemaValidator(t), newJSONLab(t)
	for _, output := range jsonOutputs {
		for _, line := range thin(output.argLists(c)) {
			at := len(line) // after -- the flag would belong to the command that exec runs, or be a path
			if i := slices.Index(line, "--"); i >= 0 {
				at = i
			}
			argv := slices.Concat(strings.Fields(output.command), line[:at], []string{"--json"}, line[at:])
			out := c.try(nil, argv...)
			var documents []json.RawMessage
			many := json.Unmarshal([]byte(out.stdout), &documents) == nil
			if !many {
				documents = []json.RawMessage{[]byte(out.stdout)}
			}
			if many != output.isArray || len(documents) == 0 {
				t.Errorf("%q: array or object does not match jsonOutputs:\n%s", argv, out.stdout)
			}
			for _, document := range documents {
				if wrong := validator.validate(t, output.schema, string(document)); wrong != "" {
					t.Errorf("%q exited with %d: %s\n%s%s", argv, out.code, wrong, document, out.stderr)
				}
			}
		}
	}
}

// schemaDoc holds the parts of a JSON schema that these tests read.
type schemaDoc struct {
	Description          string
	Type                 any // name of a type, or several
	Properties           map[string]schemaDoc
	Required             []string
	AdditionalProperties *bool
}

func readSchema(t *testing.T, name string) schemaDoc {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("schema", name))
	if err != nil {
		t.Fatal(err)
	}
	var d schemaDoc
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

func TestSchemasNameCommandsAndDescribeFields(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("schema", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		d, named := readSchema(t, filepath.Base(file)), 0
		if filepath.Base(file) == putSchema {
			checkSchema(t, file, d)
			continue // it describes input, not output
		}
		for _, output := range jsonOutputs {
			mentioned := strings.Contains(d.Description, "'"+output.command+" --json'")
			if mentioned != (output.schema == filepath.Base(file)) {
				t.Errorf("%s: the description and jsonOutputs disagree about %s: %q", file, output.command, d.Description)
			}
			if mentioned {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s does not name a command that prints it", file)
		}
		checkSchema(t, file, d)
	}
}

// logSchema describes events, which have fields of their own.
const logSchema = "log-entry.json"

func checkSchema(t *testing.T, name string, d schemaDoc) {
	t.Helper()
	if d.Description == "" {
		t.Errorf("%s has no description", name)
	}
	if d.Type == "object" && (d.AdditionalProperties == nil || *d.AdditionalProperties) && filepath.Base(name) != logSchema {
		t.Errorf("%s allows additional properties", name)
	}
	for _, field := range d.Required {
		if _, ok := d.Properties[field]; !ok {
			t.Errorf("%s requires %s, which is not among its properties", name, field)
		}
	}
	for field, property := range d.Properties {
		checkSchema(t, name+": "+field, property)
	}
}

// TestInvocationSchemaMatchesFormatFields checks that the schema of an invocation and --format have the same fields.
func TestInvocationSchemaMatchesFormatFields(t *testing.T) {
	t.Parallel()
	var inSchema, inFormat []string
	for field, property := range readSchema(t, "invocation.json").Properties {
		if field == "refusals" { // a list, which 'ls' does not print
			continue
		}
		inSchema = append(inSchema, schemaFields(field, property)...)
	}
	for _, name := range format.FieldNames() {
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

// schemaFields returns the names of a field and its nested fields, joined by dots, as --format writes them.
func schemaFields(name string, d schemaDoc) []string {
	if len(d.Properties) == 0 {
		return []string{name}
	}
	var names []string
	for field, property := range d.Properties {
		names = append(names, schemaFields(name+"."+field, property)...)
	}
	return names
}
