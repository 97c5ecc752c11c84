package confine

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

func TestApplyMakesHostReadOnly(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "file=old", "dir/", "link->file")
		before := describeDir(t, dir)
		runInNamespaces(t, dir, walls.Plan{})
		if after := describeDir(t, dir); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		return
	}
	dir, p := applyPlan(t)
	file := filepath.Join(dir, "file")
	for what, err := range map[string]error{
		"write":    os.WriteFile(file, []byte("new"), 0o600),
		"create":   os.WriteFile(filepath.Join(dir, "dir/new"), nil, 0o600),
		"truncate": os.Truncate(file, 1),
		"chmod":    os.Chmod(file, 0o777),
		"chown":    os.Lchown(file, os.Getuid(), os.Getgid()),
		"utimes":   os.Chtimes(file, time.Now(), time.Now()),
		"setxattr": unix.Setxattr(file, "user.new", []byte("x"), 0),
		"rename":   os.Rename(file, filepath.Join(dir, "new")),
		"unlink":   os.Remove(file),
		"rmdir":    os.Remove(filepath.Join(dir, "dir")),
		"mkdir":    os.Mkdir(filepath.Join(dir, "new"), 0o700),
		"symlink":  os.Symlink("x", filepath.Join(dir, "new")),
		"link":     os.Link(file, filepath.Join(dir, "new")),
		"mknod":    unix.Mknod(filepath.Join(dir, "new"), unix.S_IFIFO|0o600, 0),
		"null":     os.Chmod("/dev/null", 0o600),
		"/dev":     os.WriteFile("/dev/new", nil, 0o600),
	} {
		requireErrno(t, what, err, unix.EROFS)
	}
	requireWritable(t, p)
	restrictSelf(t, p)
	for what, err := range map[string]error{
		"write": os.WriteFile(file, []byte("new"), 0o600),
		"chmod": os.Chmod(file, 0o777),
		"mkdir": os.Mkdir(filepath.Join(dir, "new"), 0o700),
	} {
		if err == nil {
			t.Errorf("%s succeeded after Restrict", what)
		}
	}
}

func TestHiddenPathsAreEmptyAndReadOnly(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "secret/key=s3cret", "key=s3cret", "outer/key=s3cret", "outer/kept/file=seen", "outer/kept/inner/key=s3cret", "outer/deep/in/tree/file=old", "tree/key=s3cret", "tree/sub/dir/key=s3cret")
		runInNamespaces(t, dir, walls.Plan{
			Hidden:   joinAll(dir, "secret", "key", "outer", "outer/kept/inner", "tree/key", "tree/sub/dir", "missing", "missing/too"),
			Kept:     joinAll(dir, "outer/kept", "gone"),
			Writable: joinAll(dir, "tree", "outer/deep/in/tree"),
		})
		if got := readFiles(t, dir, "outer/deep/in/tree/file", "outer/deep/in/tree/new", "tree/new", "tree/key", "tree/sub/dir/key"); got != "new new new s3cret s3cret" {
			t.Errorf("got %s", got)
		}
		return
	}
	dir, p := applyPlan(t)
	look := func() {
		t.Helper()
		for name, want := range map[string]string{
			"secret": "", "outer": "deep kept", "outer/deep": "in", "outer/deep/in": "tree", "outer/kept": "file inner", "outer/kept/inner": "", "tree/sub": "dir", "tree/sub/dir": "",
		} {
			if got := listDir(t, filepath.Join(dir, name)); got != want {
				t.Errorf("in %s: %q instead of %q", name, got, want)
			}
		}
		if got := readFiles(t, dir, "key", "tree/key", "outer/kept/file", "outer/deep/in/tree/file"); got != "  seen old" {
			t.Errorf("got %q", got)
		}
	}
	look()
	for _, name := range []string{"secret/new", "outer/new", "outer/deep/new", "outer/deep/in/new", "outer/kept/new", "outer/kept/file", "outer/kept/inner/new", "key", "tree/key", "tree/sub/dir/new"} {
		requireErrno(t, name, os.WriteFile(filepath.Join(dir, name), []byte("new"), 0o600), unix.EROFS)
	}
	for _, name := range []string{"secret", "key", "outer", "tree/key", "tree/sub/dir", "outer/deep/in/tree"} {
		if os.Remove(filepath.Join(dir, name)) == nil || os.Chmod(filepath.Join(dir, name), 0o777) == nil && name != "outer/deep/in/tree" {
			t.Errorf("%s was changed", name)
		}
	}
	requireErrno(t, "move a parent of a hidden directory", os.Rename(filepath.Join(dir, "tree/sub"), filepath.Join(dir, "tree/elsewhere")), unix.EBUSY)
	requireWritable(t, p)
	restrictSelf(t, p)
	look()
	for _, name := range []string{"outer/deep/in/tree/file", "outer/deep/in/tree/new", "tree/new"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("new"), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestMaskedDirectoryShowsAllButHiddenPaths(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "home/key=s3cret", "home/ssh/key=s3cret", "home/ssh/known=seen", "home/sub/.set/key=s3cret", "home/sub/.set/open=seen", "home/sub/tree/file=old", "home/dir/file=seen", "home/file=seen", "home/link->file")
		for name, mode := range map[string]fs.FileMode{"home": 0o711, "home/sub": 0o750, "home/sub/.set": 0o700} {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		runInNamespaces(t, dir, walls.Plan{
			Masked: joinAll(dir, "home"), Hidden: joinAll(dir, "home/key", "home/ssh", "home/sub/.set/key", "home/gone"),
			Kept: joinAll(dir, "home/ssh/known"), Writable: joinAll(dir, "home/sub/tree"),
		})
		if got := readFiles(t, dir, "home/sub/tree/file"); got != "new" {
			t.Errorf("got %s", got)
		}
		return
	}
	dir, p := applyPlan(t)
	requireWritable(t, p)
	restrictSelf(t, p)
	for name, want := range map[string]string{"home": "dir file key link ssh sub", "home/ssh": "known", "home/sub": ".set tree", "home/sub/.set": "key open", "home/dir": "file"} {
		if got := listDir(t, filepath.Join(dir, name)); got != want {
			t.Errorf("in %s: %q instead of %q", name, got, want)
		}
	}
	if got := readFiles(t, dir, "home/key", "home/ssh/known", "home/sub/.set/key", "home/sub/.set/open", "home/dir/file", "home/link"); got != " seen  seen seen seen" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]fs.FileMode{"home": 0o711, "home/sub": 0o750, "home/sub/.set": 0o700} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	for _, name := range []string{"home/key", "home/new", "home/file", "home/dir/new", "home/sub/new", "home/ssh/new"} {
		if os.WriteFile(filepath.Join(dir, name), []byte("new"), 0o600) == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "home/sub/tree/file"), []byte("new"), 0o600); err != nil {
		t.Error(err)
	}
}

