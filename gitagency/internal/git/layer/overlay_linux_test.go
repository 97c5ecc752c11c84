package layer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// mounted is an overlay that a process of its own mounts, and what it finds there.
type mounted struct {
	Lowers []string // the top one first
	Upper  string
	Work   string
	At     string
	GitDir string            // where git status runs
	Env    []string          // of git
	Files  map[string]string // as describe returns them
	Stats  map[string]string // stat data of the files, as an index has it, without the device
	Status string
}

const (
	mountVariable  = "LAYER_TEST_MOUNT"
	ensureVariable = "LAYER_TEST_ENSURE"
)

// TestMain runs the processes that mount an overlay and that make a layer.
func TestMain(m *testing.M) {
	if text := os.Getenv(ensureVariable); text != "" {
		if err := ensureAlone(strings.Split(text, ":")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(mountVariable); text != "" {
		if err := mountAndDescribe(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ensureAlone makes a layer and, on a small file system, prints what a failure left.
func ensureAlone(args []string) error {
	req := Request{Dir: args[0], Tree: args[1], Source: checkout.Source{Tree: args[2], GitDir: args[3]}}
	small := os.Getenv("LAYER_TEST_TMPFS") != ""
	if small {
		if err := unix.Mount("none", req.Dir, "tmpfs", 0, "size=2m"); err != nil {
			return fmt.Errorf("cannot mount a tmpfs: %w", err)
		}
	}
	repo, err := git.Open(context.Background(), ".", os.Environ())
	if err == nil {
		_, _, _, err = Ensure(context.Background(), repo, req)
	}
	if small {
		left, _ := filepath.Glob(req.Dir + "/*")
		fmt.Println("left:", left)
	}
	return err
}

// inNamespace lets a process mount file systems, as the same user.
func inNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER},
	}
}

// mountAndDescribe mounts an overlay and prints what is in it.
func mountAndDescribe(text string) error {
	var m mounted
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	options := fmt.Sprintf("userxattr,lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(m.Lowers, ":"), m.Upper, m.Work)
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("overlay", m.At, "overlay", 0, options)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	var err error
	if m.Files, err = describeFiles(m.At); err != nil {
		return err
	}
	m.Stats = map[string]string{}
	for name := range m.Files {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(m.At, name), &st); err != nil {
			return err
		}
		st.Dev = 0
		m.Stats[name] = fmt.Sprintf("%x", index.EncodeStat(&st, 0))
	}
	if m.GitDir != "" {
		cmd := exec.Command("git", "--no-optional-locks", "--git-dir="+m.GitDir, "--work-tree="+m.At, "status", "--porcelain", "--untracked-files=all")
		cmd.Env = m.Env
		out, err := cmd.CombinedOutput()
		if m.Status = string(out); err != nil {
			return fmt.Errorf("git status: %w: %s", err, out)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// mountOverlay mounts an overlay in a namespace and returns what is there. It skips the test where that is not possible.
func mountOverlay(t *testing.T, m mounted) mounted {
	t.Helper()
	top := gittest.TempDir(t)
	m.Work, m.At = filepath.Join(top, "work"), filepath.Join(top, "merged")
	if m.Upper == "" {
		m.Upper = filepath.Join(top, "upper")
	} else {
		m.Work = filepath.Join(filepath.Dir(m.Upper), "work")
	}
	for _, dir := range []string{m.Work, m.At, m.Upper} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mountVariable+"="+string(text))
	cmd.SysProcAttr = inNamespace()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && (stderr.Len() == 0 || strings.HasPrefix(stderr.String(), "mount: ")) {
		t.Skipf("cannot mount an overlay: %v %s", err, &stderr)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// requireMounted fails the test unless an overlay with a layer, and below an upper directory if there is one, has the files of a
// full layer, which equals git's checkout, and the index has their stat data.
func requireMounted(l *gittest.Fixture, got Layer, upper, indexPath string, full Layer) {
	l.T.Helper()
	gitDir := filepath.Join(gittest.TempDir(l.T), "git")
	l.Must(os.Mkdir(gitDir, 0o755))
	tree, _, _ := strings.Cut(full.Name, "-")
	l.WriteIn(gitDir, "HEAD", l.Git("commit-tree", "-m", "x", tree)+"\n")
	l.WriteIn(gitDir, "commondir", filepath.Join(l.Root, ".git")+"\n")
	l.Must(git.CopyFileWithMtime(indexPath, filepath.Join(gitDir, "index")))
	m := mountOverlay(l.T, mounted{Lowers: got.Lowers, Upper: upper, GitDir: gitDir, Env: l.Env})
	gittest.RequireSame(l.T, fmt.Sprintf("an overlay of %d layers", len(got.Lowers)), m.Files, describe(l.T, full.Lowers[0]))
	if m.Status != "" {
		l.T.Errorf("git status: %s", m.Status)
	}
	data, err := os.ReadFile(indexPath)
	l.Must(err)
	x, err := index.ParseEditable(data, object.FormatOf(tree))
	l.Must(err)
	wanted, err := os.ReadFile(full.Index)
	l.Must(err)
	y, err := index.ParseEditable(wanted, object.FormatOf(tree))
	l.Must(err)
	if x.Fingerprint() == "" || fmt.Sprintf("%x", x.TreeID()) != tree || x.Count != y.Count {
		l.T.Errorf("the index has the tree %x with %d entries", x.TreeID(), x.Count)
	}
	fi, err := os.Stat(indexPath)
	l.Must(err)
	for e := range x.AllEntries() {
		if e.Mode == object.ModeGitlink {
			continue
		}
		stat := slices.Clone(e.Stat)
		clear(stat[16:20]) // the device
		clear(stat[index.ModeOffset : index.ModeOffset+4])
		if got := m.Stats[string(e.Name)]; got != fmt.Sprintf("%x", stat) {
			l.T.Errorf("%s: stat data %x, want %s", e.Name, stat, got)
		}
		if sec := int64(stat[8])<<24 | int64(stat[9])<<16 | int64(stat[10])<<8 | int64(stat[11]); sec >= fi.ModTime().Unix() {
			l.T.Errorf("%s is not older than the index", e.Name)
		}
	}
}

// TestDeltasEqualFullLayers makes layers of random trees, of which most are deltas over others, and compares the overlays with
// full layers. No layer may change after it was made.
func TestDeltasEqualFullLayers(t *testing.T) {
	t.Parallel()
	steps, formats := 60, []string{"sha1", "sha256"}
	if testing.Short() {
		steps, formats = 20, formats[1:] // the other tests use sha1
	}
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			l := gittest.NewEmpty(t)
			l.Git("init", "-q", "--object-format="+format)
			w := newRandomTree(l)
			first := w.write()
			l.Git("update-ref", "HEAD", l.Git("commit-tree", "-m", "first", first))
			repo := repotest.OpenRepo(l)
			dir, fullDir := filepath.Join(gittest.TempDir(t), "layers"), gittest.TempDir(t)
			depths, sum := map[int]int{}, map[string]string{}
			var last Layer
			for step := range steps {
				tree := w.write()
				got, _ := ensure(l, repo, Request{Dir: dir, Tree: tree})
				full, made := ensure(l, repo, Request{Dir: filepath.Join(fullDir, fmt.Sprint(step)), Tree: tree})
				if !made || len(full.Lowers) != 1 {
					t.Fatal("not a full layer")
				}
				depths[len(got.Lowers)]++
				requireMounted(l, got, "", got.Index, full)
				if step > 0 { // and as the upper directory of a sandbox over the last layer
					upper := filepath.Join(gittest.TempDir(t), "upper")
					l.Must(os.Mkdir(upper, 0o755))
					indexPath := filepath.Join(filepath.Dir(upper), "index")
					l.Must(last.Delta(t.Context(), repo, DeltaRequest{Dir: upper, Index: indexPath, Tree: tree, UntrustedConfig: step%2 == 0}))
					requireMounted(l, last, upper, indexPath, full)
					if left := glob(l, filepath.Dir(upper)+"/index?*"); len(left) > 0 {
						t.Errorf("left: %q", left)
					}
				}
				last = got
				now := stamps(l, dir)
				for name, was := range sum {
					if now[name] != was {
						t.Errorf("step %d changed %s: %s, was %s", step, name, now[name], was)
					}
				}
				sum = now
				w.change()
				if t.Failed() {
					t.Fatalf("at step %d, depth %d", step, len(got.Lowers))
				}
			}
			if depths[2] == 0 || depths[maxDepth] == 0 || depths[1] < 2 || depths[maxDepth+1] > 0 {
				t.Errorf("layers by depth: %v", depths)
			}
		})
	}
}

// stamps returns the stat data of all parts of all layers.
func stamps(l *gittest.Fixture, dir string) map[string]string {
	l.T.Helper()
	found := map[string]string{}
	l.Must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || filepath.Dir(path) == dir {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		found[path] = fmt.Sprint(st.Ino, st.Mode, st.Size, st.Mtim, st.Ctim)
		return nil
	}))
	return found
}

// randomTree is a tree with many files of which some change, among them names that are now files and now directories.
type randomTree struct {
	l       *gittest.Fixture
	random  *rand.Rand
	entries map[string]string // "<mode> <oid>" by name
	blobs   []string
}

func newRandomTree(l *gittest.Fixture) *randomTree {
	w := &randomTree{l: l, random: rand.New(rand.NewPCG(1, 2)), entries: map[string]string{}}
	for i := range 8 {
		w.blobs = append(w.blobs, l.MakeBlob(strings.Repeat(fmt.Sprint("content", i), i)))
	}
	for i := range 300 {
		w.entries[fmt.Sprintf("stable/%d/%d", i%10, i)] = "100644 " + w.blobs[i%len(w.blobs)]
	}
	w.change()
	return w
}

// change changes some entries: it replaces files by directories and the other way around, and removes directories.
func (w *randomTree) change() {
	parts := []string{"a", "b", "c"}
	for range 1 + w.random.IntN(8) {
		name := parts[w.random.IntN(3)]
		for w.random.IntN(3) > 0 && len(name) < 7 {
			name += "/" + parts[w.random.IntN(3)]
		}
		for other := range w.entries {
			if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
				delete(w.entries, other)
			}
		}
		blob := w.blobs[w.random.IntN(len(w.blobs))]
		switch w.random.IntN(8) {
		case 0, 1:
			delete(w.entries, name)
		case 2:
			w.entries[name] = "100755 " + blob
		case 3:
			w.entries[name] = "120000 " + w.blobs[1+w.random.IntN(len(w.blobs)-1)]
		case 4:
			w.entries[name] = "160000 " + strings.Repeat("1", len(blob))
		default:
			w.entries[name] = "100644 " + blob
		}
	}
	w.entries[fmt.Sprintf("stable/%d/%d", w.random.IntN(10), 1000+w.random.IntN(1000))] = "100644 " + w.blobs[1] // never the same tree
}

