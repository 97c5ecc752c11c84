package pathland

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// lab has two directories, a and b, and a sandbox over them.
type lab struct {
	t        *testing.T
	home     string
	repo     *core.Repository
	id       string
	warnings []string
}

// labOptions returns the options of a caller whose home directory is home.
func labOptions(home string) core.Options {
	return core.Options{
		Dir: home, Recover: Recover,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AGENCY_DATA_DIR=" + filepath.Join(home, "data"), "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR=/nowhere"},
	}
}

// newLab makes the directories of files, by path such as "a/file", and a sandbox over them.
func newLab(t *testing.T, files map[string]string) *lab {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, home: home}
	for _, dir := range []string{"a", "b"} {
		l.must(os.Mkdir(filepath.Join(home, dir), 0o755))
	}
	for name, content := range files {
		l.write(name, content)
	}
	l.open()
	inv, err := pathset.Start(t.Context(), l.repo, pathset.StartRequest{Paths: []string{"a", "b"}})
	l.must(err)
	l.id = inv.ID
	return l
}

// open opens the repository anew, as the next command does.
func (l *lab) open() {
	l.t.Helper()
	opts := labOptions(l.home)
	opts.Warn = func(message string) { l.warnings = append(l.warnings, message) }
	var err error
	l.repo, err = pathset.Open(l.t.Context(), opts)
	l.must(err)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// write writes a file of the original directories. Content that begins with "->" makes a symbolic link, with "+x " an executable file.
func (l *lab) write(name, content string) {
	l.t.Helper()
	writeAt(l.t, filepath.Join(l.home, name), content)
}

func writeAt(t *testing.T, path, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.RemoveAll(path)
	}
	target, isLink := strings.CutPrefix(content, "->")
	text, isProgram := strings.CutPrefix(content, "+x ")
	switch {
	case err != nil:
	case isLink:
		err = os.Symlink(target, path)
	case isProgram:
		err = os.WriteFile(path, []byte(text), 0o755)
	default:
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// agent writes a file to the upper directory of the sandbox, as a command in it does; "-" is a whiteout.
func (l *lab) agent(name, content string) {
	l.t.Helper()
	dir, file, _ := strings.Cut(name, "/")
	path := filepath.Join(pathset.UpperDir(l.repo, l.id, filepath.Join(l.home, dir)), file)
	if content != "-" {
		writeAt(l.t, path, content)
		return
	}
	l.must(os.MkdirAll(filepath.Dir(path), 0o755))
	if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
		l.t.Skipf("cannot create whiteouts: %v", err)
	}
}

// files returns the files of the original directories, and of nothing else: type, executable bit and content.
func (l *lab) files() map[string]string {
	l.t.Helper()
	found := map[string]string{}
	for _, dir := range []string{"a", "b"} {
		l.must(filepath.WalkDir(filepath.Join(l.home, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, l.home+"/")
			fi, err := d.Info()
			switch {
			case err != nil:
				return err
			case d.IsDir():
				found[name+"/"] = ""
			case fi.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				found[name] = "->" + target
				return err
			default:
				text, err := os.ReadFile(path)
				if found[name] = string(text); fi.Mode()&0o100 != 0 {
					found[name] = "+x " + string(text)
				}
				return err
			}
			return nil
		}))
	}
	return found
}

// checkFiles compares the files of the original directories, without the directories themselves.
func (l *lab) checkFiles(when string, want map[string]string) {
	l.t.Helper()
	got := l.files()
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasSuffix(name, "/") })
	if !maps.Equal(got, want) {
		l.t.Errorf("%s: the directories have\n%q, want\n%q", when, got, want)
	}
}

func (l *lab) land() (Result, error) { return Land(l.t.Context(), l.repo, l.id, false) }

func (l *lab) record() store.InvocationMeta {
	return l.repo.Store.Invocation(l.repo.ID, l.id, nil).Record
}