func TestPrivateDirectoriesStartEmptyAndAreDropped(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tmp/file=outside", "tmp/deep/tree/file=seen", "tmp/kept=seen", "tmp/hidden/file=outside", "run/socket=outside")
		if err := errors.Join(os.Chmod(filepath.Join(dir, "tmp"), fs.ModeSticky|0o777), os.Chmod(filepath.Join(dir, "run"), 0o500)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "run"), 0o700) })
		before := describeDir(t, dir)
		runInNamespaces(t, dir, walls.Plan{
			Private: joinAll(dir, "tmp", "run", "missing"), Writable: joinAll(dir, "tmp/deep/tree"), Kept: joinAll(dir, "tmp/kept"), Hidden: joinAll(dir, "tmp/hidden"),
		})
		if after := describeDir(t, dir); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		return
	}
	dir, p := applyPlan(t)
	if got := listDir(t, filepath.Join(dir, "tmp")) + "; " + listDir(t, filepath.Join(dir, "run")); got != "deep hidden kept; " {
		t.Errorf("got %s", got)
	}
	if got := readFiles(t, dir, "tmp/deep/tree/file", "tmp/kept"); got != "seen seen" {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]fs.FileMode{"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "run": fs.ModeDir | 0o700} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	requireWritable(t, p)
	restrictSelf(t, p)
	requireErrno(t, "kept", os.WriteFile(filepath.Join(dir, "tmp/kept"), nil, 0o600), unix.EROFS)
	requireErrno(t, "hidden", os.WriteFile(filepath.Join(dir, "tmp/hidden/new"), nil, 0o600), unix.EROFS)
	requireErrno(t, "move a parent of a mount point", unix.Rename(filepath.Join(dir, "tmp/deep"), filepath.Join(dir, "tmp/other")), unix.EBUSY)
	for _, name := range []string{"tmp/new", "run/new", "tmp/deep/new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// If a mount existed twice, UnmountOverlays would leave an overlay in use, and the next command would have to wait for it.
func TestMountsBelowPrivateDirectoriesExistOnce(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tmp/a/b/tree/.git=gitdir", "tmp/a/b/c/kept/file=seen", "tmp/a/repo/.git/config=old", "upper/", "work/")
		t.Cleanup(func() { removeWorkDir(t, filepath.Join(dir, "work")) })
		runInNamespaces(t, dir, walls.Plan{
			Private: joinAll(dir, "tmp"), Writable: joinAll(dir, "tmp/a/b/tree"), Kept: joinAll(dir, "tmp/a/b/c/kept"), Fixed: joinAll(dir, "tmp/a/b/tree/.git"),
			Overlays: []walls.OverlayMount{{Path: dir + "/tmp/a/repo/.git", Upper: dir + "/upper", Work: dir + "/work"}},
		})
		return
	}
	dir, p := applyPlan(t)
	requireWritable(t, p)
	mountsBelow := func() string {
		var names []string
		for _, point := range guard.MountsBelow(dir) {
			names = append(names, strings.TrimPrefix(point, dir+"/"))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got, want := mountsBelow(), "tmp tmp/a tmp/a/b tmp/a/b/c tmp/a/b/c/kept tmp/a/b/tree tmp/a/b/tree/.git tmp/a/repo tmp/a/repo/.git"; got != want {
		t.Errorf("got %s instead of %s", got, want)
	}
	for _, name := range []string{"tmp/a", "tmp/a/b", "tmp/a/b/c", "tmp/a/repo"} {
		requireErrno(t, "move "+name, unix.Rename(filepath.Join(dir, name), filepath.Join(dir, name)+"2"), unix.EBUSY)
	}
	if err := UnmountOverlays(p); err != nil {
		t.Error(err)
	}
	if got := mountsBelow(); strings.HasSuffix(got, "tmp/a/repo/.git") {
		t.Errorf("the overlay is still mounted: %s", got)
	}
}

func TestOverlayWritesGoToUpperDirectory(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "repo/.git/config=old", "repo/.git/objects/one=1", "repo/.git/refs/main=1", "data/upper/", "data/work/", "plain/a=1", "data/upper2/", "data/work2/")
		below := describeDir(t, filepath.Join(dir, "repo")) + describeDir(t, filepath.Join(dir, "plain"))
		t.Cleanup(func() {
			removeWorkDir(t, filepath.Join(dir, "data/work"))
			removeWorkDir(t, filepath.Join(dir, "data/work2"))
		})
		runInNamespaces(t, dir, walls.Plan{
			Hidden: joinAll(dir, "data", "repo"),
			Overlays: []walls.OverlayMount{
				{Path: dir + "/repo/.git", Upper: dir + "/data/upper", Work: dir + "/data/work"},
				{Path: dir + "/plain", Upper: dir + "/data/upper2", Work: dir + "/data/work2"},
			},
		})
		if after := describeDir(t, filepath.Join(dir, "repo")) + describeDir(t, filepath.Join(dir, "plain")); after != below {
			t.Errorf("before:\n%s\nafter:\n%s", below, after)
		}
		if got := readFiles(t, dir, "data/upper/config", "data/upper/objects/two", "data/upper2/a"); got != "new 2 2" {
			t.Errorf("got %s", got)
		}
		return
	}
	dir, p := applyPlan(t)
	if got := listDir(t, filepath.Join(dir, "data")) + listDir(t, filepath.Join(dir, "repo")); got != ".git" {
		t.Errorf("got %s", got)
	}
	requireWritable(t, p)
	restrictSelf(t, p)
	git := filepath.Join(dir, "repo/.git")
	if err := errors.Join(
		os.WriteFile(filepath.Join(git, "config"), []byte("new"), 0o600),
		os.WriteFile(filepath.Join(git, "objects/two"), []byte("2"), 0o600),
		os.Rename(filepath.Join(git, "objects/one"), filepath.Join(git, "refs/one")),
		os.Remove(filepath.Join(git, "refs/main")),
		os.Chmod(filepath.Join(git, "refs"), 0o700),
		os.WriteFile(filepath.Join(dir, "plain/a"), []byte("2"), 0o600),
	); err != nil {
		t.Error(err)
	}
	if got := listDir(t, git+"/objects") + "; " + listDir(t, git+"/refs"); got != "two; one" {
		t.Errorf("got %s", got)
	}
}

func TestVolatileOverlayCanBeRemounted(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "dir/file=0", "upper/", "work/")
		t.Cleanup(func() { removeWorkDir(t, filepath.Join(dir, "work")) })
		for i, volatile := range []bool{true, true, false, false, true} {
			runInNamespaces(t, dir, walls.Plan{Volatile: volatile, Overlays: []walls.OverlayMount{{Path: dir + "/dir", Upper: dir + "/upper", Work: dir + "/work"}}})
			if got, want := readFiles(t, dir, "dir/file", "upper/file"), "0 0"+strings.Repeat("1", i+1); got != want {
				t.Errorf("after %d: %s instead of %s", i, got, want)
			}
		}
		return
	}
	dir, p := applyPlan(t)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), "volatile,") != p.Volatile {
		t.Errorf("%v: %s", err, mounts)
	}
	restrictSelf(t, p)
	file := filepath.Join(dir, "dir/file")
	if err := os.WriteFile(file, []byte(readFiles(t, dir, "dir/file")+"1"), 0o600); err != nil {
		t.Error(err)
	}
}

