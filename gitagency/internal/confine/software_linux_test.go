package confine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// softwarePlan makes files and a plan with another root file system, in which the directory "machine" is shown.
func softwarePlan(t *testing.T, entries ...string) (string, walls.Plan) {
	t.Helper()
	dir := makeFiles(t, append([]string{"machine/seen=m", "machine/sub/seen=s", "secret=s3cret", "walls/software/", "file=of the machine", "root/usr/bin/prog=p", "root/bin->usr/bin"}, entries...)...)
	return dir, walls.Plan{
		Hidden: joinAll(dir, "machine/sub", "walls"), Writable: joinAll(dir, "machine"),
		Software: walls.Software{
			Dir: dir + "/root", Mount: dir + "/walls/software", Shown: joinAll(dir, "machine", "gone", "walls"),
			Bound: []walls.BindMount{{Path: "/etc/bound", Source: dir + "/file", ReadOnly: true}, {Path: "/etc/missing", Source: dir + "/none", ReadOnly: true}},
			Files: []walls.FilteredFile{{Path: "/etc/passwd", Text: []byte("me")}},
		},
	}
}

// enterSoftware applies the plan and changes to its root, as a command does.
func enterSoftware(t *testing.T) (dir string, p walls.Plan) {
	t.Helper()
	dir, p = applyPlan(t)
	if err := errors.Join(unix.Chroot(p.Software.Mount), unix.Chdir("/")); err != nil {
		t.Fatal(err)
	}
	return dir, p
}

func TestSoftwareReplacesMachine(t *testing.T) {
	if isParent(t) {
		dir, p := softwarePlan(t, "root/etc/passwd=old", "root/etc/other=o", "root/proc/of-the-root=x", "root/var/x=x")
		before := describeDir(t, filepath.Join(dir, "root"))
		runInNamespaces(t, dir, p)
		if after := describeDir(t, filepath.Join(dir, "root")); after != before {
			t.Errorf("the root file system was changed:\n%s\nbefore:\n%s", after, before)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "machine/new")); string(data) != "new" {
			t.Errorf("written in the sandbox: %q, %v", data, err)
		}
		return
	}
	dir, p := enterSoftware(t)
	for path, want := range map[string]string{
		"/bin/prog": "p", "/etc/passwd": "me", "/etc/bound": "of the machine", "/etc/other": "o", "/var/x": "x",
		filepath.Join(dir, "machine/seen"): "m", filepath.Join(dir, "machine/sub/seen"): "", filepath.Join(dir, "secret"): "", filepath.Join(dir, "root/usr/bin/prog"): "",
		"/etc/missing": "", "/proc/of-the-root": "",
	} {
		if data, _ := os.ReadFile(path); string(data) != want {
			t.Errorf("%s is %q, want %q", path, data, want)
		}
	}
	if stat, err := os.ReadFile("/proc/1/comm"); err != nil || len(stat) == 0 {
		t.Errorf("/proc: %v", err)
	}
	if f, err := os.OpenFile("/dev/null", os.O_WRONLY, 0); err != nil {
		t.Error(err)
	} else {
		_ = f.Close()
	}
	for _, path := range []string{"/new", "/etc/new", "/usr/new", "/var/new", "/etc/passwd", "/etc/bound", "/proc/sys/new", "/dev/new", filepath.Join(dir, "machine/sub/new"), filepath.Join(dir, "new")} {
		if err := os.WriteFile(path, []byte("new"), 0o600); err == nil {
			t.Errorf("%s can be written", path)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "machine/new"), []byte("new"), 0o600); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(p.Software.Mount); err != nil || len(entries) > 0 {
		t.Errorf("the root file system is visible where it is mounted: %v, %v", entries, err)
	}
	restrictSelf(t, p)
	if err := unix.Chroot("/"); err == nil {
		t.Error("a command can change its root")
	}
}