func TestLandAppliesChangesToAllDirectories(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]string{
		"a/keep": "keep\n", "a/change": "old\n", "a/gone/x": "x\n", "a/gone/y": "y\n", "a/file": "file\n", "a/dir/z": "z\n", "a/prog": "p\n",
		"b/\xff\xfe": "bytes\n", "b/link": "->keep", "b/same": "same\n",
	})
	before := l.files()
	l.agent("a/change", "new\n")
	l.agent("a/gone", "-")
	l.agent("a/file/below", "below\n") // a file becomes a directory
	l.agent("a/dir", "now a file\n")   // a directory becomes a file
	l.agent("a/prog", "+x p\n")
	l.agent("b/\xff\xfe", "other\n")
	l.agent("b/link", "->elsewhere")
	l.agent("b/new/deep/er", "er\n")
	l.agent("b/same", "same\n") // copied up without a change
	dry, err := Land(t.Context(), l.repo, l.id, true)
	l.must(err)
	if !maps.Equal(l.files(), before) || l.record().HasEnded() {
		t.Errorf("a dry run changed something: %q", l.files())
	}
	res, err := l.land()
	l.must(err)
	l.checkFiles("after the landing", map[string]string{
		"a/keep": "keep\n", "a/change": "new\n", "a/file/below": "below\n", "a/dir": "now a file\n", "a/prog": "+x p\n",
		"b/\xff\xfe": "other\n", "b/link": "->elsewhere", "b/new/deep/er": "er\n", "b/same": "same\n",
	})
	if _, there := l.files()["a/gone/"]; there {
		t.Error("the directory that became empty is still there")
	}
	want := []string{"a/change", "a/dir", "a/dir/z", "a/file", "a/file/below", "a/gone/x", "a/gone/y", "a/prog", "b/link", "b/new/deep/er", "b/\xff\xfe"}
	slices.Sort(want)
	if !slices.Equal(res.Files, want) || !slices.Equal(dry.Files, want) {
		t.Errorf("landed %q, dry run %q, want %q", res.Files, dry.Files, want)
	}
	if m := l.record(); m.Landing != store.Landed || m.LandedCommit == "" {
		t.Errorf("%+v", m)
	}
	if again, err := l.land(); err != nil || !again.Already {
		t.Errorf("a second landing: %+v, %v", again, err)
	}
	if len(l.warnings) > 0 {
		t.Error(l.warnings)
	}
}

func TestLandMergesWithWhatTheDirectoriesAreNow(t *testing.T) {
	t.Parallel()
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	l := newLab(t, map[string]string{"a/text": lines, "a/other": "o\n", "b/b": "b\n"})
	l.agent("a/text", strings.Replace(lines, "9", "nine", 1))
	l.agent("b/b", "agent\n")
	l.write("a/text", strings.Replace(lines, "1", "one", 1))
	l.write("a/other", "person\n")
	l.write("b/person", "new\n")
	_, err := l.land()
	l.must(err)
	l.checkFiles("after the landing", map[string]string{
		"a/text": "one\n2\n3\n4\n5\n6\n7\n8\nnine\n", "a/other": "person\n", "b/b": "agent\n", "b/person": "new\n",
	})
}