func TestApplyRefusesSharedUpperDirectory(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "one/", "two/", "upper/", "work/")
		t.Cleanup(func() { removeWorkDir(t, filepath.Join(dir, "work")) })
		runInNamespaces(t, dir, walls.Plan{Overlays: []walls.OverlayMount{{Path: dir + "/one", Upper: dir + "/upper", Work: dir + "/work"}, {Path: dir + "/two", Upper: dir + "/upper", Work: dir + "/work"}}})
		return
	}
	dir, p := os.Getenv(dirVariable), planFromEnv(t)
	err := Apply(p)
	requireErrno(t, "second mount of one upper directory", err, unix.EBUSY)
	if err != nil && err.Error() != "overlay on "+dir+"/two: device or resource busy" {
		t.Error(err)
	}
}

func TestFixedPathsCannotBeChangedOrReplaced(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tree/.git=gitdir", "tree/file=old", "tree/sub/module/.git=gitdir", "tree/sub/file=old", "tree/hooks/pre=hook", "outside=old")
		runInNamespaces(t, dir, walls.Plan{
			Writable: joinAll(dir, "tree"),
			Fixed:    joinAll(dir, "tree/.git", "tree/sub/module/.git", "tree/hooks", "outside"),
		})
		if got := readFiles(t, dir, "tree/.git", "tree/sub/module/.git", "tree/hooks/pre", "tree/file", "tree/sub/file"); got != "gitdir gitdir hook new new" {
			t.Errorf("got %s", got)
		}
		return
	}
	dir, p := applyPlan(t)
	requireWritable(t, p)
	restrictSelf(t, p)
	tree := func(name string) string { return filepath.Join(dir, "tree", name) }
	for _, name := range []string{".git", "sub/module/.git", "hooks/pre"} {
		file := tree(name)
		requireErrno(t, "write "+name, os.WriteFile(file, []byte("evil"), 0o600), unix.EROFS)
		requireErrno(t, "truncate "+name, os.Truncate(file, 0), unix.EROFS)
		requireErrno(t, "chmod "+name, os.Chmod(file, 0o777), unix.EROFS)
	}
	mine := tree("mine")
	if err := os.WriteFile(mine, []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	requireErrno(t, "write in hooks", os.WriteFile(tree("hooks/post"), nil, 0o700), unix.EROFS)
	for _, name := range []string{".git", "sub/module/.git", "hooks"} {
		file := tree(name)
		aside := filepath.Join(filepath.Dir(file), "aside") // on the same mount as file; rename across mounts fails with EXDEV
		if err := os.WriteFile(aside, []byte("evil"), 0o600); err != nil {
			t.Error(err)
		}
		requireErrno(t, "remove "+name, os.Remove(file), unix.EBUSY)
		requireErrno(t, "move "+name, unix.Rename(file, aside+"2"), unix.EBUSY)
		if name != "hooks" {
			requireErrno(t, "replace "+name, unix.Rename(aside, file), unix.EBUSY)
		}
		requireErrno(t, "exchange "+name, unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, file, unix.RENAME_EXCHANGE), unix.EBUSY)
		if os.Link(file, filepath.Join(filepath.Dir(file), "linked")) == nil {
			t.Errorf("%s can be linked to", name)
		}
	}
	for _, name := range []string{"sub", "sub/module", ""} {
		if err := unix.Rename(tree(name), tree(name)+"2"); err == nil {
			t.Errorf("%s was moved", name)
		}
	}
	if err := errors.Join(os.WriteFile(tree("file"), []byte("new"), 0o600), os.WriteFile(tree("sub/file"), []byte("new"), 0o600)); err != nil {
		t.Error(err)
	}
}

