package walls

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

// fakeDisk is a file system described by a text with one path per line: "dir/", "file", "socket=", "device%",
// "link -> target", "dir/ of 7" (owned by user 7), "dir/ of group 4000007",
// "dir/ setgid", "dir/ mounted" (a mount point) and "dir/ no overlay".
type fakeDisk struct {
	entries map[string]Entry
	links   map[string]string
	mounts  []string
	aliases map[string]string // mount point of a bind mount → its source

	noOverlay []string // directories whose file systems cannot be lower layers
}

// Numbers of groups that have no name on any machine.
const (
	ownGroup   = 4000000
	otherGroup = 4000007
)

func newFakeDisk(text string) *fakeDisk {
	d := &fakeDisk{entries: map[string]Entry{"/": {Path: "/", Kind: Directory}}, links: map[string]string{}, aliases: map[string]string{}}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if from, to, ok := strings.Cut(line, " -> "); ok {
			d.addParents(from)
			d.links[from] = to
			continue
		}
		e := Entry{Owner: 1000, Group: ownGroup, Kind: File}
		line, e.SetGID = strings.CutSuffix(line, " setgid")
		if rest, ok := strings.CutSuffix(line, " of group 4000007"); ok {
			line, e.Group = rest, otherGroup
		}
		if rest, ok := strings.CutSuffix(line, " of 7"); ok {
			line, e.Owner = rest, 7
		}
		if rest, ok := strings.CutSuffix(line, "/ no overlay"); ok {
			line, d.noOverlay = rest+"/", append(d.noOverlay, rest)
		}
		mounted := false
		line, mounted = strings.CutSuffix(line, " mounted")
		for suffix, kind := range map[string]EntryKind{"/": Directory, "=": Socket, "%": Device} {
			if rest, ok := strings.CutSuffix(line, suffix); ok {
				line, e.Kind = rest, kind
			}
		}
		if mounted {
			d.mounts = append(d.mounts, line)
		}
		d.addParents(line)
		e.Path = line
		d.entries[line] = e
	}
	return d
}

// addParents adds the missing parent directories of path.
func (d *fakeDisk) addParents(path string) {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if _, there := d.entries[dir]; !there && d.links[dir] == "" {
			d.entries[dir] = Entry{Path: dir, Kind: Directory, Owner: 1000, Group: ownGroup}
			if filepath.Dir(dir) == "/" {
				d.entries[dir] = Entry{Path: dir, Kind: Directory} // of root
			}
		}
	}
}

func (d *fakeDisk) fileLookup() FileLookup {
	return FileLookup{
		Lookup: d.lookup,
		Overlap: func(path, other string) guard.Relation {
			switch a, b := d.resolveBind(path), d.resolveBind(other); {
			case a == b:
				return guard.Same
			case guard.Contains(b, a):
				return guard.Inside
			case guard.Contains(a, b):
				return guard.Encloses
			}
			return guard.Disjoint
		},
		Subdirs: func(dir string) (found []Entry) {
			for path, e := range d.entries {
				if e.Kind == Directory && path != "/" && filepath.Dir(path) == dir {
					found = append(found, e)
				}
			}
			return found
		},
		OtherNames: func(path string) (names []string) {
			real := d.resolveBind(path)
			if real != path {
				names = append(names, real)
			}
			for alias, of := range d.aliases {
				name := alias
				if guard.IsOrContains(of, real) {
					name += strings.TrimPrefix(real, of)
				} else if !guard.IsOrContains(real, of) {
					continue
				}
				if name != path && !guard.IsOrContains(path, name) {
					names = append(names, name)
				}
			}
			return names
		},
		WhyNoOverlay: func(dir, _ string) string {
			if slices.ContainsFunc(d.noOverlay, func(fs string) bool { return guard.IsOrContains(fs, dir) }) {
				return "its file system cannot be the lower layer of an overlay"
			}
			return ""
		},
		ReadLink: func(path string) string { return d.links[path] },
		Mounts: func(dir string) (below []string) {
			for _, m := range d.mounts {
				if guard.Contains(dir, m) {
					below = append(below, m)
				}
			}
			return below
		},
	}
}

// resolveBind maps a path below a bind mount to the path below its source.
func (d *fakeDisk) resolveBind(path string) string {
	for alias, of := range d.aliases {
		if guard.IsOrContains(alias, path) {
			return of + strings.TrimPrefix(path, alias)
		}
	}
	return path
}

// lookup follows symbolic links, as FileLookup.Lookup does.
func (d *fakeDisk) lookup(path string) Entry {
	done := ""
	todo := strings.Split(strings.Trim(path, "/"), "/")
	for range 100 {
		if len(todo) == 0 {
			break
		}
		done, todo = done+"/"+todo[0], todo[1:]
		if target := d.links[done]; target != "" {
			done, todo = "", append(strings.Split(strings.Trim(target, "/"), "/"), todo...)
		}
	}
	if done == "" || done == "/" {
		done = "/"
	}
	if e, there := d.entries[done]; there {
		return e
	}
	return Entry{Path: done}
}

const usualFiles = `
	/tmp/
	/var/tmp/
	/var/run -> /run
	/run/user/1000/
	/run/docker.sock=
	/etc/resolv.conf
	/etc/hosts
	/proc/sys/
	/sys/
	/dev/null%
	/usr/bin/
	/home/me/.ssh/
	/home/me/.netrc
	/home/me/.cache/
	/home/me/.npm/
	/home/me/go/pkg/mod/
	/home/me/.local/share/agency/repos/r/sandboxes/s/tree/.git
	/home/me/.local/share/agency/repos/r/sandboxes/other/tree/
	/home/me/.local/share/agency/repos/r/worktrees/w/tree/
	/home/me/project/.git/
	/home/me/project/src/
	/home/me/data/
`

const (
	testDataDir    = "/home/me/.local/share/agency"
	testSandboxDir = testDataDir + "/repos/r/sandboxes/s"
)

func usualRequest() Request {
	return Request{
		Tree: testSandboxDir + "/tree", GitDir: "/home/me/project/.git", GitFile: testSandboxDir + "/tree/.git", OverlayDir: testSandboxDir + "/walls", DataDir: testDataDir,
		IntegrationTrees: []string{"/home/me/project", testDataDir + "/repos/r/worktrees/w/tree"},
		Home:             "/home/me", RuntimeDir: "/run/user/1000", PathDirs: []string{"/usr/bin"}, Outputs: "open",
		Policy: Policy{
			Secrets: []string{"/home/me/.ssh", "/home/me/.netrc", "/home/me/.aws"},
			Caches:  []string{"/home/me/.cache", "/home/me/.npm", "/home/me/go/pkg", "/home/me/.gradle"},
		},
	}
}

func usualMachine(text string) Machine {
	return Machine{System: "linux", Arch: "amd64", Kernel: "6.12", LandlockABI: 6, UID: 1000, GID: ownGroup, Files: newFakeDisk(text).fileLookup()}
}

