package checkout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// testCache is the data of a HashCache.
type testCache struct {
	data  []byte
	saves int
}

// ofAllFiles stores any file.
func (c *testCache) ofAllFiles() HashCache {
	settled := c.ofSettledFiles()
	settled.always = true
	return settled
}

func (c *testCache) ofSettledFiles() HashCache {
	return HashCache{
		Load: func() []byte { return c.data },
		Save: func(data []byte) { c.data, c.saves = data, c.saves+1 },
	}
}

// manyFiles is a number of files that is worth a cache.
const manyFiles = 1200

// newSourceOfManyFiles returns a repository with the files many/0 to many/1199 in a commit.
func newSourceOfManyFiles(t *testing.T) (l *gittest.Fixture, commit string) {
	t.Helper()
	l = newSource(t)
	for i := range manyFiles {
		l.Write(fmt.Sprintf("many/%d", i), "content\n")
	}
	return l, l.Commit("many files")
}

// TestFillHashesFilesWithOtherStatData checks that a file is hashed unless the cache has it with the same stat data.
func TestFillHashesFilesWithOtherStatData(t *testing.T) {
	t.Parallel()
	for name, times := range map[string]int{"a small file": 1, "a large file": 100_000} { // larger than a buffer
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSource(t)
			committed, other := strings.Repeat("plain\n", times), strings.Repeat("PLAIN\n", times)
			l.Write("plain", committed)
			l.Git("add", "--all")
			commit := l.Git("commit-tree", "-m", "plain", l.Git("write-tree"))
			l.Git("reset", "-q", "--hard", commit)
			l.Write("plain", other) // by its stat data in the cache, the content of the commit
			var st unix.Stat_t
			l.Must(unix.Lstat(filepath.Join(l.Root, "plain"), &st))
			x := index.File{Format: object.SHA1}
			x.Append(index.EncodeStat(&st, object.ModeFile), object.HashObject(object.SHA1, "blob", []byte(committed)), []byte("plain"))
			data := x.Encode()
			repo := repotest.OpenRepo(l)

			fill := func(id string, data []byte) (content string) {
				w := register(l, repo, id, commit)
				l.Must(Fill(t.Context(), repo, requestFor(l, w, commit, (&testCache{data: data}).ofAllFiles())))
				got, err := os.ReadFile(filepath.Join(w.Tree, "plain"))
				l.Must(err)
				return string(got)
			}
			if fill("20260101000000-aaaa", data) != other {
				t.Error("a file in the cache was hashed")
			}
			if fill("20260101000000-bbbb", data[:len(data)-1]) != committed {
				t.Error("with a damaged cache, the file was not hashed")
			}
			l.Must(os.Chmod(filepath.Join(l.Root, "plain"), 0o600))
			if fill("20260101000000-cccc", data) != committed {
				t.Error("a file with another ctime was not hashed")
			}
		})
	}
}

// TestFillStoresHashesOfManyNewFiles checks when the cache is written.
func TestFillStoresHashesOfManyNewFiles(t *testing.T) {
	t.Parallel()
	l, commit := newSourceOfManyFiles(t)
	repo := repotest.OpenRepo(l)
	fills := 0
	fill := func(c HashCache) {
		fills++
		w := register(l, repo, fmt.Sprintf("20260101000000-%04x", fills), commit)
		l.Must(Fill(t.Context(), repo, requestFor(l, w, commit, c)))
	}
	cache := &testCache{}
	fill(cache.ofSettledFiles())
	if cache.saves != 0 {
		t.Error("files that have just been written were stored")
	}
	for _, step := range []struct {
		touch int // files
		saves int // so far
	}{{0, 1}, {0, 1}, {1, 1}, {manyFiles / 10, 2}, {0, 2}} {
		for i := range step.touch {
			l.Must(os.Chmod(filepath.Join(l.Root, fmt.Sprintf("many/%d", i)), 0o600))
			l.Must(os.Chmod(filepath.Join(l.Root, fmt.Sprintf("many/%d", i)), 0o644))
		}
		fill(cache.ofAllFiles())
		if cache.saves != step.saves {
			t.Errorf("after %d files got another ctime: stored %d times, want %d", step.touch, cache.saves, step.saves)
		}
	}
}
