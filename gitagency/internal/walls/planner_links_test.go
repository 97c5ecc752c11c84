package walls

import (
	"errors"
	"strings"
	"testing"
)

// Commands of a sandbox must not choose what a path of the policy stands for.
func TestMakePlanRefusesLinksThatCommandsCanChange(t *testing.T) {
	t.Parallel()
	const disk = usualFiles + `
		/home/me/data/out -> /home/me/vault
		/home/me/data/in -> /home/me/data/there
		/home/me/data/there/
		/home/me/vault/id
		/home/me/around -> /home/me/data
		/home/me/far -> /home/me/data/out
		/home/me/link -> /home/me/vault
		/home/me/tree -> ` + testSandboxDir + `/tree/out
		` + testSandboxDir + `/tree/out -> /home/me/vault
		` + testDataDir + `/repos/r/sandboxes/other/tree/out -> /home/me/vault
		/bind/
	`
	named := func(key, name, path string) func(*Request) {
		return func(r *Request) { r.Policy.Named = append(r.Policy.Named, NamedPath{key, name, path}) }
	}
	const why = ": commands in sandboxes can change the symbolic link "
	for name, c := range map[string]struct {
		ask     func(*Request)
		private bool // the directory with the links is an overlay
		want    string
	}{
		"to read":                       {ask: named(ReadKey, "/home/me/data/out", "/home/me/vault"), want: `agency.sandbox.read "/home/me/data/out"` + why + "/home/me/data/out; name a path that does not lead through it"},
		"to write":                      {ask: named(WriteKey, "/home/me/data/out/id", "/home/me/vault/id"), want: WriteKey + ` "/home/me/data/out/id"` + why},
		"to hide":                       {ask: named(HideKey, "/home/me/data/out", "/home/me/vault"), want: HideKey + ` "/home/me/data/out"` + why},
		"via another name":              {ask: named(ReadKey, "/home/me/around/out", "/home/me/vault"), want: why + "/home/me/data/out"},
		"a link to a link":              {ask: named(ReadKey, "/home/me/far", "/home/me/vault"), want: why + "/home/me/data/out"},
		"via a bind mount":              {ask: named(ReadKey, "/bind/out", "/home/me/vault"), want: why + "/bind/out"},
		"in the tree":                   {ask: named(ReadKey, "/home/me/tree", "/home/me/vault"), want: why + testSandboxDir + "/tree/out"},
		"in another sandbox":            {ask: named(ReadKey, testDataDir+"/repos/r/sandboxes/other/tree/out", "/home/me/vault"), want: why},
		"changed since it was followed": {ask: named(ReadKey, "/home/me/data/in", "/home/me/vault"), want: why + "/home/me/data/in"},
		"to a place in the directory":   {ask: named(ReadKey, "/home/me/data/in", "/home/me/data/there")},
		"elsewhere":                     {ask: named(ReadKey, "/home/me/link", "/home/me/vault")},
		"in an overlay":                 {ask: named(ReadKey, "/home/me/data/out", "/home/me/vault"), private: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := privateRequest()
			r.Policy.Write = []string{"/home/me/data"}
			if c.private {
				r.Policy.Write, r.Policy.OverlayWrite = nil, []string{"/home/me/data"}
			}
			c.ask(&r)
			fake := newFakeDisk(disk)
			fake.aliases["/bind"] = "/home/me/data"
			fake.links["/bind/out"] = "/home/me/vault"
			m := usualMachine("")
			m.Files = fake.fileLookup()
			_, err := MakePlan(r, m)
			var refused *RefusedError
			if (c.want != "") != errors.As(err, &refused) || c.want != "" && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A command can exchange a directory with a link between two lookups of a path: after the one for the policy, after that of
// the planner, and after the check of the links.
func TestMakePlanRefusesLinksThatChangeMeanwhile(t *testing.T) {
	t.Parallel()
	const name, secret = "/home/me/data/a", "/home/me/vault"
	for _, c := range []struct {
		policy string // the result of the lookup for the policy
		isLink [2]bool
		want   string
	}{
		{name, [2]bool{true, false}, "it led to /home/me/vault and then to /home/me/data/a, so a symbolic link was changed meanwhile"},
		{name, [2]bool{true, true}, "commands in sandboxes can change the symbolic link /home/me/data/a"},
		{secret, [2]bool{false, false}, "it led to /home/me/vault and then to /home/me/data/a"},
		{secret, [2]bool{false, true}, "commands in sandboxes can change the symbolic link /home/me/data/a"},
		{name, [2]bool{false, true}, ""}, // confine opens it without following links
	} {
		r := privateRequest()
		r.Policy.Write, r.Policy.Read = []string{"/home/me/data"}, []string{c.policy}
		r.Policy.Named = []NamedPath{{ReadKey, name, c.policy}}
		const dirs = usualFiles + "/home/me/vault/\n/home/me/data/\n"
		disks := map[bool]FileLookup{true: newFakeDisk(dirs + name + " -> " + secret).fileLookup(), false: newFakeDisk(dirs + name + "/").fileLookup()}
		m := usualMachine("")
		m.Files = disks[false]
		m.Files.Lookup, m.Files.ReadLink = disks[c.isLink[0]].Lookup, disks[c.isLink[1]].ReadLink
		plan, err := MakePlan(r, m)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && (err != nil || plan.IsVisible(secret)) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// Tools, caches and logins that such a link leads to are not shown.
func TestMakePlanShowsNoToolsThroughLinksThatCommandsCanChange(t *testing.T) {
	t.Parallel()
	r := privateRequest()
	r.Policy.Write = []string{"/home/me/data"}
	r.Tools, r.Logins = []string{"/home/me/data/tool"}, []string{"/home/me/data/login"}
	r.Policy.Caches = append(r.Policy.Caches, "/home/me/data/cache")
	p, err := MakePlan(r, usualMachine(usualFiles+`
		/home/me/data/tool -> /home/me/docs/a
		/home/me/data/login -> /home/me/docs/b
		/home/me/data/cache -> /home/me/docs/c
		/home/me/docs/a/
		/home/me/docs/b/
		/home/me/docs/c/
	`))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/home/me/docs/a", "/home/me/docs/b", "/home/me/docs/c"} {
		if p.IsVisible(path) {
			t.Errorf("%s is visible", path)
		}
	}
}

// A copy of a file is made only if no command can choose the file.
func TestFixedTargetFollowsNoLinksThatCommandsCanChange(t *testing.T) {
	t.Parallel()
	const tree, other = testSandboxDir + "/tree", testDataDir + "/repos/r/sandboxes/other/tree"
	files := newFakeDisk(usualFiles + `
		/home/me/diary
		/home/me/plain
		/home/me/link -> /home/me/plain
		/home/me/dir -> /home/me/data
		/home/me/data/own
		/home/me/data/in -> /home/me/data/own
		/home/me/data/out -> /home/me/diary
		/home/me/far -> /home/me/data/out
		/home/me/tree -> ` + tree + `/out
		` + tree + `/out -> /home/me/diary
		` + tree + `/sibling -> ` + other + `/file
		` + tree + `/file
		` + other + `/file
		/home/me/gone -> /home/me/nothing
		/home/me/loop -> /home/me/loop
	`).fileLookup()
	r := privateRequest()
	r.Policy.Write = []string{"/home/me/data"}
	for name, want := range map[string]string{
		"/home/me/plain": "/home/me/plain", "/home/me/link": "/home/me/plain", "/home/me/dir/own": "/home/me/data/own", "/home/me/data/in": "/home/me/data/own",
		"/home/me/data/out": "", "/home/me/far": "", "/home/me/dir/out": "", "/home/me/tree": "", tree + "/sibling": "", tree + "/file": "",
		"/home/me/gone": "", "/home/me/loop": "", "/home/me/data": "", "/home/me/nothing": "",
	} {
		if got := FixedTarget(r, files, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
