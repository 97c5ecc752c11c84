package listing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// Commits of sandboxes that an earlier run has read are not read again, but every change of a branch or a HEAD is seen.
func TestReadTipsSeesEveryChange(t *testing.T) {
	t.Parallel()
	// rewrite writes a file in place and keeps its size and mtime.
	rewrite := func(t *testing.T, file, content string) {
		fi, err := os.Stat(file)
		must(t, err)
		if fi.Size() != int64(len(content)) {
			t.Fatalf("%s has %d bytes, not %d", file, fi.Size(), len(content))
		}
		must(t, os.WriteFile(file, []byte(content), 0o600))
		must(t, os.Chtimes(file, fi.ModTime(), fi.ModTime()))
	}
	for name, change := range map[string]func(t *testing.T, l *sandboxtest.Fixture, ref, head string){
		"nothing": func(*testing.T, *sandboxtest.Fixture, string, string) {},
		"branch written in place": func(t *testing.T, l *sandboxtest.Fixture, ref, _ string) {
			rewrite(t, ref, l.Git("rev-parse", "HEAD~1")+"\n")
		},
		"branch updated": func(_ *testing.T, l *sandboxtest.Fixture, _, _ string) { l.Git("reset", "-q", "--soft", "HEAD~1") },
		"branch packed":  func(_ *testing.T, l *sandboxtest.Fixture, _, _ string) { l.Git("pack-refs", "--all") },
		"branch gone":    func(t *testing.T, _ *sandboxtest.Fixture, ref, _ string) { must(t, os.Remove(ref)) },
		"branch symbolic": func(t *testing.T, l *sandboxtest.Fixture, ref, _ string) {
			l.Git("branch", "other", "HEAD~1")
			must(t, os.WriteFile(ref, []byte("ref: refs/heads/other\n"), 0o600))
		},
		"HEAD detached": func(_ *testing.T, l *sandboxtest.Fixture, _, _ string) { l.Git("checkout", "-q", "--detach", "HEAD~1") },
		"HEAD written in place": func(t *testing.T, l *sandboxtest.Fixture, ref, head string) {
			other := strings.Repeat("x", len(filepath.Base(ref)))
			l.Git("branch", "agency/"+other, "HEAD~1")
			rewrite(t, head, "ref: refs/heads/agency/"+other+"\n")
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{})
			l.StartWithoutWalls()
			l.WriteFile("one", "1\n")
			l.Git("add", "one")
			l.Git("commit", "-q", "-m", "one")
			read := func(old factCache) (*facts, *liveSandbox) {
				inv := []core.Invocation{list(l)}
				sandboxes := findSandboxes(inv)
				load := func() (*facts, error) { return &facts{old: old, used: newFactCache()}, nil }
				files, err := l.Repo.Git.OpenRefFiles(core.AgencyHeads)
				must(t, err)
				defer files.Close()
				f, err := readTips(t.Context(), l.Repo, files, load, sandboxes, time.Now().Add(time.Hour))
				must(t, err)
				return f, sandboxes[0]
			}
			f, s := read(newFactCache())
			if want := l.Git("rev-parse", "HEAD"); s.tip != want || s.head != want || f.used.Tips[0].Commit != want || f.newTips != 1 {
				t.Fatalf("got tip %s, head %s, cached %+v; want %s", s.tip, s.head, f.used.Tips, want)
			}
			ref := filepath.Join(l.Repo.CommonDir, s.branch())
			change(t, l, ref, filepath.Join(l.Repo.Git.AdminDir(s.inv.ID), "HEAD"))
			f, cached := read(f.used)
			if known := f.newTips == 0 && len(f.used.Tips) == 1; known != (name == "nothing") {
				t.Errorf("the commit was taken from the cache: %t", known)
			}
			_, plain := read(newFactCache())
			if cached.tip != plain.tip || cached.head != plain.head {
				t.Errorf("with the cache: %s, %s; without: %s, %s", cached.tip, cached.head, plain.tip, plain.head)
			}
		})
	}
}

// A fetch that deepens a shallow repository changes how many commits a sandbox is ahead.
func TestAheadOfOtherHistoryIsUnknown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"shallow", "info/grafts"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			l := sandboxtest.New(t, core.Options{})
			file := filepath.Join(l.Repo.CommonDir, name)
			must(t, os.MkdirAll(filepath.Dir(file), 0o700))
			requireKnown := func(want bool) {
				t.Helper()
				if _, known := loadFacts(l.Repo).ahead("a", "b"); known != want {
					t.Errorf("the number is known: %t", known)
				}
			}
			f := loadFacts(l.Repo)
			f.setAhead("a", "b", 1)
			must(t, os.WriteFile(file, []byte("cut\n"), 0o600))
			f.save(l.Repo, minListed) // which history was counted is not known
			requireKnown(false)
			f = loadFacts(l.Repo)
			f.setAhead("a", "b", 2)
			f.save(l.Repo, minListed)
			requireKnown(true)
			must(t, os.WriteFile(file, []byte("other\n"), 0o600))
			requireKnown(false)
			must(t, os.Remove(file))
			requireKnown(false)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
