package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// makeLayers makes layers, the top one first, of lines "path", "path=content", "path/" for a directory, "path/!" for an
// opaque one, "path>target" for a symlink, "path|" for a FIFO and "-path" for a whiteout.
func makeLayers(t *testing.T, layers ...string) []string {
	t.Helper()
	top, dirs := t.TempDir(), []string(nil)
	for i, lines := range layers {
		dir := filepath.Join(top, string(rune('a'+i)))
		must(t, os.Mkdir(dir, 0o700))
		dirs = append(dirs, dir)
		for line := range strings.FieldsSeq(lines) {
			hidden, isWhiteout := strings.CutPrefix(line, "-")
			name, content, _ := strings.Cut(hidden, "=")
			name, target, isLink := strings.Cut(name, ">")
			at := filepath.Join(dir, strings.TrimRight(name, "/!|"))
			must(t, os.MkdirAll(filepath.Dir(at), 0o700))
			switch {
			case isWhiteout:
				if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
					t.Skipf("cannot create whiteouts: %v", err)
				}
			case isLink:
				must(t, os.Symlink(target, at))
			case strings.HasSuffix(name, "|"):
				must(t, unix.Mkfifo(at, 0o600))
			case strings.HasSuffix(name, "/"), strings.HasSuffix(name, "/!"):
				must(t, os.MkdirAll(at, 0o700))
				if err := unix.Setxattr(at, "user.overlay.opaque", []byte("y"), 0); strings.HasSuffix(name, "!") && err != nil {
					t.Skipf("cannot set the opaque mark: %v", err)
				} else if err == nil && !strings.HasSuffix(name, "!") {
					must(t, unix.Removexattr(at, "user.overlay.opaque"))
				}
			default:
				must(t, os.WriteFile(at, []byte(content), 0o600))
			}
		}
	}
	return dirs
}

// list returns the paths below a directory, sorted: with the content of a regular file, the target of a symlink and a slash
// after a directory.
func list(t *testing.T, d *Dir, dir string) (paths []string) {
	t.Helper()
	entries, _, err := d.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		name := strings.TrimPrefix(dir+"/"+e.Name, "./")
		var st unix.Stat_t
		must(t, d.Lstat(name, &st))
		if kindOf(st.Mode) != e.Kind {
			t.Errorf("%s is listed as %v and is %v", name, e.Kind, kindOf(st.Mode))
		}
		switch {
		case e.Kind.IsDir():
			paths = append(append(paths, name+"/"), list(t, d, name)...)
		case e.Kind.IsRegular():
			data, _, err := d.ReadFile(name, 100)
			must(t, err)
			f, _, err := d.OpenFile(name)
			must(t, err)
			must(t, f.Close())
			paths = append(paths, name+"="+string(data))
		case e.Kind&fs.ModeSymlink != 0:
			target, err := d.Readlink(name)
			must(t, err)
			paths = append(paths, name+">"+target)
		default:
			paths = append(paths, name+"|")
		}
	}
	slices.Sort(paths)
	return paths
}

func TestOpenLayersShowsWhatOverlayfsShows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		layers string // separated by ";"
		want   string
		gone   string // names that are not there
	}{
		"one layer":                    {"a=1 d/b=2 -c", "a=1 d/ d/b=2", "c"},
		"merged directories":           {"d/a=1; d/b=2 e/c=3; d/a=0 d/b=0 d/c=3 e/d=4", "d/ d/a=1 d/b=2 d/c=3 e/ e/c=3 e/d=4", "d/d d/e/f"},
		"whiteouts":                    {"-a d/b=2 -d/c; a=1 d/c=3; a=0 d/c=0 d/d=4", "d/ d/b=2 d/d=4", "a d/c"},
		"whiteout of a directory":      {"-d; d/a=1", "", "d d/a"},
		"whiteout in the middle":       {"e=1; -d; d/a=1", "e=1", "d d/a"},
		"directory above a whiteout":   {"d/a=1; -d; d/b=2", "d/ d/a=1", "d/b"},
		"opaque":                       {"d/! d/a=1; d/b=2 d/s/c=3; d/e=4", "d/ d/a=1", "d/b d/s d/s/c d/e"},
		"opaque in the middle":         {"d/a=1; d/! d/b=2; d/c=3", "d/ d/a=1 d/b=2", "d/c"},
		"opaque below":                 {"d/s/! d/s/a=1; d/s/b=2 d/c=3", "d/ d/c=3 d/s/ d/s/a=1", "d/s/b"},
		"file over a directory":        {"d=1; d/a=2", "d=1", "d/a"},
		"directory over a file":        {"d/a=1; d=2; d/b=3", "d/ d/a=1", "d/b"},
		"symlink over a directory":     {"d>e; d/a=2 e/a=3", "d>e e/ e/a=3", "d/a"},
		"directory over a symlink":     {"d/a=1; d>e; e/b=2", "d/ d/a=1 e/ e/b=2", "d/b"},
		"symlink in a lower layer":     {"x=1; d>e e/a=2", "d>e e/ e/a=2 x=1", "d/a"},
		"FIFO over a file":             {"p|; p=1", "p|", "p/x"},
		"nothing in the upper layer":   {"; a=1 d/b=2", "a=1 d/ d/b=2", "c"},
		"empty directory over a file":  {"d/; d=1", "d/", "d/x"},
		"whiteouts of names with dots": {"-.git -.gitignore; .gitignore=1 a=2", "a=2", ".git .gitignore"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d, err := OpenLayers("/shown", makeLayers(t, strings.Split(test.layers, ";")...)...)
			must(t, err)
			defer d.Close()
			want := strings.Fields(test.want)
			slices.Sort(want)
			if got := list(t, d, "."); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			for gone := range strings.FieldsSeq(test.gone) {
				var st unix.Stat_t
				_, _, openErr := d.OpenFile(gone)
				_, linkErr := d.Readlink(gone)
				_, _, dirErr := d.ReadDir(gone)
				for _, err := range []error{d.Lstat(gone, &st), openErr, linkErr, dirErr} {
					if !IsGone(err) || !strings.Contains(err.Error(), "/shown/") {
						t.Errorf("%s: %v", gone, err)
					}
				}
			}
		})
	}
}