func TestLandRefusesConflicts(t *testing.T) {
	t.Parallel()
	base := map[string]string{"a/x": "x\n", "b/y": "y\n", "b/dir/z": "z\n"}
	for name, c := range map[string]struct {
		agent, person map[string]string // "-" removes
		want          string
	}{
		"contents":                {map[string]string{"b/y": "agent\n"}, map[string]string{"b/y": "person\n"}, "b/y"},
		"removed by the agent":    {map[string]string{"b/y": "-"}, map[string]string{"b/y": "person\n"}, "b/y"},
		"removed by the person":   {map[string]string{"b/y": "agent\n"}, map[string]string{"b/y": "-"}, "b/y"},
		"both added":              {map[string]string{"b/new": "agent\n"}, map[string]string{"b/new": "person\n"}, "b/new"},
		"a directory in the way":  {map[string]string{"b/new": "agent\n"}, map[string]string{"b/new/file": "person\n"}, "b/new"},
		"a file in the way":       {map[string]string{"b/new/file": "agent\n"}, map[string]string{"b/new": "person\n"}, "b/new"},
		"a link in the way":       {map[string]string{"b/dir/new": "agent\n"}, map[string]string{"b/dir": "->/etc"}, "b/dir"},
		"a new file in a removed": {map[string]string{"b/dir": "file\n"}, map[string]string{"b/dir/person": "person\n"}, "b/dir"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, base)
			l.agent("a/x", "agent\n") // would apply
			for file, content := range c.agent {
				l.agent(file, content)
			}
			for file, content := range c.person {
				if content == "-" {
					l.must(os.Remove(filepath.Join(l.home, file)))
				} else {
					l.write(file, content)
				}
			}
			before := l.files()
			_, err := l.land()
			var conflicts *fault.ConflictsError
			if !errors.As(err, &conflicts) {
				t.Fatalf("%v; files %q", err, l.files())
			}
			if !slices.ContainsFunc(conflicts.Conflicts, func(c2 fault.Conflict) bool { return strings.HasPrefix(c2.Path, c.want) }) {
				t.Errorf("conflicts %+v, want one in %s", conflicts.Conflicts, c.want)
			}
			if !maps.Equal(l.files(), before) || l.record().HasEnded() {
				t.Errorf("something changed: %q", l.files())
			}
		})
	}
}

// landFiles are the changes of the tests that interrupt a landing: every kind of move, in both directories.
func landFiles(l *lab) (after map[string]string) {
	l.agent("a/change", "new\n")
	l.agent("a/gone", "-")
	l.agent("a/dir", "now a file\n")
	l.agent("b/change", "new b\n")
	l.agent("b/new/file", "new file\n")
	l.agent("b/gone", "-")
	return map[string]string{"a/change": "new\n", "a/dir": "now a file\n", "b/change": "new b\n", "b/new/file": "new file\n", "b/keep": "keep\n"}
}

var landBase = map[string]string{"a/change": "old\n", "a/gone": "gone\n", "a/dir/z": "z\n", "b/change": "old b\n", "b/gone/x": "x\n", "b/keep": "keep\n"}

// landPoints lists the fault points of the landing of landFiles.
func landPoints() (points []string) {
	steps := []string{"journal", "stage", "moving", "sync", "done", "record", "clean", "journal-end"}
	for n := range 9 {
		steps = append(steps, fmt.Sprintf("move-%d", n+1))
	}
	for _, s := range steps {
		points = append(points, "land/"+s+":before", "land/"+s+":after")
	}
	return points
}

// isDone reports whether a landing that ended at a fault point has passed its commit point.
func isDone(point string) bool {
	for _, s := range []string{"done:after", "record:", "clean:", "journal-end:"} {
		if strings.Contains(point, s) {
			return true
		}
	}
	return false
}

func TestFailedLandingChangesNoDirectory(t *testing.T) {
	t.Parallel()
	for i, point := range landPoints() {
		if testing.Short() && i%4 != 1 {
			continue // TestKilledLandingIsUndoneOrCompleted has other points
		}
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, landBase)
			after := landFiles(l)
			before, failure, reached := l.files(), errors.New("fault"), false
			l.repo.Opts.Fault = func(_ context.Context, at string) error {
				if at == point {
					reached = true
					return failure
				}
				return nil
			}
			res, err := l.land()
			if !errors.Is(err, failure) || !reached {
				t.Fatalf("%v, reached: %v", err, reached)
			}
			if stands := fault.Is[*fault.CleanupError](err); stands != isDone(point) || stands != (res.Snapshot != "") {
				t.Errorf("%v, with the result %+v", err, res)
			}
			l.repo.Opts.Fault = nil
			if !isDone(point) && !maps.Equal(l.files(), before) {
				t.Errorf("the directories have %q, had %q", l.files(), before)
			}
			l.open()
			_, err = l.land()
			l.must(err)
			l.checkFiles("the next landing", after)
			l.checkNothingLeft()
		})
	}
}

