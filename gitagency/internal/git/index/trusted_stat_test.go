package index

import (
	"bytes"
	"os"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// entriesByName returns the entries of an index by name, for an index without conflicts.
func entriesByName(x File) map[string]Entry {
	all := map[string]Entry{}
	for e := range x.AllEntries() {
		all[string(e.Name)] = e
	}
	return all
}

// WithStatFrom must not keep stat data or marks that the trusted index does not have, and must keep all others.
func TestWithStatFromDropsForgedStatAndMarks(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			l := newTestRepo(t, format)
			l.Git("update-index", "--assume-unchanged", "ab/c")
			l.Git("update-index", "--skip-worktree", "dir/sub.x")
			trusted, _ := readIndexFile(l, format)
			same := func(name string) bool { return name == "link" } // the only file that is not on disk
			if got := trusted.WithStatFrom(trusted, same); !bytes.Equal(got.Body, trusted.Body) {
				t.Error("the trusted index itself was changed")
			}
			l.Write("a", "forged\n")
			l.Git("update-index", "a") // its stat data are right for the file, but the content is chosen
			l.Write("brand-new", "n\n")
			l.Git("add", "brand-new")
			l.Git("update-index", "--assume-unchanged", "z")
			l.Git("update-index", "--skip-worktree", "run.sh", "link")
			l.Git("update-index", "--force-remove", "a.c")
			hostile, _ := readIndexFile(l, format)
			changed, _ := readIndexFile(l, format)
			got := changed.WithStatFrom(trusted, same)
			if data := got.Encode(); len(data) == 0 || got.Count != hostile.Count {
				t.Fatalf("%d entries, want %d", got.Count, hostile.Count)
			}
			if _, err := Read(got.Encode(), object.Format(format)); err != nil {
				t.Fatal(err)
			}
			before, is := entriesByName(hostile), entriesByName(got)
			for name, e := range before {
				now := is[name]
				if !bytes.Equal(now.OID, e.OID) || now.Mode != e.Mode {
					t.Errorf("%s: another object or mode", name)
				}
				forged := name == "a" || name == "brand-new"
				if kept := bytes.Equal(now.Stat, e.Stat); kept == forged {
					t.Errorf("%s: stat data kept: %t", name, kept)
				}
				if assumed := now.flags&flagAssumeUnchanged != 0; assumed != (name == "ab/c") {
					t.Errorf("%s: assume-unchanged is %t", name, assumed)
				}
				if now.SkipWorktree != (name == "dir/sub.x" || name == "link") {
					t.Errorf("%s: skip-worktree is %t", name, now.SkipWorktree)
				}
			}
			for e := range hostile.WithStatFrom(File{Format: hostile.Format}, same).AllEntries() {
				if !bytes.Equal(e.Stat, StatWithMode(e.Mode)) {
					t.Errorf("%s: stat data kept without a trusted index", e.Name)
				}
			}
			l.Git("update-index", "--no-skip-worktree", "run.sh", "link", "dir/sub.x")
			plain, _ := readIndexFile(l, format)
			if _, err := Read(plain.WithStatFrom(trusted, same).Encode(), object.Format(format)); err != nil {
				t.Errorf("an index in which only stat data were changed: %v", err)
			}
			l.Must(os.WriteFile(indexPath(l), got.Encode(), 0o600))
			l.Git("status", "--porcelain") // git accepts it
		})
	}
}
