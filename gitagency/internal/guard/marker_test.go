package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestMarkerIsInRequiresRegularFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(t *testing.T, tree string)
		want    bool
	}{
		"nothing":               {func(t *testing.T, tree string) {}, false},
		"an empty directory":    {func(t *testing.T, tree string) { mkdir(t, tree, AgencyDir) }, false},
		"the marker":            {func(t *testing.T, tree string) { write(t, "", tree, AgencyDir, "SANDBOX_MARKER") }, true},
		"with other content":    {func(t *testing.T, tree string) { write(t, "x", tree, AgencyDir, "SANDBOX_MARKER") }, true},
		"the other marker":      {func(t *testing.T, tree string) { write(t, "", tree, AgencyDir, "INTEGRATION_MARKER") }, false},
		"another letter case":   {func(t *testing.T, tree string) { write(t, "", tree, AgencyDir, "sandbox_marker") }, false},
		"a file as .agency":     {func(t *testing.T, tree string) { write(t, "", tree, AgencyDir) }, false},
		"a directory as marker": {func(t *testing.T, tree string) { mkdir(t, tree, AgencyDir, "SANDBOX_MARKER") }, false},
		"a FIFO as marker":      {func(t *testing.T, tree string) { fifo(t, tree, AgencyDir, "SANDBOX_MARKER") }, false},
		"a FIFO as .agency":     {func(t *testing.T, tree string) { fifo(t, tree, AgencyDir) }, false},
		"a symlink as marker": {func(t *testing.T, tree string) {
			link(t, write(t, "", t.TempDir(), "real"), tree, AgencyDir, "SANDBOX_MARKER")
		}, false},
		"a dangling symlink": {func(t *testing.T, tree string) { link(t, "/nowhere", tree, AgencyDir, "SANDBOX_MARKER") }, false},
		"a symlink as .agency": {func(t *testing.T, tree string) {
			write(t, "", tree, "real", "SANDBOX_MARKER")
			link(t, "real", tree, AgencyDir)
		}, false},
		"a symlink to a marked tree": {func(t *testing.T, tree string) {
			link(t, filepath.Dir(write(t, "", t.TempDir(), AgencyDir, "SANDBOX_MARKER")), tree, AgencyDir)
		}, false},
		"in a subdirectory": {func(t *testing.T, tree string) { write(t, "", tree, "sub", AgencyDir, "SANDBOX_MARKER") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := tempDir(t)
			c.arrange(t, tree)
			if got, err := Sandbox.IsIn(tree); err != nil || got != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	for _, tree := range []string{"/no/such/tree", write(t, "", t.TempDir(), "file")} {
		if got, err := Sandbox.IsIn(tree); err != nil || got {
			t.Errorf("%s: %v, %v", tree, got, err)
		}
	}
}

func TestMarkerWriteAndRemove(t *testing.T) {
	t.Parallel()
	for _, m := range []Marker{Integration, Sandbox} {
		tree := tempDir(t)
		made, err := m.Write(tree)
		if err != nil || !made {
			t.Fatalf("%s: %v, %v", m.Name, made, err)
		}
		if in, err := m.IsIn(tree); err != nil || !in {
			t.Errorf("%s: in %v, %v", m.Name, in, err)
		}
		data, err := os.ReadFile(filepath.Join(tree, ".agency", m.Name))
		if err != nil || string(data) != m.content || m.content == "" {
			t.Errorf("%s holds %q, %v", m.Name, data, err)
		}
		made, err = m.Write(tree)
		if !errors.Is(err, fs.ErrExist) || made {
			t.Errorf("second Write of %s: %v, %v", m.Name, made, err)
		}
		for range 2 {
			must(t, m.Remove(tree))
			if exists(filepath.Join(tree, AgencyDir)) {
				t.Errorf("%s: .agency was not removed", m.Name)
			}
		}
	}
	must(t, Sandbox.Remove(filepath.Join(tempDir(t), "gone")))
	if _, err := Sandbox.Write(filepath.Join(tempDir(t), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a tree that is not there: %v", err)
	}
	if Integration.Path("/t") != "/t/.agency/INTEGRATION_MARKER" || Sandbox.Path("/t") != "/t/.agency/SANDBOX_MARKER" {
		t.Error("unexpected marker paths")
	}
}

func TestConcurrentMarkerWriteSucceedsOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		tree := tempDir(t)
		var wrote, made atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				m, err := Sandbox.Write(tree)
				if err == nil {
					wrote.Add(1)
				}
				if m {
					made.Add(1)
				}
			})
		}
		wg.Wait()
		if wrote.Load() != 1 || made.Load() != 1 {
			t.Fatalf("%d wrote it, %d made the directory", wrote.Load(), made.Load())
		}
	}
}

func TestMarkerWriteFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(t *testing.T, tree, outside string){
		"a symlink out":           func(t *testing.T, tree, outside string) { link(t, outside, tree, AgencyDir) },
		"a symlink out, relative": func(t *testing.T, tree, outside string) { link(t, "../outside", tree, AgencyDir) },
		"a symlink to nowhere":    func(t *testing.T, tree, outside string) { link(t, filepath.Join(outside, "new"), tree, AgencyDir) },
		"a symlink inside":        func(t *testing.T, tree, outside string) { mkdir(t, tree, "in"); link(t, "in", tree, AgencyDir) },
		"a symlink to the tree":   func(t *testing.T, tree, outside string) { link(t, ".", tree, AgencyDir) },
		"a marker symlink out": func(t *testing.T, tree, outside string) {
			link(t, filepath.Join(outside, "x"), tree, AgencyDir, Sandbox.Name)
		},
		"a marker symlink to a file": func(t *testing.T, tree, outside string) {
			link(t, write(t, "mine", outside, "f"), tree, AgencyDir, Sandbox.Name)
		},
		"a file":      func(t *testing.T, tree, outside string) { write(t, "mine", tree, AgencyDir) },
		"a pipe":      func(t *testing.T, tree, outside string) { fifo(t, tree, AgencyDir, Sandbox.Name) },
		"a directory": func(t *testing.T, tree, outside string) { mkdir(t, tree, AgencyDir, Sandbox.Name) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			tree, outside := mkdir(t, root, "tree"), mkdir(t, root, "outside")
			arrange(t, tree, outside)
			before := describeTree(t, root)
			made, err := Sandbox.Write(tree)
			if err == nil || made {
				t.Errorf("got %v, %v", made, err)
			}
			if after := describeTree(t, root); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// describeTree lists every entry below root with its type and content.
func describeTree(t *testing.T, root string) string {
	t.Helper()
	var all string
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		content := ""
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		all += d.Type().String() + " " + path + " " + content + "\n"
		return nil
	}))
	return all
}

func TestMarkerRemoveKeepsForeignFiles(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	tree := mkdir(t, root, "tree")
	mustWrite(t)(Sandbox.Write(tree))
	mustWrite(t)(Integration.Write(tree))
	write(t, "mine", tree, AgencyDir, "notes")
	must(t, Sandbox.Remove(tree))
	if exists(Sandbox.Path(tree)) || !exists(Integration.Path(tree)) || !exists(filepath.Join(tree, AgencyDir, "notes")) {
		t.Errorf("left: %s", describeTree(t, tree))
	}

	// Nothing outside is removed through a symlink, neither as .agency nor as the marker.
	outside := mkdir(t, root, "outside")
	write(t, "mine", outside, Sandbox.Name)
	other := mkdir(t, root, "other")
	link(t, "../outside", other, AgencyDir)
	_ = Sandbox.Remove(other)
	third := mkdir(t, root, "third")
	link(t, "../../outside/"+Sandbox.Name, third, AgencyDir, Sandbox.Name)
	_ = Sandbox.Remove(third)
	if !exists(filepath.Join(outside, Sandbox.Name)) {
		t.Error("a file outside was removed")
	}
}

func mustWrite(t *testing.T) func(bool, error) {
	return func(_ bool, err error) { t.Helper(); must(t, err) }
}