// planLines formats a plan as sorted lines, "visibility path".
func planLines(p Plan) string {
	var found []string
	p.forEachPath(func(path string, s Visibility) { found = append(found, string(s)+" "+path) })
	for _, path := range p.Fixed {
		found = append(found, "read-only "+path)
	}
	for i, line := range found {
		found[i] = strings.NewReplacer(testSandboxDir, "BOX", testDataDir, "DATA").Replace(line)
	}
	slices.Sort(found)
	return strings.Join(found, "\n")
}

const usualPlan = `hidden /home/me/.netrc
hidden /home/me/.ssh
hidden DATA
layered /home/me/.cache
layered /home/me/.npm
layered /home/me/go/pkg
layered /home/me/project/.git
masked /home/me
private /run
private /tmp
private /var/tmp
read-only BOX/tree/.git
writable BOX/tree`

// TestMakePlan lists for each case the lines added to usualPlan, after "+", and the lines removed, after "-".
func TestMakePlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk  string
		ask   func(*Request)
		alias [2]string // mount point of a bind mount and its source
		want  string
	}{
		"usual request": {},
		"mailbox": {
			ask: func(r *Request) { r.MarkerFile, r.Mailbox = r.Tree+"/.agency/MARKER", testDataDir+"/mailbox" },
			want: `
				+ private BOX/tree/.agency
				+ read-only BOX/tree/.agency/MARKER`,
		},
		"a git directory of the sandbox's own": {
			disk: usualFiles + "/home/me/project/.git/objects/\n/home/me/project/.git/config\n",
			ask:  func(r *Request) { r.OwnGitDir = r.OverlayDir + "/git/own/.git" },
			want: `
				- layered /home/me/project/.git
				- read-only BOX/tree/.git
				+ hidden /home/me/project/.git
				+ kept /home/me/project/.git/objects
				+ private BOX/tree/.git`,
		},
		"files of the record": {
			ask: func(r *Request) { r.RecordFiles = []string{testDataDir + "/task", testDataDir + "/answer"} },
			want: `
				+ kept DATA/answer
				+ kept DATA/task`,
		},
		"a home in /tmp is kept, its secrets hidden, its caches overlaid": {
			disk: strings.ReplaceAll(usualFiles, "/home/me", "/tmp/me"),
			ask: func(r *Request) {
				*r = relocateRequest(*r, "/home/me", "/tmp/me")
			},
			want: `
				- hidden /home/me/.netrc
				- hidden /home/me/.ssh
				- hidden DATA
				- layered /home/me/.cache
				- layered /home/me/.npm
				- layered /home/me/go/pkg
				- layered /home/me/project/.git
				- read-only BOX/tree/.git
				- writable BOX/tree
				+ hidden /tmp/me/.local/share/agency
				+ hidden /tmp/me/.netrc
				+ hidden /tmp/me/.ssh
				- masked /home/me
				+ masked /tmp/me
				+ layered /tmp/me/.cache
				+ layered /tmp/me/.npm
				+ layered /tmp/me/go/pkg
				+ layered /tmp/me/project/.git
				+ read-only /tmp/me/.local/share/agency/repos/r/sandboxes/s/tree/.git
				+ writable /tmp/me/.local/share/agency/repos/r/sandboxes/s/tree`,
		},
		"a home that is /tmp is not kept": {
			ask:  func(r *Request) { r.Home = "/tmp" },
			want: ``,
		},
		"a home that is / changes nothing":       {ask: func(r *Request) { r.Home = "/" }},
		"no home, no runtime directory, no PATH": {ask: func(r *Request) { r.Home, r.RuntimeDir, r.PathDirs = "", "", nil }},
		"relative paths are ignored":             {ask: func(r *Request) { r.Home, r.RuntimeDir, r.PathDirs = "me", "run", []string{"", ".", "bin"} }},
		"an integration tree in /tmp is kept": {
			disk: usualFiles + "/tmp/mine/tree/",
			ask:  func(r *Request) { r.IntegrationTrees = append(r.IntegrationTrees, "/tmp/mine/tree") },
			want: `+ kept /tmp/mine/tree`,
		},
		"an integration tree in the data directory is not kept": {},
		"an object store in KeepVisible is kept": {
			disk: usualFiles + "/tmp/store/objects/",
			ask:  func(r *Request) { r.KeepVisible = []string{"/tmp/store/objects", "/usr/lib", "/tmp/gone"} },
			want: `+ kept /tmp/store/objects`,
		},
		"an object store in another sandbox is not kept": {
			ask: func(r *Request) { r.KeepVisible = []string{testDataDir + "/repos/r/sandboxes/other/tree"} },
		},
		"programs in /tmp are kept, but not all of /tmp": {
			disk: usualFiles + "/tmp/tools/bin/",
			ask:  func(r *Request) { r.PathDirs = []string{"/usr/bin", "/tmp", "/tmp/tools/bin", "/tmp/tools/bin"} },
			want: `+ kept /tmp/tools/bin`,
		},
		"programs behind a symlink in /run are kept at its target": {
			disk: usualFiles + "/run/session -> /tmp/tools/bin\n/tmp/tools/bin/",
			ask:  func(r *Request) { r.PathDirs = []string{"/run/session"} },
			want: `+ kept /tmp/tools/bin`,
		},
		"programs in other sandboxes and among secrets are not kept": {
			disk: usualFiles + "/home/me/.ssh/bin/",
			ask: func(r *Request) {
				r.PathDirs = []string{testDataDir + "/repos/r/sandboxes/other/tree", "/home/me/.ssh/bin", testDataDir}
			},
		},
		"the target of /etc/resolv.conf is kept": {
			disk: strings.Replace(usualFiles, "/etc/resolv.conf", "/etc/resolv.conf -> /run/systemd/resolve/stub-resolv.conf\n/run/systemd/resolve/stub-resolv.conf\n/run/systemd/resolve/io.systemd.Resolve=", 1),
			want: `+ kept /run/systemd/resolve/stub-resolv.conf`,
		},
		"/var/run that is no symlink is private": {
			disk: strings.Replace(usualFiles, "/var/run -> /run", "/var/run/docker.sock=", 1),
			want: `+ private /var/run`,
		},
		"a runtime directory elsewhere is private": {
			disk: usualFiles + "/srv/run/me/",
			ask:  func(r *Request) { r.RuntimeDir = "/srv/run/me" },
			want: `+ private /srv/run/me`,
		},
		"a runtime directory that is the home is not private": {ask: func(r *Request) { r.RuntimeDir = "/home/me" }},
		"a runtime directory around the home is not private":  {ask: func(r *Request) { r.RuntimeDir = "/home" }},
		"a runtime directory that is / is not private":        {ask: func(r *Request) { r.RuntimeDir = "/" }},
		"a runtime directory in the sandbox is not private":   {ask: func(r *Request) { r.RuntimeDir = r.Tree }},
		"a runtime directory in the git directory is not private": {
			ask: func(r *Request) { r.RuntimeDir = r.GitDir },
		},

		"a secret that is a symlink is hidden at its target": {
			disk: strings.Replace(usualFiles, "/home/me/.ssh/", "/home/me/.ssh -> /home/me/dotfiles/ssh\n/home/me/dotfiles/ssh/", 1),
			want: `
				- hidden /home/me/.ssh
				+ hidden /home/me/dotfiles/ssh`,
		},
		"a secret that is a symlink to /dev/null is not hidden": {
			disk: strings.Replace(usualFiles, "/home/me/.netrc", "/home/me/.netrc -> /dev/null", 1),
			want: `- hidden /home/me/.netrc`,
		},
		"a secret in a cache is hidden": {
			disk: usualFiles + "/home/me/.cache/token",
			ask:  func(r *Request) { r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.cache/token") },
			want: `+ hidden /home/me/.cache/token`,
		},
		"secrets are hidden in a bind mount of the home too": {
			disk: usualFiles + "/srv/me/.ssh/\n/srv/me/.netrc\n/srv/me/.local/share/agency/", alias: [2]string{"/srv/me", "/home/me"},
			want: `
				+ hidden /srv/me/.local/share/agency
				+ hidden /srv/me/.netrc
				+ hidden /srv/me/.ssh
				+ masked /srv/me`,
		},
		"a bind mount of a part of a secret is hidden": {
			disk: usualFiles + "/srv/keys/\n/home/me/.ssh/keys/", alias: [2]string{"/srv/keys", "/home/me/.ssh/keys"},
			want: `+ hidden /srv/keys`,
		},
		"a secret made readable stays readable in a bind mount": {
			disk: usualFiles + "/srv/me/.ssh/\n/srv/me/.netrc", alias: [2]string{"/srv/me", "/home/me"},
			ask: func(r *Request) { r.Policy.Read = []string{"/home/me/.netrc"} },
			want: `
				- hidden /home/me/.netrc
				+ hidden /srv/me/.ssh
				+ masked /srv/me`,
		},
		"a bind mount that the user cannot reach is skipped": {alias: [2]string{"/srv/me", "/home/me"}},
		"another mount of /tmp is private, and a repository in it is kept": {
			disk: usualFiles + "/data/tmp/repo/", alias: [2]string{"/data/tmp", "/tmp"},
			ask: func(r *Request) { r.IntegrationTrees = append(r.IntegrationTrees, "/data/tmp/repo") },
			want: `
				+ kept /data/tmp/repo
				+ private /data/tmp`,
		},
		"a secret below another is hidden with it": {
			disk: usualFiles + "/home/me/.ssh/id",
			ask:  func(r *Request) { r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.ssh/id") },
		},
		"secret paths inside the sandbox stay visible": {
			disk: usualFiles + testSandboxDir + "/tree/.netrc\n/home/me/project/.git/.netrc",
			ask: func(r *Request) {
				r.Policy.Secrets = append(r.Policy.Secrets, testSandboxDir+"/tree/.netrc", "/home/me/project/.git/.netrc")
			},
		},
		"an agent socket is hidden with its directory": {
			disk: usualFiles + "/home/me/.agent/sock=",
			ask:  func(r *Request) { r.AgentSockets = []string{"/home/me/.agent/sock", "/run/user/1000/bus"} },
			want: `+ hidden /home/me/.agent`,
		},
		"the directory of a missing agent socket is hidden": {
			disk: usualFiles + "/home/me/.agent/",
			ask:  func(r *Request) { r.AgentSockets = []string{"/home/me/.agent/sock"} },
			want: `+ hidden /home/me/.agent`,
		},
		"a directory of agent sockets is hidden": {
			disk: usualFiles + "/home/me/.agent/sockets/",
			ask:  func(r *Request) { r.AgentSockets = []string{"/home/me/.agent/sockets"} },
			want: `+ hidden /home/me/.agent/sockets`,
		},
		"only the agent socket is hidden in the home": {
			disk: usualFiles + "/home/me/sock=",
			ask:  func(r *Request) { r.AgentSockets = []string{"/home/me/sock"} },
			want: `+ hidden /home/me/sock`,
		},
		"only the agent socket is hidden in /var/lib": {
			disk: usualFiles + "/var/lib/sock=",
			ask:  func(r *Request) { r.AgentSockets = []string{"/var/lib/sock"} },
			want: `
				+ hidden /var/lib/sock
				+ masked /var/lib`,
		},
		"only the agent socket is hidden beside a PATH directory": {
			disk: usualFiles + "/opt/a/b/bin/\n/opt/a/b/sock=",
			ask: func(r *Request) {
				r.AgentSockets, r.PathDirs = []string{"/opt/a/b/sock"}, []string{"/opt/a/b/bin"}
			},
			want: `
				+ hidden /opt/a/b/sock
				+ masked /opt/a`,
		},
		"an agent socket below a kept home is hidden": {
			disk: usualFiles + "/tmp/h/s/sock=",
			ask:  func(r *Request) { r.Home, r.AgentSockets = "/tmp/h", []string{"/tmp/h/s/sock"} },
			want: `
				+ masked /tmp/h
				+ hidden /tmp/h/s`,
		},

		"read of a secret by name makes it visible": {
			ask:  func(r *Request) { r.Policy.Read = []string{"/home/me/.netrc"} },
			want: `- hidden /home/me/.netrc`,
		},
		"read of a directory around a secret leaves it hidden": {
			ask: func(r *Request) { r.Policy.Read = []string{"/home/me", "/home", "/"} },
		},
		"read of part of a secret makes that part visible": {
			disk: usualFiles + "/home/me/.ssh/known_hosts",
			ask:  func(r *Request) { r.Policy.Read = []string{"/home/me/.ssh/known_hosts"} },
			want: `+ kept /home/me/.ssh/known_hosts`,
		},
		"read of a path in /tmp keeps it": {
			disk: usualFiles + "/tmp/x/y",
			ask:  func(r *Request) { r.Policy.Read = []string{"/tmp/x", "/tmp/x/y", "/tmp/none"} },
			want: `+ kept /tmp/x`,
		},
		"read of a cache removes its overlay": {
			ask:  func(r *Request) { r.Policy.Read = []string{"/home/me/go/pkg"} },
			want: `- layered /home/me/go/pkg`,
		},
		"hide wins over read and write": {
			ask: func(r *Request) {
				r.Policy.Hide, r.Policy.Read = []string{"/home/me/.netrc", "/home/me/data"}, []string{"/home/me/.netrc", "/home/me/data"}
				r.Policy.Write, r.Policy.OverlayWrite = []string{"/home/me/data"}, []string{"/home/me/data"}
			},
			want: `+ hidden /home/me/data`,
		},
		"read and write below a hidden directory": {
			disk: usualFiles + "/srv/all/seen/\n/srv/all/made/",
			ask: func(r *Request) {
				r.Policy.Hide, r.Policy.Read, r.Policy.Write = []string{"/srv/all"}, []string{"/srv/all/seen"}, []string{"/srv/all/made"}
			},
			want: `
				+ hidden /srv/all
				+ kept /srv/all/seen
				+ writable /srv/all/made`,
		},
		"hide of a directory around the sandbox and the repository": {
			ask: func(r *Request) { r.Policy.Hide = []string{"/home/me", "/gone"} },
			want: `
				- hidden /home/me/.netrc
				- hidden /home/me/.ssh
				- layered /home/me/.cache
				- layered /home/me/.npm
				- layered /home/me/go/pkg
				- masked /home/me
				+ hidden /home/me`,
		},
		"no mask where only another user can replace a hidden path": {
			disk: usualFiles + "/srv/theirs/ of 7\n/srv/theirs/key",
			ask:  func(r *Request) { r.Policy.Hide = []string{"/srv/theirs/key"} },
			want: `+ hidden /srv/theirs/key`,
		},
		"no mask in a writable directory and none in a cache": {
			disk: strings.NewReplacer("/home/me/.netrc\n", "", "/home/me/.ssh/\n", "").Replace(usualFiles) + "/home/me/data/key\n/home/me/.cache/token",
			ask: func(r *Request) {
				r.Policy.Write, r.Policy.Hide = []string{"/home/me/data"}, []string{"/home/me/data/key", "/home/me/.cache/token"}
			},
			want: `
				- hidden /home/me/.netrc
				- hidden /home/me/.ssh
				- masked /home/me
				+ hidden /home/me/.cache/token
				+ hidden /home/me/data/key
				+ writable /home/me/data`,
		},
		"an integration tree beside hidden settings shows all changes": {
			disk: usualFiles + "/home/me/.config/gh/\n/home/me/.config/editor/",
			ask: func(r *Request) {
				r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.config/gh")
				r.IntegrationTrees = append(r.IntegrationTrees, "/home/me/.config/editor")
			},
			want: `
				+ hidden /home/me/.config/gh
				+ kept /home/me/.config/editor`,
		},
		"a filtered file is masked and filtered at every mount": {
			disk: usualFiles + "/home/me/.gitconfig\n/srv/me/.gitconfig\n/srv/me/project/.git/config\n/home/me/project/.git/config\n/srv/conf/git", alias: [2]string{"/srv/me", "/home/me"},
			ask: func(r *Request) {
				r.Policy.Secrets = nil
				r.Policy.Filtered = []FilteredFile{{Path: "/home/me/.gitconfig"}, {Path: "/home/me/project/.git/config"}, {Path: "/srv/conf/git"}, {Path: "/gone"}}
			},
			want: `
				- hidden /home/me/.netrc
				- hidden /home/me/.ssh
				+ filtered /home/me/.gitconfig
				+ filtered /srv/conf/git
				+ filtered /srv/me/.gitconfig
				+ filtered /srv/me/project/.git/config
				+ masked /srv/conf
				+ masked /srv/me`,
		},
		"a filtered file that is hidden or granted is not filtered": {
			disk: usualFiles + "/home/me/.gitconfig\n/home/me/.ssh/config",
			ask: func(r *Request) {
				r.Policy.Read = []string{"/home/me/.gitconfig"}
				r.Policy.Filtered = []FilteredFile{{Path: "/home/me/.gitconfig"}, {Path: "/home/me/.ssh/config"}, {Path: "/home/me/.netrc"}, {Path: testSandboxDir + "/tree/.git"}}
			},
		},
		"a hidden path in an integration tree is masked": {
			disk: usualFiles + "/home/me/project/key",
			ask:  func(r *Request) { r.Policy.Hide = []string{"/home/me/project/key"} },
			want: `+ hidden /home/me/project/key`,
		},
		"a granted dot directory shows all changes": {
			disk: usualFiles + "/home/me/.agent/\n/home/me/work/",
			ask:  func(r *Request) { r.Policy.Read = []string{"/home/me/.agent", "/home/me/work"} },
			want: `+ kept /home/me/.agent`,
		},
		"hide of a cache removes its overlay": {
			ask: func(r *Request) { r.Policy.Hide = []string{"/home/me/.cache"} },
			want: `
				- layered /home/me/.cache
				+ hidden /home/me/.cache`,
		},
		"hide of private and hidden paths changes nothing": {
			ask: func(r *Request) { r.Policy.Hide = []string{"/tmp", "/run/user", testDataDir, testDataDir + "/repos"} },
		},
		"write makes the path itself writable": {
			disk: usualFiles + "/home/me/data/in/",
			ask:  func(r *Request) { r.Policy.Write = []string{"/home/me/data", "/home/me/data/in"} },
			want: `+ writable /home/me/data`,
		},
		"write of a path in /tmp": {
			disk: usualFiles + "/tmp/shared/",
			ask:  func(r *Request) { r.Policy.Write = []string{"/tmp/shared"} },
			want: `+ writable /tmp/shared`,
		},
		"private write wins over write": {
			ask: func(r *Request) {
				r.Policy.Write, r.Policy.OverlayWrite = []string{"/home/me/data"}, []string{"/home/me/data"}
			},
			want: `+ layered /home/me/data`,
		},
		"a copy of a directory of another user, with mounts that stay visible": {
			disk: usualFiles + "/srv/site/ of 7\n/srv/site/mnt/ mounted\n/srv/site/mnt/inner/ mounted",
			ask: func(r *Request) {
				r.Policy.OverlayWrite, r.Policy.Copied = []string{"/srv/site"}, []string{"/srv/site"}
			},
			want: `
				+ layered /srv/site
				+ kept /srv/site/mnt`,
		},
		"a cache in a writable directory gets no overlay": {
			disk: usualFiles + "/home/me/data/cache/",
			ask: func(r *Request) {
				r.Policy.Write, r.Policy.Caches = []string{"/home/me/data"}, append(r.Policy.Caches, "/home/me/data/cache")
			},
			want: `+ writable /home/me/data`,
		},
		"write below a cache": {
			disk: usualFiles + "/home/me/.cache/shared/",
			ask:  func(r *Request) { r.Policy.Write = []string{"/home/me/.cache/shared"} },
			want: `+ writable /home/me/.cache/shared`,
		},
		"only the outer of nested overlays stays": {
			disk: usualFiles + "/home/me/.cache/go-build/",
			ask: func(r *Request) {
				r.Policy.Caches = append(r.Policy.Caches, "/home/me/.cache/go-build")
				r.Policy.OverlayWrite = []string{"/home/me/.cache/go-build"}
			},
		},
		"an overlay of its own within another one": {
			disk: usualFiles + "/home/me/.cache/deep/work/",
			ask: func(r *Request) {
				r.Policy.OverlayWrite, r.Policy.Separate = []string{"/home/me/.cache/deep/work"}, []string{"/home/me/.cache/deep/work"}
			},
			want: `+ layered /home/me/.cache/deep/work`,
		},
		"a cache of another user is read-only": {
			disk: strings.Replace(usualFiles, "/home/me/.npm/", "/home/me/.npm/ of 7", 1),
			want: `- layered /home/me/.npm`,
		},
		"a cache with a mount point below it is read-only": {
			disk: usualFiles + "/home/me/.cache/big/ mounted",
			want: `- layered /home/me/.cache`,
		},
		"a cache around the data directory is read-only": {
			ask:  func(r *Request) { r.Policy.Caches = append(r.Policy.Caches, "/home/me/.local/share", "/home/me", "/") },
			want: ``,
		},
		"a cache in or around an integration tree is read-only": {
			ask: func(r *Request) {
				r.Policy.Caches = append(r.Policy.Caches, "/home/me/project/src", "/home/me/project")
			},
		},
		"a cache in /tmp gets an overlay": {
			disk: usualFiles + "/tmp/cache/",
			ask:  func(r *Request) { r.Policy.Caches = append(r.Policy.Caches, "/tmp/cache") },
			want: `+ layered /tmp/cache`,
		},
		"a path that is not UTF-8 is neither kept nor overlaid": {
			disk: usualFiles + "/tmp/\xff/bin/\n/home/me/\xff/",
			ask: func(r *Request) {
				r.PathDirs, r.Policy.Caches = []string{"/tmp/\xff/bin"}, append(r.Policy.Caches, "/home/me/\xff")
			},
		},
		"an overlay directory outside the data directory is hidden": {
			disk: usualFiles + "/srv/layers/",
			ask:  func(r *Request) { r.OverlayDir = "/srv/layers" },
			want: `+ hidden /srv/layers`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := usualRequest()
			if c.ask != nil {
				c.ask(&r)
			}
			text := c.disk
			if text == "" {
				text = usualFiles
			}
			files, m := newFakeDisk(text), usualMachine(text)
			if c.alias[0] != "" {
				files.aliases[c.alias[0]] = c.alias[1]
			}
			m.Files = files.fileLookup()
			got, err := MakePlan(r, m)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(usualPlan, "\n")
			for line := range strings.SplitSeq(c.want, "\n") {
				line = strings.TrimSpace(line)
				if gone, ok := strings.CutPrefix(line, "- "); ok {
					i := slices.Index(want, gone)
					if i < 0 {
						t.Fatalf("%q is not in the usual plan", gone)
					}
					want = slices.Delete(want, i, i+1)
				} else if more, ok := strings.CutPrefix(line, "+ "); ok {
					want = append(want, more)
				}
			}
			slices.Sort(want)
			if got := planLines(got); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\n\nwant\n%s", got, strings.Join(want, "\n"))
			}
			checkPlan(t, r, usualMachine(text), got)
		})
	}
}