func TestApplyAcceptsAnyFileName(t *testing.T) {
	names := []string{"a b", "a,b=c", "a:b", `a\b`, `a\,\:b`, "a\nb", "a\xffb", "ä/ö,:\\", "-o", strings.Repeat("x", 200) + "/" + strings.Repeat("y", 200)}
	if isParent(t) {
		var files []string
		for i, name := range names {
			files = append(files, fmt.Sprintf("%d/layer/%s/file=old", i, name), fmt.Sprintf("%d/upper/%s/", i, name), fmt.Sprintf("%d/work/%s/", i, name),
				fmt.Sprintf("%d/writable/%s/file=old", i, name), fmt.Sprintf("%d/writable/%s/fixed=old", i, name), fmt.Sprintf("%d/private/%s/file=old", i, name),
				fmt.Sprintf("%d/hidden/%s/file=old", i, name), fmt.Sprintf("%d/hidden/%s/kept/file=old", i, name))
		}
		dir := makeFiles(t, files...)
		var p walls.Plan
		for i, name := range names {
			path := func(kind string) string { return filepath.Join(dir, strconv.Itoa(i), kind, name) }
			p.Overlays = append(p.Overlays, walls.OverlayMount{Path: path("layer"), Upper: path("upper"), Work: path("work")})
			p.Writable = append(p.Writable, path("writable"))
			p.Fixed = append(p.Fixed, path("writable")+"/fixed")
			p.Private = append(p.Private, path("private"))
			p.Hidden = append(p.Hidden, path("hidden"), filepath.Join(dir, strconv.Itoa(i), "upper"))
			p.Kept = append(p.Kept, path("hidden")+"/kept")
			t.Cleanup(func() { removeWorkDir(t, path("work")) })
		}
		runInNamespaces(t, dir, p)
		for i, name := range names {
			at := filepath.Join(dir, strconv.Itoa(i))
			if got := readFiles(t, at, "layer/"+name+"/file", "upper/"+name+"/file", "writable/"+name+"/file", "writable/"+name+"/fixed", "private/"+name+"/file"); got != "old new new old old" {
				t.Errorf("%q: %s", name, got)
			}
		}
		return
	}
	dir, p := applyPlan(t)
	requireWritable(t, p)
	restrictSelf(t, p)
	for i, name := range names {
		at := filepath.Join(dir, strconv.Itoa(i))
		for _, kind := range []string{"layer", "writable", "private"} {
			if err := os.WriteFile(filepath.Join(at, kind, name, "file"), []byte("new"), 0o600); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		requireErrno(t, "fixed", os.WriteFile(filepath.Join(at, "writable", name, "fixed"), []byte("new"), 0o600), unix.EROFS)
		if got := listDir(t, filepath.Join(at, "hidden", name)) + readFiles(t, at, "hidden/"+name+"/kept/file"); got != "keptold" {
			t.Errorf("%q: %s", name, got)
		}
	}
}

func TestProcShowsOnlySandboxAndIsReadOnly(t *testing.T) {
	if isParent(t) {
		runInNamespaces(t, "", walls.Plan{})
		return
	}
	_, p := applyPlan(t)
	requireErrno(t, "core_pattern", os.WriteFile("/proc/sys/kernel/core_pattern", []byte("x"), 0), unix.EROFS)
	requireErrno(t, "userns", os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("9"), 0), unix.EROFS)
	for _, name := range procHidden {
		if data, err := os.ReadFile("/proc/" + name); len(data) != 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	restrictSelf(t, p)
	var pids []string
	others, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	writable := 0
	for _, e := range others {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 || e.Name() == "pressure" { // any process may open a pressure file for writing, to register a poll trigger
			continue
		}
		_ = filepath.WalkDir("/proc/"+e.Name(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
				t.Errorf("%s can be written", path)
			}
			writable++
			return nil
		})
	}
	if !slices.Equal(pids, []string{"1"}) || writable < 100 {
		t.Errorf("processes %v, %d files", pids, writable)
	}
	// A process may write these attributes of itself.
	for file, value := range map[string]string{"/proc/self/comm": "other", "/proc/self/oom_score_adj": "500", "/proc/thread-self/comm": "other"} {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func TestDevHoldsMinimalDevices(t *testing.T) {
	if isParent(t) {
		runInNamespaces(t, "", walls.Plan{})
		return
	}
	_, p := applyPlan(t)
	restrictSelf(t, p)
	if got := listDir(t, "/dev"); got != "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero" {
		t.Errorf("got %s", got)
	}
	if err := os.WriteFile("/dev/null", []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	requireErrno(t, "full", os.WriteFile("/dev/full", []byte("x"), 0o600), unix.ENOSPC)
	for _, name := range []string{"zero", "random", "urandom"} {
		f, err := os.Open("/dev/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Read(make([]byte, 8)); n != 8 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		f.Close()
	}
	if err := os.WriteFile("/dev/shm/file", []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	requireErrno(t, "/dev", os.Remove("/dev/fd"), unix.EROFS)
	for _, mode := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		if err := unix.Mknod("/dev/shm/device", mode|0o600, int(unix.Mkdev(1, 3))); err == nil {
			t.Error("mknod made a device")
		}
	}

	// The private devpts allocates a pseudo-terminal.
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(master)
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(slave)
	if err := unix.IoctlSetWinsize(slave, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 80}); err != nil {
		t.Error(err)
	}
	key := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(slave), unix.TIOCSTI, uintptr(unsafe.Pointer(&key)))
	requireErrno(t, "TIOCSTI", errno, unix.EPERM)
	disguised := uint64(1)<<32 | unix.TIOCSTI // the kernel reads only the lower 32 bits of the request
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(slave), uintptr(disguised), uintptr(unsafe.Pointer(&key)))
	requireErrno(t, "TIOCSTI with upper bits set", errno, unix.EPERM)
}

func TestSandboxHasOwnHostnameAndLoopback(t *testing.T) {
	if isParent(t) {
		name, err := os.Hostname()
		runInNamespaces(t, "", walls.Plan{Hostname: "agency-box", Network: walls.NoNetwork})
		if after, err2 := os.Hostname(); after != name || err != nil || err2 != nil {
			t.Errorf("%s, %v, %v", after, err, err2)
		}
		return
	}
	_, p := applyPlan(t)
	restrictSelf(t, p)
	if name, err := os.Hostname(); name != "agency-box" || err != nil {
		t.Errorf("%s, %v", name, err)
	}
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	local := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 8080}
	if err := errors.Join(err, unix.Bind(server, local), unix.Listen(server, 1), dialTCP(0, local)); err != nil {
		t.Error(err)
	}
	remote := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 80}
	requireErrno(t, "TCP", dialTCP(unix.IPPROTO_TCP, remote), unix.ENETUNREACH)
	if err := dialTCP(unix.IPPROTO_MPTCP, remote); err == nil { // the error differs between kernels with and without MPTCP
		t.Error("MPTCP reaches the network")
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	requireErrno(t, "UDP", unix.Sendto(udp, []byte("x"), 0, remote), unix.ENETUNREACH)
}

