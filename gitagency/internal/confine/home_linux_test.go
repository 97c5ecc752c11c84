package confine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// privateHomePlan plans a private home with an overlay, a kept file and directory, a writable directory and links.
func privateHomePlan(dir string) walls.Plan {
	home := dir + "/home"
	return walls.Plan{
		Private:  []string{"/run"},
		Home:     walls.PrivateHome{Path: home, Dir: dir + "/data/walls/home"},
		Hidden:   joinAll(home, ".local/share/agency", ".cargo/credentials"),
		Kept:     joinAll(home, "kept", "deep/kept.conf"),
		Writable: joinAll(home, ".local/share/agency/tree"),
		Overlays: []walls.OverlayMount{{Path: home + "/.cargo", Upper: dir + "/data/walls/cargo/upper", Work: dir + "/data/walls/cargo/work"}},
		Links:    []walls.Link{{Path: home + "/.nvm", Target: "/opt/nvm"}, {Path: home + "/.config/linked", Target: "../kept"}},
	}
}

var privateHomeFiles = []string{
	"home/.ssh/id=s3cret", "home/.env=s3cret", "home/kept/f=kept", "home/deep/kept.conf=conf", "home/deep/other=s3cret", "home/.cargo/bin/cargo=cargo",
	"home/.cargo/credentials=s3cret", "home/.local/share/agency/tree/f=tree", "home/.local/share/agency/other=s3cret",
	"data/walls/home/", "data/walls/cargo/upper/", "data/walls/cargo/work/",
}

func TestApplyPrivateHome(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, privateHomeFiles...)
		before := describeDir(t, dir+"/home/.cargo")
		t.Cleanup(func() { removeWorkDir(t, dir+"/data/walls/cargo/work") })
		runInNamespaces(t, dir, privateHomePlan(dir))
		runInNamespaces(t, dir, privateHomePlan(dir)) // finds what the first left
		if got := readFiles(t, dir+"/data/walls", "home/own", "cargo/upper/bin/new"); got != "11 11" {
			t.Errorf("the sandbox kept %q", got)
		}
		if _, err := os.Lstat(dir + "/home/own"); err == nil || describeDir(t, dir+"/home/.cargo") != before {
			t.Errorf("the real home has changed: %v", err)
		}
		return
	}
	dir, p := applyPlan(t)
	home := p.Home.Path
	if got := readFiles(t, home, "kept/f", "deep/kept.conf", ".cargo/bin/cargo", ".cargo/credentials", ".local/share/agency/tree/f", ".config/linked/f"); got != "kept conf cargo  tree kept" {
		t.Errorf("inside: %q", got)
	}
	for _, name := range []string{".ssh/id", ".env", "deep/other", ".local/share/agency/other"} {
		if data, err := os.ReadFile(filepath.Join(home, name)); err == nil {
			t.Errorf("%s is %q", name, data)
		}
	}
	if target, err := os.Readlink(home + "/.nvm"); target != "/opt/nvm" {
		t.Errorf("link to %q: %v", target, err)
	}
	for _, name := range []string{"own", ".cargo/bin/new"} { // each run adds a character
		f, err := os.OpenFile(filepath.Join(home, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("1"); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	// Editors replace files.
	if err := os.WriteFile(home+"/own.tmp", []byte(readFiles(t, home, "own")), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Rename(home+"/own.tmp", home+"/own"); err != nil {
		t.Error(err)
	}
	requireErrno(t, "write to a kept file", os.WriteFile(home+"/deep/kept.conf", nil, 0o600), unix.EROFS)
	for _, name := range []string{"deep", ".cargo", ".local", ".local/share", ".local/share/agency", "kept"} {
		requireErrno(t, "replace "+name, os.Rename(filepath.Join(home, name), filepath.Join(home, name)+".moved"), unix.EBUSY)
	}
	if _, err := os.Lstat(dir + "/data/walls/home"); err != nil {
		t.Error(err) // this test does not hide it; walls.MakePlan does
	}
	requireWritable(t, p)
}

// TestApplyPrivateHomeMovesItsContentAside checks that files which a sandbox made in its home, where a tool is installed
// later, do not keep the walls from being built, and are never followed.
func TestApplyPrivateHomeMovesItsContentAside(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, append(privateHomeFiles, "outside/f=outside", "data/walls/home/deep=mine")...)
		for _, link := range [][2]string{{dir + "/outside", "kept"}, {dir + "/outside", ".cargo"}, {dir + "/outside", ".local"}, {dir + "/outside", ".config"}} {
			if err := os.Symlink(link[0], dir+"/data/walls/home/"+link[1]); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { removeWorkDir(t, dir+"/data/walls/cargo/work") })
		before := describeDir(t, dir+"/outside")
		runInNamespaces(t, dir, privateHomePlan(dir))
		if after := describeDir(t, dir+"/outside"); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		return
	}
	_, p := applyPlan(t)
	if got := readFiles(t, p.Home.Path, "kept/f", "deep/kept.conf", ".cargo/bin/cargo", ".local/share/agency/tree/f", "deep.own-1"); got != "kept conf cargo tree mine" {
		t.Errorf("inside: %q", got)
	}
	if got := listDir(t, p.Home.Path); !strings.Contains(got, "kept.own-1") || !strings.Contains(got, ".cargo.own-1") || !strings.Contains(got, ".local.own-1") {
		t.Errorf("inside: %q", got)
	}
}

// TestApplyHidesBelowOverlayWithLinks checks that a link which a sandbox made in an overlay, where the host has a secret
// later, does not keep the walls from being built, and shows nothing.
func TestApplyHidesBelowOverlayWithLinks(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "cache/token=s3cret", "cache/sub/token=s3cret", "upper/", "work/")
		for link, target := range map[string]string{"token": "/etc", "sub": "/etc"} {
			if err := os.Symlink(target, dir+"/upper/"+link); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { removeWorkDir(t, dir+"/work") })
		runInNamespaces(t, dir, walls.Plan{Hidden: joinAll(dir, "cache/token", "cache/sub/token"), Overlays: []walls.OverlayMount{{Path: dir + "/cache", Upper: dir + "/upper", Work: dir + "/work"}}})
		return
	}
	dir, _ := applyPlan(t)
	for _, name := range []string{"token", "sub"} {
		if err := os.Remove(filepath.Join(dir, "cache", name)); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "cache", name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