// relocateRequest replaces from by to in every path of a request.
func relocateRequest(r Request, from, to string) Request {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	var there Request
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), from, to)), &there); err != nil {
		panic(err)
	}
	return there
}

func TestMakePlanRefusesWhatBreaksWalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk    string
		ask     func(*Request)
		machine func(*Machine)
		alias   [2]string
		want    string
	}{
		"another system":     {machine: func(m *Machine) { *m = Machine{System: "plan9"} }, want: "user-namespaces: plan9 has none"},
		"another processor":  {machine: func(m *Machine) { m.Arch = "riscv64" }, want: "seccomp: there is no filter for riscv64"},
		"no landlock":        {machine: func(m *Machine) { m.LandlockABI, m.WhyNoLandlock = 0, "not enabled" }, want: "landlock: not enabled; --isolation none works without it"},
		"old landlock":       {machine: func(m *Machine) { m.LandlockABI, m.Kernel = 1, "5.13" }, want: "landlock: this kernel, 5.13, has ABI version 1, and 2 is required"},
		"no seccomp":         {machine: func(m *Machine) { m.WhyNoSeccomp = "not built" }, want: "seccomp: not built"},
		"unknown outputs":    {ask: func(r *Request) { r.Outputs = "some" }, want: `invalid outputs "some"`},
		"outputs to no host": {ask: func(r *Request) { r.Outputs = "hosts:" }, want: `invalid outputs "hosts:"`},
		"empty outputs":      {ask: func(r *Request) { r.Outputs = "" }, want: `invalid outputs ""`},
		"the objects of a group": {
			disk: usualFiles + "/home/me/project/.git/objects/ of group 4000007",
			want: "git-layer: /home/me/project/.git/objects belongs to the group 4000007, and behind walls only your primary group, 4000000, can be used; run chgrp -R 4000000 /home/me/project/.git, or work in a clone of your own",
		},
		"the branches of a group": {
			disk: usualFiles + "/home/me/project/.git/refs/heads/ of group 4000007", want: "/refs/heads belongs to the group 4000007",
		},
		"objects of another user in a shared repository": {
			disk: usualFiles + "/home/me/project/.git/objects/ setgid\n/home/me/project/.git/objects/ab/ of 7",
			want: "git-layer: /home/me/project/.git/objects/ab belongs to another user, whose files cannot be changed through an overlay; work in a clone of your own",
		},
		"a branch directory of another user in a shared repository": {
			disk: usualFiles + "/home/me/project/.git/refs/ setgid\n/home/me/project/.git/refs/heads/a/b/ of 7", want: "/refs/heads/a/b belongs to another user",
		},
		"overlay on another group's": {disk: usualFiles + "/srv/ours/ of group 4000007", ask: requestOverlay("/srv/ours"), want: `"private:/srv/ours": it belongs to the group 4000007`},
		"to write everything":        {ask: requestWrite("/"), want: `agency.sandbox.write "/": it is the root directory`},
		"to write the home":          {ask: requestWrite("/home/me"), want: "your home directory"},
		"to write all homes":         {ask: requestWrite("/home"), want: "your home directory"},
		"to write a missing dir":     {ask: requestWrite("/home/me/gone"), want: "it does not exist; create it"},
		"to write a relative dir":    {ask: requestWrite("data"), want: "it does not exist"},
		"to write /tmp":              {ask: requestWrite("/tmp"), want: "every sandbox has its own"},
		"to write /run":              {ask: requestWrite("/var/run"), want: "every sandbox has its own"},
		"to write /proc":             {ask: requestWrite("/proc/sys"), want: "it is a device or a file system of the kernel"},
		"to write /sys":              {ask: requestWrite("/sys"), want: "it is a device or a file system of the kernel"},
		"to write a device":          {ask: requestWrite("/dev/null"), want: "it is a device or a file system of the kernel"},
		"the integration tree":       {ask: requestWrite("/home/me/project"), want: "it is /home/me/project, an integration worktree"},
		"part of that tree":          {ask: requestWrite("/home/me/project/src"), want: "it lies inside /home/me/project, an integration worktree"},
		"the git directory":          {ask: requestWrite("/home/me/project/.git"), want: "it is /home/me/project/.git, the git directory"},
		"the data directory":         {ask: requestWrite(testDataDir), want: "it is " + testDataDir + ", the data directory"},
		"around the data dir":        {ask: requestWrite("/home/me/.local"), want: "it contains " + testDataDir + ", the data directory"},
		"another sandbox":            {ask: requestWrite(testDataDir + "/repos/r/sandboxes/other/tree"), want: "it lies inside " + testDataDir},
		"the overlay dir":            {disk: usualFiles + "/srv/layers/x/", ask: func(r *Request) { r.OverlayDir, r.Policy.Write = "/srv/layers", []string{"/srv/layers/x"} }, want: "the data directory"},
		"through a symlink":          {disk: usualFiles + "/srv/link -> /home/me/project/src", ask: requestWrite("/srv/link"), want: "it lies inside /home/me/project"},
		"through a bind mount":       {disk: usualFiles + "/srv/bind/", alias: [2]string{"/srv/bind", "/home/me/project"}, ask: requestWrite("/srv/bind"), want: "it is /home/me/project, an integration worktree"},
		"to hide what is mounted around the home too": {
			disk: usualFiles + "/data/homes/me/", alias: [2]string{"/home", "/data/homes"}, ask: func(r *Request) { r.Policy.Hide = []string{"/data"} },
			want: "hidden-secrets: /data cannot be hidden: it is mounted at /home too, which contains " + testSandboxDir + "/tree; unmount it, or hide a path below it",
		},
		"through a bind mount below": {
			disk: usualFiles + "/srv/all/bind/ mounted", alias: [2]string{"/srv/all/bind", "/home/me/project/src"},
			ask: requestWrite("/srv/all"), want: "/srv/all/bind, which is mounted there, lies inside /home/me/project, an integration worktree",
		},
		"through a bind mount in the sandbox": {
			disk: usualFiles + testSandboxDir + "/tree/bind/ mounted", alias: [2]string{testSandboxDir + "/tree/bind", "/home/me/project"},
			want: "which is mounted in the sandbox, is /home/me/project",
		},
		"to write a secret":       {ask: requestWrite("/home/me/.ssh"), want: "it contains secrets"},
		"to write in a secret":    {disk: usualFiles + "/home/me/.ssh/x/", ask: requestWrite("/home/me/.ssh/x"), want: "it contains secrets"},
		"a secret through a link": {disk: usualFiles + "/srv/link -> /home/me/.ssh", ask: requestWrite("/srv/link"), want: "it contains secrets"},

		"overlay on the integration tree": {ask: requestOverlay("/home/me/project"), want: `agency.sandbox.write "private:/home/me/project": it is /home/me/project`},
		"overlay on the data directory":   {ask: requestOverlay(testDataDir), want: "the data directory"},
		"overlay on the home":             {ask: requestOverlay("/home/me"), want: "your home directory"},
		"overlay on a missing path":       {ask: requestOverlay("/gone"), want: "it does not exist"},
		"overlay on a file":               {disk: usualFiles + "/home/me/file", ask: requestOverlay("/home/me/file"), want: "only a directory can have an overlay"},
		"overlay on another user's":       {disk: usualFiles + "/srv/theirs/ of 7", ask: requestOverlay("/srv/theirs"), want: "belongs to another user"},
		"overlay above a mount point":     {disk: usualFiles + "/srv/all/x/ mounted", ask: requestOverlay("/srv/all"), want: "mount point: /srv/all/x"},
		"overlay on /tmp":                 {ask: requestOverlay("/tmp"), want: "every sandbox has its own"},

		"to read /tmp":                 {ask: requestRead("/tmp"), want: `agency.sandbox.read "/tmp": every sandbox has its own`},
		"to read the data directory":   {ask: requestRead(testDataDir), want: "where other sandboxes are"},
		"to read another sandbox":      {ask: requestRead(testDataDir + "/repos/r/sandboxes/other/tree"), want: "where other sandboxes are"},
		"to read one by a symlink":     {disk: usualFiles + "/srv/link -> " + testDataDir + "/repos", ask: requestRead("/srv/link"), want: "where other sandboxes are"},
		"to hide everything":           {ask: requestHide("/"), want: `agency.sandbox.hide "/": no command can run without it`},
		"to hide /proc":                {ask: requestHide("/proc"), want: "no command can run without it"},
		"to hide the sandbox":          {ask: requestHide(testSandboxDir + "/tree"), want: "part of the sandbox"},
		"to hide the git directory":    {ask: requestHide("/home/me/project/.git"), want: "part of the sandbox"},
		"a secret that is not UTF-8":   {disk: usualFiles + "/home/me/\xff/", ask: func(r *Request) { r.Policy.Secrets = []string{"/home/me/\xff"} }, want: `"/home/me/\xff" is not valid UTF-8`},
		"a secret that leads to /home": {disk: strings.Replace(usualFiles, "/home/me/.ssh/", "/home/me/.ssh -> /home", 1), want: "hidden-secrets: /home/me/.ssh is a link to /home, which cannot be hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := c.disk
			if text == "" {
				text = usualFiles
			}
			files := newFakeDisk(text)
			if c.alias[0] != "" {
				files.aliases[c.alias[0]] = c.alias[1]
			}
			r, m := usualRequest(), usualMachine(text)
			m.Files = files.fileLookup()
			if c.ask != nil {
				c.ask(&r)
			}
			if c.machine != nil {
				c.machine(&m)
			}
			got, err := MakePlan(r, m)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v %+v, want %q", err, got, c.want)
			}
			if refused != nil && (refused.Wall == "") == (refused.Key == "") {
				t.Errorf("%+v must name either a wall or a key", refused)
			}
		})
	}
}