func dialTCP(protocol int, to unix.Sockaddr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

func TestApplyErrorNamesPathAndReason(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "file=x", "dir/", "link->dir", "upper/", "work/")
		runInNamespaces(t, dir, walls.Plan{})
		return
	}
	dir := os.Getenv(dirVariable)
	for _, c := range []struct {
		plan walls.Plan
		want string
		is   unix.Errno
	}{
		{walls.Plan{Writable: joinAll(dir, "missing")}, "writable " + dir + "/missing: no such file or directory", unix.ENOENT},
		{walls.Plan{Fixed: joinAll(dir, "missing")}, "fixed " + dir + "/missing: no such file or directory", unix.ENOENT},
		{walls.Plan{Overlays: []walls.OverlayMount{{Path: dir + "/missing", Upper: dir + "/upper", Work: dir + "/work"}}}, "layered " + dir + "/missing: no such file or directory", unix.ENOENT},
		{walls.Plan{Overlays: []walls.OverlayMount{{Path: dir + "/dir", Upper: dir + "/missing", Work: dir + "/work"}}}, "overlay on " + dir + "/dir: " + dir + "/missing: no such file or directory", unix.ENOENT},
		{walls.Plan{Overlays: []walls.OverlayMount{{Path: dir + "/file", Upper: dir + "/upper", Work: dir + "/work"}}}, "layered " + dir + "/file: not a directory", unix.ENOTDIR},
		{walls.Plan{Overlays: []walls.OverlayMount{{Path: dir + "/dir", Upper: "/proc", Work: dir + "/work"}}}, "overlay on " + dir + "/dir: /proc must not be changed by a plan", 0},
		{walls.Plan{Private: joinAll(dir, "file")}, "private " + dir + "/file: not a directory", unix.ENOTDIR},
		{walls.Plan{Writable: joinAll(dir, "link")}, "writable " + dir + "/link: a symbolic link in the path", unix.ELOOP},
		{walls.Plan{Hidden: joinAll(dir, "link/file")}, "hidden " + dir + "/link/file: a symbolic link in the path", unix.ELOOP},
		{walls.Plan{Hidden: joinAll(dir, "file/file")}, "hidden " + dir + "/file/file: not a directory", unix.ENOTDIR},
		{walls.Plan{Kept: joinAll(dir, "link")}, "kept " + dir + "/link: a symbolic link in the path", unix.ELOOP},
		{walls.Plan{Bound: []walls.BindMount{{Path: dir + "/missing", Source: dir + "/upper"}}}, "bound " + dir + "/missing: no such file or directory", unix.ENOENT},
		{walls.Plan{Bound: []walls.BindMount{{Path: dir + "/dir", Source: dir + "/link"}}}, "bound " + dir + "/dir: " + dir + "/link: a symbolic link in the path", unix.ELOOP},
		{walls.Plan{Bound: []walls.BindMount{{Path: dir + "/dir", Source: "/proc"}}}, "mounted at " + dir + "/dir: /proc must not be changed by a plan", 0},
		{walls.Plan{Network: "wireless"}, `unknown network "wireless"`, 0},
		{walls.Plan{Network: walls.NoNetwork}, "network loopback: loopback: operation not permitted", unix.EPERM}, // the test runs in the host's network namespace
	} {
		if c.plan.Network == "" {
			c.plan.Network = walls.HostNetwork
		}
		err := Apply(c.plan)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || c.is != 0 && !errors.Is(err, c.is) {
			t.Errorf("%+v: %v", c.plan, err)
		}
		if c.plan.Fixed != nil || c.plan.Network != walls.HostNetwork {
			return // by then Apply has changed the mounts and cannot run again
		}
	}
}

