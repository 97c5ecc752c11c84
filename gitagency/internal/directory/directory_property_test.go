package directory

import (
	"flag"
	"fmt"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

var directoryCases = flag.Int("directory-cases", 0, "random trees to onboard (0: 60, or 12 with -short)")

// A checkout of any snapshot of a directory equals the directory at that time, for random trees and random changes.
func TestDirectoryCheckoutEqualsRandomTree(t *testing.T) {
	t.Parallel()
	cases := *directoryCases
	if cases == 0 {
		cases = 60
		if testing.Short() {
			cases = 12
		}
	}
	for seed := range cases {
		l := newTestDirectory(t)
		r := rand.New(rand.NewPCG(uint64(seed), 6))
		l.changeRandomly(r, 25)
		d := l.onboard()
		states := []map[string]string{l.readTree(l.dir, false)}
		names := []string{d.FirstSnapshot.ID}
		for range 2 {
			l.changeRandomly(r, 8)
			names = append(names, l.takeSnapshot(d, snapshots.TakeRequest{}).ID)
			states = append(states, l.readTree(l.dir, false))
		}
		for i, name := range names {
			l.checkEqual(fmt.Sprintf("seed %d, snapshot %d", seed, i+1), l.checkoutFiles(d, name), states[i])
		}
		if t.Failed() {
			return
		}
	}
}

// changeRandomly makes random changes to the directory: files, links, modes and removals, under unusual names.
func (l *testDirectory) changeRandomly(r *rand.Rand, times int) {
	l.t.Helper()
	parts := []string{"a", "b", "A", "a b", "new\nline", "\xff\xfe", "ü", "-x", ":(top)", "*", "\\", "\"q\"", "HEAD", "objects", "long" + strings.Repeat("x", 200)}
	for range times {
		path := l.dir
		for range 1 + r.IntN(3) {
			path = filepath.Join(path, parts[r.IntN(len(parts))])
		}
		if above := filepath.Dir(path); os.MkdirAll(above, 0o755) != nil {
			l.must(os.RemoveAll(path[:len(l.dir)+1+strings.IndexByte(path[len(l.dir)+1:]+"/", '/')])) // a file is where a directory is needed
			l.must(os.MkdirAll(above, 0o755))
		}
		switch r.IntN(8) {
		case 0:
			l.must(os.RemoveAll(path))
		case 1:
			l.must(os.RemoveAll(path))
			l.must(os.Symlink(parts[r.IntN(len(parts))], path))
		case 2:
			l.must(os.RemoveAll(path))
			l.must(os.Mkdir(path, 0o755)) // snapshots do not hold empty directories
		default:
			if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
				l.must(os.RemoveAll(path))
			}
			content := strings.Repeat([]string{"line\n", "crlf\r\n", "\x00", "no newline", ""}[r.IntN(5)], r.IntN(50))
			l.must(os.WriteFile(path, []byte(content), 0o644))
			l.must(os.Chmod(path, []os.FileMode{0o644, 0o755, 0o600}[r.IntN(3)]))
		}
	}
}