// TestMarkerWriteStaysInsideDuringSwaps replaces .agency by a directory and by a symlink out of the tree in a loop while
// markers are written: nothing may appear outside.
func TestMarkerWriteStaysInsideDuringSwaps(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	tree, outside := mkdir(t, root, "tree"), mkdir(t, root, "outside")
	dir, way := filepath.Join(tree, AgencyDir), filepath.Join(tree, "way")
	mkdir(t, way+"-dir")
	link(t, outside, way+"-link")

	done := make(chan struct{})
	var wg sync.WaitGroup
	var swaps, written, refused int
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			// way-dir and way-link take turns as .agency. Both stay in the tree.
			_ = syscall.Rename(way+"-dir", dir)
			_ = syscall.Rename(dir, way+"-dir")
			_ = syscall.Rename(way+"-link", dir)
			_ = syscall.Rename(dir, way+"-link")
			_ = os.Remove(dir)
			if _, err := os.Lstat(way + "-link"); err != nil {
				_ = os.Symlink(outside, way+"-link")
			}
			if _, err := os.Lstat(way + "-dir"); err != nil {
				_ = os.Mkdir(way+"-dir", 0o755)
			}
			swaps++
		}
	})
	for range 3000 {
		if _, err := Sandbox.Write(tree); err == nil {
			written++
		} else {
			refused++
		}
		if exists(filepath.Join(outside, Sandbox.Name)) {
			t.Error("the marker is outside")
			break
		}
		_ = Sandbox.Remove(tree)
		_ = os.Remove(filepath.Join(way+"-dir", Sandbox.Name))
	}
	close(done)
	wg.Wait()
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("entries outside: %v, %v", entries, err)
	}
	if swaps == 0 || refused == 0 {
		t.Logf("no write met a swap: %d swaps, %d written, %d refused", swaps, written, refused)
	}
}

// TestMarkerRemoveStaysInsideDuringSwaps does the same for Remove: nothing outside may be removed.
func TestMarkerRemoveStaysInsideDuringSwaps(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	tree, outside := mkdir(t, root, "tree"), mkdir(t, root, "outside")
	precious := write(t, "mine", outside, Sandbox.Name)
	dir, real, away := filepath.Join(tree, AgencyDir), filepath.Join(tree, "real"), filepath.Join(tree, "link")
	mkdir(t, real)
	link(t, outside, away)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = syscall.Rename(real, dir)
			_ = syscall.Rename(dir, real)
			_ = syscall.Rename(away, dir)
			_ = syscall.Rename(dir, away)
			if _, err := os.Lstat(away); err != nil {
				_ = os.Symlink(outside, away)
			}
			if _, err := os.Lstat(real); err != nil {
				_ = os.Mkdir(real, 0o755)
			}
		}
	})
	for range 3000 {
		_ = Sandbox.Remove(tree)
		if !exists(precious) {
			t.Error("a file outside was removed")
			break
		}
	}
	close(done)
	wg.Wait()
}

// TestMarkerRemoveIgnoresForeignAgency: Remove undoes an interrupted adoption even if no marker was written, but a
// .agency that is not a directory belongs to the user.
func TestMarkerRemoveIgnoresForeignAgency(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(t *testing.T, tree string){
		"a symlink to nowhere": func(t *testing.T, tree string) { link(t, "not-mounted", tree, AgencyDir) },
		"a symlink inside": func(t *testing.T, tree string) {
			write(t, "mine", tree, "in", Integration.Name)
			link(t, "in", tree, AgencyDir)
		},
		"a file": func(t *testing.T, tree string) { write(t, "mine", tree, AgencyDir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := tempDir(t)
			arrange(t, tree)
			before := describeTree(t, tree)
			if marked, err := Integration.IsIn(tree); err != nil || marked {
				t.Fatalf("marked %v, %v", marked, err)
			}
			if err := Integration.Remove(tree); err != nil {
				t.Errorf("Remove on the unmarked %s: %v", filepath.Base(tree), err)
			}
			if after := describeTree(t, tree); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}