// TestApplyOrdinaryPlan applies and restricts a typical plan; BenchmarkWalls runs it for its timings.
func TestApplyOrdinaryPlan(t *testing.T) {
	if isParent(t) {
		dir, p := ordinarySandbox(t)
		runInNamespaces(t, dir, p)
		return
	}
	began := time.Now()
	dir, p := applyPlan(t)
	raised := time.Now()
	restrictSelf(t, p)
	fmt.Printf("%s %d %d\n", timingPrefix, raised.Sub(began).Microseconds(), time.Since(raised).Microseconds())
	if got := listDir(t, "/run") + listDir(t, "/var/tmp") + listDir(t, "/root"); got != "" {
		t.Errorf("got %s", got)
	}
	for _, name := range []string{"/tmp/new", "/run/new", filepath.Join(dir, "sandbox/tree/new"), filepath.Join(dir, "repo/.git/new")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// timingPrefix begins the line in which TestApplyOrdinaryPlan reports the time of Apply and of Restrict.
const timingPrefix = "raised and shut in µs:"

// ordinarySandbox makes the files and the plan of a typical sandbox.
func ordinarySandbox(t testing.TB) (string, walls.Plan) {
	t.Helper()
	dir := makeFiles(t, "repo/.git/config=old", "repo/file=seen", "sandbox/tree/.git=gitdir", "sandbox/walls/git/upper/", "sandbox/walls/git/work/", "home/.ssh/key=s3cret", "home/.config/git/config=seen", "home/.netrc=s3cret")
	t.Cleanup(func() { removeWorkDir(t, filepath.Join(dir, "sandbox/walls/git/work")) })
	return dir, walls.Plan{
		Hostname: "sandbox",
		Network:  walls.NoNetwork,
		Private:  []string{"/tmp", "/run", "/var/tmp"},
		Hidden:   append(joinAll(dir, "sandbox", "home", "home/.ssh"), "/root", "/home", "/mnt", "/media", "/srv", "/var/log"),
		Kept:     joinAll(dir, "home/.config/git"),
		Writable: joinAll(dir, "sandbox/tree"),
		Overlays: []walls.OverlayMount{{Path: dir + "/repo/.git", Upper: dir + "/sandbox/walls/git/upper", Work: dir + "/sandbox/walls/git/work"}},
		Fixed:    joinAll(dir, "sandbox/tree/.git"),
	}
}

func BenchmarkWalls(b *testing.B) {
	dir, p := ordinarySandbox(b)
	var raise, shut []float64
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), "/proc/self/exe", "-test.run=^TestApplyOrdinaryPlan$")
		cmd.Env = append(os.Environ(), reexecVariable+"=yes")
		if err := configureNamespaces(cmd, dir, p); err != nil {
			b.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		var r, s float64
		if _, scanErr := fmt.Sscanf(string(out), timingPrefix+" %f %f", &r, &s); err != nil || scanErr != nil {
			b.Fatalf("%v, %v: %s", err, scanErr, out)
		}
		raise, shut = append(raise, r), append(shut, s)
	}
	slices.Sort(raise)
	slices.Sort(shut)
	b.ReportMetric(raise[len(raise)/2], "µs/raise")
	b.ReportMetric(shut[len(shut)/2], "µs/shut")
}