// checkNothingLeft checks that no landing has left a journal or a staging directory.
func (l *lab) checkNothingLeft() {
	l.t.Helper()
	if _, err := os.Lstat(journalPath(l.repo)); !errors.Is(err, fs.ErrNotExist) {
		l.t.Error("there is still a journal")
	}
	for name := range l.files() {
		if strings.Contains(name, pathset.StagingPrefix) {
			l.t.Error("left: " + name)
		}
	}
}

func TestLandingNoticesChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *lab){
		"content":       func(l *lab) { l.write("b/change", "person\n") },
		"removed file":  func(l *lab) { l.write("b/gone/x", "person\n") },
		"new file":      func(l *lab) { l.write("b/new/file", "person\n") },
		"new in a dir":  func(l *lab) { l.write("a/dir/person", "person\n") },
		"dir to a link": func(l *lab) { l.must(os.RemoveAll(l.home + "/b/gone")); l.must(os.Symlink("/etc", l.home+"/b/gone")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, landBase)
			landFiles(l)
			var before map[string]string
			l.repo.Opts.Fault = func(_ context.Context, at string) error {
				if at == "land/moving:before" {
					change(l)
					before = l.files()
					maps.DeleteFunc(before, func(name, _ string) bool { return strings.Contains(name, pathset.StagingPrefix) })
				}
				return nil
			}
			_, err := l.land()
			if !errors.As(err, new(*ChangedMeanwhileError)) {
				t.Errorf("%v", err)
			}
			if !maps.Equal(l.files(), before) {
				t.Errorf("the directories have %q, had %q", l.files(), before)
			}
			l.checkNothingLeft()
		})
	}
}

// A landing writes nothing to a directory that the sandbox has not changed, which may be read-only.
func TestLandLeavesUnchangedDirectoriesAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]string{"a/file": "old\n", "b/file": "b\n"})
	l.agent("a/file", "new\n")
	before, err := os.Stat(filepath.Join(l.home, "b"))
	l.must(err)
	_, err = l.land()
	l.must(err)
	l.checkFiles("after the landing", map[string]string{"a/file": "new\n", "b/file": "b\n"})
	if after, err := os.Stat(filepath.Join(l.home, "b")); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the unchanged directory was written to: %v, %v", after, err)
	}
}

// A changed file keeps its permissions, also those to execute it that git does not record. A new one in a set-group-ID directory gets the
// group of that directory.
func TestLandKeepsPermissionsAndGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]string{"a/x": "+x old\n", "a/data": "old\n", "a/becomes": "old\n", "a/shared/old": "old\n", "a/own/old": "old\n"})
	at := func(name string) string { return filepath.Join(l.home, name) }
	for name, mode := range map[string]uint32{"a": 0o2755, "a/shared": 0o2775, "a/own": 0o755, "a/x": 0o711, "a/data": 0o654, "a/becomes": 0o640} {
		if os.Geteuid() == 0 && mode&unix.S_ISGID != 0 {
			l.must(os.Chown(at(name), -1, 12345))
		}
		l.must(unix.Chmod(at(name), mode))
	}
	l.agent("a/x", "+x new\n")
	l.agent("a/data", "new\n")
	l.agent("a/becomes", "+x old\n")
	l.agent("a/shared/dir/new", "new\n")
	l.agent("a/own/dir/new", "new\n")
	_, err := l.land()
	l.must(err)
	for name, want := range map[string]uint32{"a/x": 0o711, "a/data": 0o654, "a/becomes": 0o750, "a/shared/dir": unix.S_ISGID, "a/own/dir": 0} {
		var st, parent unix.Stat_t
		l.must(unix.Lstat(at(name), &st))
		got := st.Mode & 0o7777
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			got &= unix.S_ISGID
			l.must(unix.Lstat(filepath.Dir(at(name)), &parent))
			var file unix.Stat_t
			l.must(unix.Lstat(at(name+"/new"), &file))
			if st.Gid != parent.Gid || file.Gid != parent.Gid {
				t.Errorf("%s has the group %d, the file in it %d; want %d", name, st.Gid, file.Gid, parent.Gid)
			}
		}
		if got != want {
			t.Errorf("%s has the mode %o, want %o", name, got, want)
		}
	}
}