func (w *randomTree) write() string {
	w.l.T.Helper()
	var text strings.Builder
	for name, e := range w.entries {
		fmt.Fprintf(&text, "%s\t%s\n", e, name)
	}
	w.l.Must(os.WriteFile(filepath.Join(w.l.Root, ".git/entries"), []byte(text.String()), 0o644))
	w.l.Shell("rm -f .git/temporary && GIT_INDEX_FILE=.git/temporary git update-index --index-info <.git/entries && GIT_INDEX_FILE=.git/temporary git write-tree >.git/written")
	data, err := os.ReadFile(filepath.Join(w.l.Root, ".git/written"))
	w.l.Must(err)
	return strings.TrimSpace(string(data))
}

// TestDeltaObeysChangedAttributes checks that files are written again whose attributes differ, that such a tree gets a full
// layer, and that an untrusted filter is refused.
func TestDeltaObeysChangedAttributes(t *testing.T) {
	t.Parallel()
	for _, where := range []string{".gitattributes", "dir/.gitattributes"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			for i := range 40 {
				l.Write(fmt.Sprint("dir/more/", i, ".txt"), "x\n")
			}
			first := l.Commit("more")
			l.Write(where, "*.txt eol=crlf\n")
			l.Write("dir/more/1.txt", "changed\n")
			second := l.Commit("attributes")
			repo := repotest.OpenRepo(l)
			req := request(l, repo, first)
			base, _ := ensure(l, repo, req)
			req.Tree, req.Source = l.Git("rev-parse", second+"^{tree}"), checkout.Source{}
			full, _ := ensure(l, repo, req)
			if len(full.Lowers) != 1 {
				t.Errorf("a delta over other attributes: %q", full.Lowers)
			}
			requireCheckout(l, full, full.Lowers[0], second)
			upper := filepath.Join(gittest.TempDir(t), "upper")
			l.Must(os.Mkdir(upper, 0o755))
			indexPath := filepath.Join(filepath.Dir(upper), "index")
			l.Must(base.Delta(t.Context(), repo, DeltaRequest{Dir: upper, Index: indexPath, Tree: req.Tree}))
			requireMounted(l, base, upper, indexPath, full)

			l.Write(where, "*.txt filter=own\n")
			l.Git("config", "filter.own.smudge", "cat")
			l.Git("config", "filter.own.clean", "cat")
			l.Commit("a filter")
			repo = repotest.OpenRepo(l)
			refused := filepath.Join(gittest.TempDir(t), "upper")
			l.Must(os.Mkdir(refused, 0o755))
			err := base.Delta(t.Context(), repo, DeltaRequest{Dir: refused, Index: refused + ".index", Tree: l.Git("rev-parse", "HEAD^{tree}"), UntrustedConfig: true})
			if !errors.As(err, new(*git.UntrustedFilterError)) {
				t.Errorf("an untrusted filter: %v", err)
			}
			if left := glob(l, refused+"*"); len(left) != 1 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