// No name may lead out of the layers, through any of them.
func TestOpenLayersFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	tree, secret := makeTree(t)
	dirs := makeLayers(t, "dir/new=1")
	d, err := OpenLayers("/shown", dirs[0], tree)
	must(t, err)
	defer d.Close()
	if target, err := d.Readlink("link"); err != nil || target != secret {
		t.Errorf("Readlink = %q, %v", target, err)
	}
	for _, name := range []string{"link", "fifo", "dir"} { // opening the FIFO must not block
		if _, _, err := d.OpenFile(name); !errors.As(err, new(*NotRegularError)) {
			t.Errorf("OpenFile(%q) = %v; want a NotRegularError", name, err)
		}
	}
	var st unix.Stat_t
	for _, name := range []string{"out/file", "in/deep/file", "../secret", "dir/../../secret", "/etc/passwd", "..", "dir/.."} {
		if f, _, err := d.OpenFile(name); err == nil {
			f.Close()
			t.Errorf("OpenFile(%q) leaves the tree or follows a symlink", name)
		}
		if err := d.Lstat(name, &st); err == nil {
			t.Errorf("Lstat(%q) leaves the tree or follows a symlink", name)
		}
		if _, _, err := d.ReadDir(name); err == nil {
			t.Errorf("ReadDir(%q) leaves the tree or follows a symlink", name)
		}
	}
	must(t, d.Lstat("dir/deep/file", &st))
	must(t, os.Rename(filepath.Join(dirs[0], "dir"), filepath.Join(dirs[0], "was")))
	must(t, os.Symlink("../../outside", filepath.Join(dirs[0], "dir")))
	must(t, d.Lstat("was/new", &st)) // another directory, so that the one before is opened again
	if err := d.Lstat("dir/deep/file", &st); !IsGone(err) {
		t.Errorf("Lstat below a symlink: %v", err)
	}
}

// A program that exchanges names in the upper directory at any moment causes errors at most, and leaves no descriptor open.
func TestOpenLayersWhileTheUpperDirectoryChanges(t *testing.T) {
	t.Parallel()
	dirs := makeLayers(t, "d/f=upper x>/etc -w", "d/f=lower d/g=lower")
	d, err := OpenLayers("/shown", dirs...)
	must(t, err)
	at := func(name string) string { return filepath.Join(dirs[0], name) }
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at("x"), unix.RENAME_EXCHANGE)
				_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at("w"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 2000 {
		for _, name := range []string{"d/f", "d/g", "d/passwd", "x/passwd"} {
			data, _, err := d.ReadFile(name, 1<<20)
			if text := string(data); err == nil && text != "upper" && text != "lower" || err != nil && !IsGone(err) && !errors.As(err, new(*NotRegularError)) {
				t.Fatalf("%s: %q, %v", name, text, err)
			}
			if _, _, err := d.ReadDir("d"); err != nil && !IsGone(err) {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	<-done
	must(t, d.Close())
	must(t, d.Close())
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range open {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, filepath.Dir(dirs[0])+"/") {
			t.Errorf("%s is still open", target)
		}
	}
}

// ReadDir returns the metadata of the directory in the topmost layer that has it.
func TestReadDirOfLayersReturnsTopmostMetadata(t *testing.T) {
	t.Parallel()
	dirs := makeLayers(t, "d/a=1", "d/b=2 e/c=3")
	d, err := OpenLayers("/shown", dirs...)
	must(t, err)
	defer d.Close()
	for name, layer := range map[string]string{".": dirs[0], "d": dirs[0], "e": dirs[1]} {
		var want unix.Stat_t
		must(t, unix.Lstat(filepath.Join(layer, name), &want))
		if _, got, err := d.ReadDir(name); err != nil || got.Ino != want.Ino {
			t.Errorf("%s has the inode %d, want %d, %v", name, got.Ino, want.Ino, err)
		}
	}
}

// ReadLayer lists what is in one layer: whiteouts and whether the directory is opaque too.
func TestReadLayer(t *testing.T) {
	t.Parallel()
	dirs := makeLayers(t, "d/! d/a=1 -d/b e/c=2")
	d, err := Open(dirs[0])
	must(t, err)
	defer d.Close()
	l, err := d.ReadLayer("d")
	if must(t, err); !l.IsOpaque || len(l.Entries) != 1 || l.Entries[0].Name != "a" || !slices.Equal(l.Whiteouts, []string{"b"}) {
		t.Errorf("d is %+v", l)
	}
	if l, err = d.ReadLayer("e"); err != nil || l.IsOpaque || len(l.Entries) != 1 || len(l.Whiteouts) != 0 {
		t.Errorf("e is %+v, %v", l, err)
	}
	if _, err := d.ReadLayer("none"); !IsGone(err) {
		t.Error(err)
	}
}
