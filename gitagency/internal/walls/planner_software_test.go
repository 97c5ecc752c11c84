package walls

import (
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

const softwareFiles = usualFiles + `
	/opt/root/usr/bin/
	/opt/root/proc/self
	/usr/bin/git-agency
	/srv/data/
`

// TestMakePlanWithSoftware lists for each case what commands with another root file system see of the machine.
func TestMakePlanWithSoftware(t *testing.T) {
	t.Parallel()
	const always = "/home/me /run /tmp /var/tmp"
	for name, c := range map[string]struct {
		disk  string
		ask   func(*Request)
		shown string
		bound string
	}{
		"usual request": {shown: always, bound: "/etc/hosts /etc/resolv.conf /usr/local/bin/git-agency"},
		"without the network of the machine": {
			ask: func(r *Request) { r.Outputs = "none" }, shown: always, bound: "/usr/local/bin/git-agency",
		},
		"a repository elsewhere": {
			disk: "/srv/project/.git/\n", ask: func(r *Request) { r.GitDir = "/srv/project/.git" },
			shown: always + " /srv/project/.git", bound: "/etc/hosts /etc/resolv.conf /usr/local/bin/git-agency",
		},
		"grants": {
			ask: func(r *Request) {
				r.Outputs, r.Policy.Read, r.Policy.Write = "none", []string{"/srv/data", "/home/me/data", "/usr/bin"}, []string{"/home/me/project/src"}
				r.IntegrationTrees = nil
			},
			shown: always + " /srv/data /usr/bin", bound: "/usr/local/bin/git-agency",
		},
		"a grant of the directory of a file that is mounted": {
			ask: func(r *Request) { r.Policy.Read = []string{"/etc"} }, shown: always + " /etc", bound: "/usr/local/bin/git-agency",
		},
		"object store": {
			disk: "/srv/store/objects/\n", ask: func(r *Request) { r.Outputs, r.KeepVisible = "none", []string{"/srv/store/objects", "/srv/gone"} },
			shown: always + " /srv/store/objects", bound: "/usr/local/bin/git-agency",
		},
		"a hidden grant": {
			ask: func(r *Request) {
				r.Outputs, r.Policy.Read, r.Policy.Hide = "none", []string{"/srv/data"}, []string{"/srv/data"}
			},
			shown: always, bound: "/usr/local/bin/git-agency",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := usualRequest()
			r.Software, r.PrivateHome, r.Program = "/opt/root", true, "/usr/bin/git-agency"
			if c.ask != nil {
				c.ask(&r)
			}
			plan, err := MakePlan(r, usualMachine(softwareFiles+c.disk))
			if err != nil {
				t.Fatal(err)
			}
			var bound []string
			for _, b := range plan.Software.Bound {
				bound = append(bound, b.Path)
			}
			shown := slices.Sorted(slices.Values(plan.Software.Shown))
			slices.Sort(bound)
			want := slices.Sorted(strings.FieldsSeq(c.shown))
			if got := strings.Join(shown, " "); got != strings.Join(want, " ") {
				t.Errorf("shown: %s\n want: %s", got, c.shown)
			}
			if got := strings.Join(bound, " "); got != c.bound {
				t.Errorf("bound: %s\n want: %s", got, c.bound)
			}
			if plan.Software.Dir != "/opt/root" || plan.Software.Mount != testSandboxDir+"/walls/software" {
				t.Errorf("%+v", plan.Software)
			}
		})
	}
}

// TestVisibilityWithSoftware compares what commands see with what git-agency's own processes see.
func TestVisibilityWithSoftware(t *testing.T) {
	t.Parallel()
	r := usualRequest()
	r.Software, r.PrivateHome = "/opt/root", true
	plan, err := MakePlan(r, usualMachine(softwareFiles))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]Visibility{
		"/usr/bin": {Replaced, ReadOnly}, "/opt/root": {Replaced, ReadOnly}, "/etc/hosts": {Replaced, ReadOnly}, "/home/me/.ssh": {Private, Private},
		"/tmp": {Private, Private}, r.Tree: {Writable, Writable}, r.GitDir: {Overlaid, Overlaid}, r.DataDir: {Hidden, Hidden},
	} {
		if got := [2]Visibility{plan.VisibilityOf(path), plan.OnMachine().VisibilityOf(path)}; got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if plan.IsVisible("/usr/bin") || plan.IsWritable("/usr/bin") || !plan.OnMachine().IsVisible("/usr/bin") {
		t.Error("the programs of the machine are visible with another root file system")
	}
	other, more := plan, plan
	other.Software.Dir = "/opt/other"
	more.Software.Shown = append(slices.Clone(plan.Software.Shown), "/srv/data")
	if more.WeakerThan(plan) != "/srv/data is visible" || plan.WeakerThan(more) != "" {
		t.Error("walls that show more were accepted, or those that show less refused")
	}
	if plan.WeakerThan(plan) != "" || other.WeakerThan(plan) == "" || plan.OnMachine().WeakerThan(plan) == "" {
		t.Error("walls with other software were accepted")
	}
	if why := plan.WeakerThan(plan.OnMachine()); why != "" {
		t.Errorf("git-agency's own processes cannot join: %s", why)
	}
	if !slices.Contains(plan.WallNames(), OtherRoot) || slices.Contains(plan.OnMachine().WallNames(), OtherRoot) {
		t.Errorf("%q", plan.WallNames())
	}
}