func TestApplyRefusesOutsideProcessOne(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(walls.Plan{Network: walls.HostNetwork}); err == nil || !strings.Contains(err.Error(), "process 1") {
		t.Error(err)
	}
	if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%v: before\n%safter\n%s", err, before, after)
	}
}

const (
	planVariable = "CONFINE_TEST_PLAN"
	dirVariable  = "CONFINE_TEST_HOUSE"
)

// isParent reports whether the test runs on the host and must still start itself in namespaces.
// It marks the host side as parallel.
func isParent(t *testing.T) bool {
	t.Helper()
	if os.Getenv(reexecVariable) != "" {
		return false
	}
	t.Parallel()
	return true
}

// runInNamespaces runs the test again as process 1 of new namespaces, in which Apply can mount.
func runInNamespaces(t *testing.T, dir string, p walls.Plan) {
	t.Helper()
	rerunTest(t, t.Name(), func(cmd *exec.Cmd) error { return configureNamespaces(cmd, dir, p) })
}

// configureNamespaces passes the plan and the directory to cmd and gives it namespaces of its own.
func configureNamespaces(cmd *exec.Cmd, dir string, p walls.Plan) error {
	if p.LandlockABI == 0 {
		p.LandlockABI, _ = landlock.ABI()
	}
	if p.Network == "" {
		p.Network = walls.HostNetwork
	}
	var plan bytes.Buffer // gob, because JSON cannot hold names that are not UTF-8
	if err := gob.NewEncoder(&plan).Encode(p); err != nil {
		return err
	}
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, planVariable+"="+base64.StdEncoding.EncodeToString(plan.Bytes()), dirVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_CHROOT},
	}
	if p.Network != walls.HostNetwork {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	return nil
}