// TestSoftwareMakesWay mounts where a root file system has no mount point, or something else in its place.
func TestSoftwareMakesWay(t *testing.T) {
	for name, entries := range map[string][]string{
		"nothing there":                 nil,
		"links to nowhere":              {"root/etc->/nowhere", "root/proc->nowhere", "root/tmp->/gone/x"},
		"files in place of a mount":     {"root/etc=file", "root/proc=file", "root/tmp=file"},
		"directories in place of files": {"root/etc/passwd/", "root/etc/bound/"},
		"links in place of files":       {"root/etc/", "root/etc/passwd->../../../../secret", "root/etc/bound->/proc/1/environ"},
		"a link out of the root":        {"root/tmp->../../.."},
		"directories that are links":    {"root/usr/etc/other=o", "root/etc->usr/etc", "root/usr/var/", "root/tmp->usr/var", "root/proc->/usr/proc", "root/usr/proc/x=x"},
		"a link into a mount":           {"root/proc/x=x", "root/tmp->proc"},
		"links in a circle":             {"root/etc->tmp", "root/tmp->proc", "root/proc->etc"},
	} {
		t.Run(name, func(t *testing.T) {
			if isParent(t) {
				dir, p := softwarePlan(t, entries...)
				runInNamespaces(t, dir, p)
				if data, err := os.ReadFile(filepath.Join(dir, "secret")); string(data) != "s3cret" {
					t.Errorf("the machine was changed: %q, %v", data, err)
				}
				return
			}
			dir, _ := enterSoftware(t)
			for path, want := range map[string]string{"/bin/prog": "p", "/etc/passwd": "me", "/etc/bound": "of the machine", filepath.Join(dir, "machine/seen"): "m", filepath.Join(dir, "secret"): ""} {
				if data, _ := os.ReadFile(path); string(data) != want {
					t.Errorf("%s is %q, want %q", path, data, want)
				}
			}
			if _, err := os.Stat("/proc/self/status"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSoftwareCoversSockets connects to a process outside that listens in the root file system.
func TestSoftwareCoversSockets(t *testing.T) {
	if isParent(t) {
		dir, p := softwarePlan(t, "root/srv/", "root/etc/")
		p.Software.Sockets = []string{"/srv/s", "/etc/s", "/srv/gone", "/etc/passwd/x"}
		for _, name := range []string{"root/srv/s", "root/etc/s"} {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		runInNamespaces(t, dir, p)
		return
	}
	enterSoftware(t)
	for _, path := range []string{"/srv/s", "/etc/s"} {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		}
		want := unix.ECONNREFUSED // an empty file covers it
		if path == "/etc/s" {
			want = unix.ENOENT // it is in a directory that is made anew
		}
		requireErrno(t, path, err, want)
	}
}

func TestSoftwareErrorsNameRoot(t *testing.T) {
	if isParent(t) {
		dir, p := softwarePlan(t)
		p.Software.Dir = dir + "/gone"
		runInNamespaces(t, dir, p)
		return
	}
	p := planFromEnv(t)
	if err := Apply(p); err == nil || !strings.Contains(err.Error(), p.Software.Dir) {
		t.Errorf("%v", err)
	}
}

// TestUnmountSoftwareReleasesOverlays unmounts what would keep an overlay in use.
func TestUnmountSoftwareReleasesOverlays(t *testing.T) {
	if isParent(t) {
		dir, p := softwarePlan(t, "layer/old=o", "up/upper/", "up/work/")
		p.Overlays = []walls.OverlayMount{{Path: dir + "/layer", Upper: dir + "/up/upper", Work: dir + "/up/work"}}
		p.Software.Shown = append(p.Software.Shown, dir+"/layer")
		t.Cleanup(func() { removeWorkDir(t, filepath.Join(dir, "up/work")) })
		runInNamespaces(t, dir, p)
		return
	}
	_, p := applyPlan(t)
	if err := UnmountOverlays(p); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), " "+p.Overlays[0].Path+" ") || strings.Count(string(mounts), " "+p.Software.Mount+" ") > 1 { // an empty directory is mounted on it
		t.Errorf("still mounted:\n%s", mounts)
	}
}