func requestWrite(path string) func(*Request) {
	return func(r *Request) { r.Policy.Write = []string{path} }
}

func requestOverlay(path string) func(*Request) {
	return func(r *Request) { r.Policy.OverlayWrite = []string{path} }
}

func requestRead(path string) func(*Request) {
	return func(r *Request) { r.Policy.Read = []string{path} }
}

func requestHide(path string) func(*Request) {
	return func(r *Request) { r.Policy.Hide = []string{path} }
}

func TestMakePlanRefusesInvalidRequest(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Request){
		"no tree":                          func(r *Request) { r.Tree = "" },
		"the root for a tree":              func(r *Request) { r.Tree, r.GitFile = "/", "/.git" },
		"a relative git directory":         func(r *Request) { r.GitDir = ".git" },
		"a path that is not clean":         func(r *Request) { r.DataDir += "/../agency" },
		"a .git file elsewhere":            func(r *Request) { r.GitFile = "/home/me/project/.git" },
		"layers in the tree":               func(r *Request) { r.OverlayDir = r.Tree + "/layers" },
		"the tree in the layers":           func(r *Request) { r.OverlayDir = testSandboxDir },
		"the git directory in the tree":    func(r *Request) { r.GitDir = r.Tree + "/x" },
		"the data directory in the tree":   func(r *Request) { r.DataDir = r.Tree + "/x" },
		"an own git directory in the tree": func(r *Request) { r.OwnGitDir = r.Tree + "/.git" },
		"layers in the git directory":      func(r *Request) { r.OverlayDir = r.GitDir + "/x" },
	} {
		r := usualRequest()
		spoil(&r)
		if got, err := MakePlan(r, usualMachine(usualFiles)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestRootMasksItsHomeOnly checks that the masks of root do not cover system directories, all of which belong to root.
func TestRootMasksItsHomeOnly(t *testing.T) {
	t.Parallel()
	m := usualMachine("")
	m.UID, m.GID = 0, 0
	disk := newFakeDisk(usualFiles + "/etc/shadow\n/var/lib/docker/\n/srv/a/b/key")
	for path, e := range disk.entries {
		e.Owner, e.Group = 0, 0
		disk.entries[path] = e
	}
	m.Files = disk.fileLookup()
	r := usualRequest()
	r.Policy.Secrets = append(r.Policy.Secrets, "/etc/shadow", "/var/lib/docker")
	r.Policy.Hide = []string{"/srv/a/b/key"}
	plan, err := MakePlan(r, m)
	if slices.Sort(plan.Masked); err != nil || !slices.Equal(plan.Masked, []string{"/home/me", "/srv/a/b"}) {
		t.Errorf("%v, %v", plan.Masked, err)
	}
}

func TestMakePlanNetworkFollowsOutputs(t *testing.T) {
	t.Parallel()
	for outputs, want := range map[string]Network{"open": HostNetwork, "none": NoNetwork, "hosts:a.example,b.example:443": ProxiedOnly} {
		r := usualRequest()
		r.Outputs = outputs
		if got, err := MakePlan(r, usualMachine(usualFiles)); err != nil || got.Network != want {
			t.Errorf("%s: %v %v", outputs, got.Network, err)
		}
	}
}

func TestMakePlanUsesNewestCommonLandlockABI(t *testing.T) {
	t.Parallel()
	for abi, want := range map[int]int{2: 2, 5: 5, landlock.NewestABI: landlock.NewestABI, landlock.NewestABI + 5: landlock.NewestABI} {
		m := usualMachine(usualFiles)
		m.LandlockABI = abi
		if got, err := MakePlan(usualRequest(), m); err != nil || got.LandlockABI != want {
			t.Errorf("ABI %d: %d %v", abi, got.LandlockABI, err)
		}
	}
}

func TestMakePlanHidesSocketsOnOldLandlock(t *testing.T) {
	t.Parallel()
	const sockets = `
		/home/me/agent=
		/home/me/link -> /home/me/agent
		/home/me/granted=
		/home/me/file
		/opt/service/sock=
		/tmp/x/sock=
	` + "/opt/service/\xff=\n"
	m := usualMachine(usualFiles + sockets)
	m.LandlockABI = landlock.SocketsABI - 1
	r := usualRequest()
	own := filepath.Join(r.Tree, "own")
	m.Sockets = []string{"/home/me/agent", "/home/me/link", "/home/me/granted", "/home/me/file", "/home/me/gone", "relative", "/opt/service/sock", "/opt/service/\xff", "/tmp/x/sock", own}
	r.Policy.Read = append(r.Policy.Read, "/home/me/granted")
	p, err := MakePlan(r, m)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/home/me/agent", "/opt/service/sock", "/opt/service/\xff"}
	if !slices.Equal(p.Sockets, want) {
		t.Errorf("got %q, want %q", p.Sockets, want)
	}
	var sent Plan // the init process gets it as JSON, which cannot hold every path as a string
	if data, err := json.Marshal(p); err != nil || json.Unmarshal(data, &sent) != nil || !slices.Equal(sent.Sockets, want) {
		t.Errorf("got %q, %v after encoding, want %q", sent.Sockets, err, want)
	}
	// Sockets come and go, so a plan without them is not weaker: it may join running namespaces.
	if weaker := (Plan{Network: p.Network, LandlockABI: p.LandlockABI, Hidden: p.Hidden, Private: p.Private, Filtered: p.Filtered, Writable: p.Writable}).WeakerThan(p); weaker != "" {
		t.Errorf("weaker: %s", weaker)
	}
	m.LandlockABI = landlock.SocketsABI
	if p, err := MakePlan(r, m); err != nil || p.Sockets != nil {
		t.Errorf("got %q, %v", p.Sockets, err)
	}
}

func TestWallsWithoutFilteredFileAreWeaker(t *testing.T) {
	t.Parallel()
	want := Plan{Filtered: []FilteredFile{{Path: "/home/me/.gitconfig", Text: []byte("new")}}}
	for name, c := range map[string]struct {
		have   Plan
		weaker bool
	}{
		"not filtered":         {Plan{}, true},
		"filtered differently": {Plan{Filtered: []FilteredFile{{Path: "/home/me/.gitconfig", Text: []byte("old")}}}, false},
		"hidden":               {Plan{Hidden: []string{"/home/me"}}, false},
	} {
		if got := c.have.WeakerThan(want); (got != "") != c.weaker {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWallNamesListEnforcedWalls(t *testing.T) {
	t.Parallel()
	const want = "user-namespace mount-namespace pid-namespace ipc-namespace uts-namespace network:%s read-only-root private-tmp private-dev fresh-proc hidden-secrets git-layer%s capabilities-dropped no-new-privs landlock:%d seccomp closed-descriptors environment"
	for _, c := range []struct {
		plan    Plan
		sockets string
	}{
		{Plan{Network: HostNetwork, LandlockABI: 5}, ""},
		{Plan{Network: HostNetwork, LandlockABI: 6}, " abstract-sockets"},
		{Plan{Network: NoNetwork, LandlockABI: 2}, " abstract-sockets"},
		{Plan{Network: ProxiedOnly, LandlockABI: 3}, " abstract-sockets"},
	} {
		if got, want := strings.Join(c.plan.WallNames(), " "), fmt.Sprintf(want, c.plan.Network, c.sockets, c.plan.LandlockABI); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.plan, got, want)
		}
	}
}

func TestOverlayDirectoriesAreDistinctAndStable(t *testing.T) {
	t.Parallel()
	plan, err := MakePlan(usualRequest(), usualMachine(usualFiles))
	if err != nil {
		t.Fatal(err)
	}
	again, err := MakePlan(usualRequest(), usualMachine(usualFiles))
	if err != nil || !reflect.DeepEqual(plan.Overlays, again.Overlays) {
		t.Errorf("%v: %+v, then %+v", err, plan.Overlays, again.Overlays)
	}
	for _, l := range plan.Overlays {
		if filepath.Dir(l.Upper) != filepath.Dir(l.Work) || filepath.Dir(filepath.Dir(l.Upper)) != testSandboxDir+"/walls" {
			t.Errorf("%+v", l)
		}
		if l.Path == "/home/me/project/.git" && l.Upper != testSandboxDir+"/walls/git/upper" {
			t.Errorf("upper directory of the git directory: %s", l.Upper)
		}
		if l.Path == "/home/me/.npm" && !strings.HasPrefix(l.Upper, testSandboxDir+"/walls/npm-") {
			t.Errorf("upper directory of .npm: %s", l.Upper)
		}
	}
}

// checkPlan checks the invariants of every plan: no path has two visibilities, no git-agency directory or
// integration tree is writable, and secrets and hidden paths are invisible.
func checkPlan(t *testing.T, r Request, m Machine, p Plan) {
	t.Helper()
	seen := map[string]Visibility{}
	p.forEachPath(func(path string, s Visibility) {
		if was, twice := seen[path]; twice {
			t.Errorf("%s is %s and %s", path, was, s)
		}
		seen[path] = s
		if e := m.Files.Lookup(path); e.Kind == Absent && !guard.IsOrContains(r.DataDir, path) && path != r.OverlayDir && path != r.GitDir {
			t.Errorf("%s %s does not exist", s, path)
		} else if e.Path != path {
			t.Errorf("%s %s leads to %s", s, path, e.Path)
		}
	})
	for _, w := range p.Writable {
		for _, other := range append([]string{r.GitDir, r.DataDir, r.OverlayDir}, r.IntegrationTrees...) {
			if rel := m.Files.Overlap(w, other); w != r.Tree && rel != guard.Disjoint {
				t.Errorf("%s is writable, and %s %s", w, rel, other)
			}
		}
	}
	gitDir, gitFile := Overlaid, FixedReadOnly
	if r.OwnGitDir != "" {
		gitDir, gitFile = Hidden, Private
	}
	if p.VisibilityOf(r.Tree) != Writable || p.VisibilityOf(r.GitDir+"/x") != gitDir || p.VisibilityOf(r.GitFile) != gitFile {
		t.Errorf("the sandbox is %s, the git directory %s, the .git file %s", p.VisibilityOf(r.Tree), p.VisibilityOf(r.GitDir), p.VisibilityOf(r.GitFile))
	}
	for _, unseen := range []string{r.DataDir, r.DataDir + "/x", filepath.Dir(r.Tree), r.OverlayDir, r.OverlayDir + "/git/upper"} {
		if p.VisibilityOf(unseen) != Hidden {
			t.Errorf("%s is %s", unseen, p.VisibilityOf(unseen))
		}
	}
	for _, path := range p.Kept {
		if guard.IsOrContains(r.DataDir, path) && !slices.Contains(r.RecordFiles, path) {
			t.Errorf("%s is kept", path)
		}
	}
	for _, tree := range r.IntegrationTrees {
		s := p.VisibilityOf(tree + "/file")
		if s == Private && r.PrivateHome { // the sandbox's own
			s = Hidden
		}
		if s == Writable || s == Overlaid || s == Private {
			t.Errorf("integration tree %s is %s", tree, s)
		}
	}
	homes := map[string]bool{}
	for _, l := range p.Overlays {
		for _, other := range append([]string{r.DataDir, r.OverlayDir, r.Tree}, r.IntegrationTrees...) {
			if l.Path != r.GitDir && m.Files.Overlap(l.Path, other) != guard.Disjoint && (p.Home.Path == "" || !guard.IsOrContains(m.Files.Lookup(other).Path, p.Home.Path)) {
				t.Errorf("the overlay on %s overlaps %s", l.Path, other)
			}
		}
		if p.parentVisibility(l.Path) == Overlaid && !slices.Contains(r.Policy.Separate, l.Path) {
			t.Errorf("the overlay on %s is inside another overlay", l.Path)
		}
		if homes[l.Upper] || homes[l.Work] || !guard.Contains(r.OverlayDir, l.Upper) || !guard.Contains(r.OverlayDir, l.Work) {
			t.Errorf("%+v", l)
		}
		homes[l.Upper], homes[l.Work] = true, true
	}
	for _, path := range r.Policy.Secrets {
		secret := m.Files.Lookup(path)
		granted := slices.ContainsFunc(r.Policy.Read, func(read string) bool { return m.Files.Lookup(read).Path == secret.Path })
		if secret.Kind != Absent && secret.Kind != Device && !granted && p.IsVisible(secret.Path) && !guard.IsOrContains(r.Tree, secret.Path) && !guard.IsOrContains(r.GitDir, secret.Path) {
			t.Errorf("secret %s is %s", secret.Path, p.VisibilityOf(secret.Path))
		}
	}
	checkPrivateHome(t, r, m, p)
	for _, path := range r.Policy.Hide {
		if e := m.Files.Lookup(path); e.Kind != Absent && p.IsVisible(e.Path) {
			t.Errorf("%s, to be hidden, is %s", e.Path, p.VisibilityOf(e.Path))
		}
	}
}

// FuzzMakePlanInvariants seeds the generator of a file system and a request, and checks the plan.
func FuzzMakePlanInvariants(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) { checkRandomPlan(t, rand.New(rand.NewPCG(a, b))) })
}

func TestMakePlanInvariantsForRandomRequests(t *testing.T) {
	t.Parallel()
	drawn := 0
	for seed := range uint64(20000) {
		if checkRandomPlan(t, rand.New(rand.NewPCG(seed, 1))) {
			drawn++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if drawn < 2000 {
		t.Errorf("MakePlan accepted only %d requests", drawn)
	}
}

// checkRandomPlan plans for a random file system and request, and checks the plan. It returns false if
// the request is refused.
func checkRandomPlan(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	names := []string{"tmp", "run", "home", "a", "b", "srv", "var"}
	path := func(least int) string {
		p := ""
		for range least + random.IntN(3) {
			p += "/" + names[random.IntN(len(names))]
		}
		return p
	}
	text := "/tmp/\n/run/\n/var/tmp/\n"
	var known []string
	for range 3 + random.IntN(12) {
		p := path(1)
		known = append(known, p)
		text += p + []string{"/", "/", "/", "", "=", "/ of 7", "/ mounted", " -> " + path(1)}[random.IntN(8)] + "\n"
	}
	some := func(most int) []string {
		var chosen []string
		for range random.IntN(most + 1) {
			p := known[random.IntN(len(known))]
			if random.IntN(4) == 0 {
				p += "/" + names[random.IntN(len(names))]
			}
			chosen = append(chosen, p)
		}
		return chosen
	}
	place := func() string {
		p := path(1) + "/" + []string{"x", "y", "z"}[random.IntN(3)]
		text += p + "/\n"
		return newFakeDisk(text).lookup(p).Path
	}
	r := Request{GitDir: place() + "/.git", DataDir: place() + "/data", Home: path(1), RuntimeDir: "/run/user", Outputs: "open"}
	r.Tree, r.OverlayDir = r.DataDir+"/s/tree", r.DataDir+"/s/walls"
	r.GitFile = r.Tree + "/.git"
	r.IntegrationTrees = []string{filepath.Dir(r.GitDir)}
	text += r.GitDir + "/\n" + r.GitFile + "\n" + r.OverlayDir + "/\n"
	r.AgentSockets, r.PathDirs, r.KeepVisible = some(2), some(3), some(2)
	if r.PrivateHome = random.IntN(2) == 0; r.PrivateHome {
		r.Tools, r.Logins = some(3), some(1)
	}
	r.Policy = Policy{Read: some(2), Write: some(1), OverlayWrite: some(1), Hide: some(2), Secrets: some(3), Caches: some(3)}
	m := usualMachine(text)
	for _, own := range []string{r.GitDir, r.Tree, r.DataDir} {
		if e := m.Files.Lookup(own); e.Path != own || e.Kind != Directory {
			return false // not a valid request
		}
	}
	plan, err := MakePlan(r, m)
	if err != nil {
		return false
	}
	checkPlan(t, r, m, plan)
	return true
}