func TestMakePlanRefusesSoftware(t *testing.T) {
	t.Parallel()
	for software, c := range map[string]struct {
		disk string
		ask  func(*Request)
		want string
	}{
		"/opt/none":              {want: "it is no directory"},
		"/usr/bin/git-agency":    {want: "it is no directory"},
		"/":                      {want: "own software"},
		"/home":                  {want: "home directory"},
		"/home/me":               {want: "home directory"},
		"/link":                  {disk: "/link -> /home/me", want: "home directory"},
		testDataDir:              {want: "the data directory"},
		testSandboxDir + "/tree": {want: "the sandbox"},
		"/home/me/project/.git":  {want: "the git directory"},
		"/srv":                   {ask: func(r *Request) { r.IntegrationTrees = []string{"/srv/data"} }, want: "integration worktree"},
		"/opt":                   {ask: func(r *Request) { r.Policy.Hide = []string{"/opt/root/usr"} }, want: "which is hidden"},
		"/opt/root":              {disk: "/opt/root/mnt/ mounted", want: "/opt/root/mnt is mounted in it; unmount it"},
	} {
		t.Run(software, func(t *testing.T) {
			t.Parallel()
			r := usualRequest()
			r.Software, r.PrivateHome = software, true
			if c.ask != nil {
				c.ask(&r)
			}
			_, err := MakePlan(r, usualMachine(softwareFiles+c.disk))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), software) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestSoftwareUnderAnotherName gives a mount of a directory around the home.
func TestSoftwareUnderAnotherName(t *testing.T) {
	t.Parallel()
	disk := newFakeDisk(softwareFiles + "/alias/\n/alias/me/\n")
	disk.aliases["/alias"] = "/home"
	m := usualMachine("")
	m.Files = disk.fileLookup()
	r := usualRequest()
	r.Software, r.PrivateHome = "/alias", true
	if _, err := MakePlan(r, m); err == nil || !strings.Contains(err.Error(), "home directory") {
		t.Errorf("%v", err)
	}
}

// TestSoftwareOverlapsByMounts gives bind mounts of the root file system, of a part of it, and of an integration worktree.
func TestSoftwareOverlapsByMounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		software, alias, of string
		ask                 func(*Request)
		want                string
	}{
		"a grant of another name":           {"/opt/root", "/alias", "/opt/root", func(r *Request) { r.Policy.Write = []string{"/alias"} }, "by the grant of /alias"},
		"a grant of another name of a part": {"/opt/root", "/alias", "/opt/root/usr", func(r *Request) { r.Policy.Write = []string{"/alias"} }, "by the grant of /alias"},
		"software by another name":          {"/alias", "/alias", "/opt/root", func(r *Request) { r.Policy.Write = []string{"/opt/root/usr"} }, "by the grant of /opt/root/usr"},
		"an integration worktree":           {"/alias", "/alias", "/srv/data", func(r *Request) { r.IntegrationTrees = []string{"/srv/data"} }, "integration worktree"},
		"a grant elsewhere":                 {"/opt/root", "/alias", "/srv", func(r *Request) { r.Policy.Write = []string{"/alias"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := newFakeDisk(softwareFiles + "/alias/\n")
			disk.aliases[c.alias] = c.of
			m := usualMachine("")
			m.Files = disk.fileLookup()
			r := usualRequest()
			r.Software, r.PrivateHome = c.software, true
			c.ask(&r)
			_, err := MakePlan(r, m)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestSoftwareCoversSockets lists those in the root file system, where Landlock does not restrict them.
func TestSoftwareCoversSockets(t *testing.T) {
	t.Parallel()
	r := usualRequest()
	r.Software, r.PrivateHome = "/opt/root", true
	m := usualMachine(softwareFiles)
	m.Sockets = []string{"/opt/root/srv/s", "/opt/rootless/s", "/run/docker.sock"}
	for abi, want := range map[int][]string{landlock.SocketsABI - 1: {"/srv/s"}, landlock.SocketsABI: nil} {
		m.LandlockABI = abi
		plan, err := MakePlan(r, m)
		if err != nil || !slices.Equal(plan.Software.Sockets, want) {
			t.Errorf("ABI %d: %q, %v", abi, plan.Software.Sockets, err)
		}
	}
}

func TestExplainSoftware(t *testing.T) {
	t.Parallel()
	r := usualRequest()
	r.Software, r.PrivateHome, r.SoftwareFiles = "/opt/root", true, []FilteredFile{{Path: "/etc/passwd"}}
	_, lines, err := Explain(r, usualMachine(softwareFiles))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Explained{}
	for _, l := range lines {
		got[l.Path] = l
	}
	if got["/"].Visibility != Replaced || got["/"].Named != "/opt/root" || got["/etc/passwd"].Visibility != Replaced || got["/sys"].Reason != ReasonKernel || got[r.Tree].Visibility != Writable {
		t.Errorf("%+v", lines)
	}
}