// planFromEnv decodes the plan that configureNamespaces passed on.
func planFromEnv(t *testing.T) (p walls.Plan) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(os.Getenv(planVariable))
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(data)).Decode(&p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// applyPlan applies the plan that the parent process passed on.
func applyPlan(t *testing.T) (dir string, p walls.Plan) {
	t.Helper()
	p = planFromEnv(t)
	if err := Apply(p); err != nil {
		t.Fatal(err)
	}
	return os.Getenv(dirVariable), p
}

// makeFiles makes entries in a temporary directory: "dir/", "file=content" or "link->target".
func makeFiles(t testing.TB, what ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, w := range what {
		var err error
		if name, target, is := strings.Cut(w, "->"); is {
			err = os.Symlink(target, filepath.Join(dir, name))
		} else if strings.HasSuffix(w, "/") {
			err = os.MkdirAll(filepath.Join(dir, w), 0o755)
		} else {
			i := strings.LastIndex(w, "=")
			name := filepath.Join(dir, w[:i])
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(w[i+1:]), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// joinAll joins each name to dir.
func joinAll(dir string, names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// describeDir lists every entry below dir with its mode, modification time and content hash.
func describeDir(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s %s", path, fi.Mode(), fi.ModTime())
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(data))
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return b.String()
}

// removeWorkDir removes the kernel's subdirectory of an overlay work directory: it has no permissions
// and may hold whiteouts.
func removeWorkDir(t testing.TB, work string) {
	t.Helper()
	if err := durable.RemoveTree(filepath.Join(work, "work")); err != nil {
		t.Error(err)
	}
}

// readFiles returns the contents of the named files, separated by spaces.
func readFiles(t *testing.T, dir string, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, " ")
}

// listDir returns the names in dir, separated by spaces.
func listDir(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func requireErrno(t *testing.T, what string, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v instead of %v", what, err, want)
	}
}

// requireWritable checks /proc/self/mountinfo: only the mounts the plan makes writable and those private to
// the namespace are read-write, and every mount is nosuid.
func requireWritable(t *testing.T, p walls.Plan) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	may := slices.Concat([]string{"/proc", "/dev/pts", "/dev/shm", p.Home.Path}, p.Private, p.Writable)
	for _, l := range p.Overlays {
		may = append(may, l.Path)
	}
	_, fixtures, err := orderMounts(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		if f.kind == pinned {
			may = append(may, f.path)
		}
	}
	escapes := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		at, options := escapes.Replace(fields[4]), strings.Split(fields[5], ",")
		if slices.Contains(options, "rw") && !slices.Contains(may, at) {
			t.Errorf("unexpected read-write mount: %s", line)
		}
		if !slices.Contains(options, "nosuid") || !slices.Contains(options, "nodev") && !guard.IsOrContains("/dev", at) {
			t.Errorf("mount allows setuid or devices: %s", line)
		}
	}
}
