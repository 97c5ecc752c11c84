package worktree

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// TestEntryEqualsThatOfGit compares the files of entries with those that git writes.
func TestEntryEqualsThatOfGit(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(l *gittest.Fixture){
		"default":    func(*gittest.Fixture) {},
		"no reflogs": func(l *gittest.Fixture) { l.Git("config", "core.logAllRefUpdates", "false") },
		"bare": func(l *gittest.Fixture) {
			l.Git("config", "core.bare", "true")
			l.Must(os.Remove(filepath.Join(l.Root, ".git", "index")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			arrange(l)
			repo := OpenRepo(l)
			byGit := registration(l, "20260101000000-aaaa")
			byHand := registration(l, "20260101000000-bbbb")
			for _, w := range []Registration{byGit, byHand} {
				l.Must(os.MkdirAll(w.Tree, 0o755))
				l.Must(repo.CreateRef(t.Context(), w.Branch, l.Git("rev-parse", "HEAD"), "test"))
			}
			l.Must(addByGit(t.Context(), repo, byGit))
			if EntrySetting(repo) != "" {
				t.Fatal("the settings are not plain")
			}
			l.Must(Add(t.Context(), repo, byHand))

			if gittest.Exists(byHand.Link) {
				t.Error("a git was run")
			}
			files := func(w Registration) map[string]string {
				found := map[string]string{}
				for path, state := range gittest.DiskState(t, repo.AdminDir(w.Name), w.Tree) {
					for _, part := range []string{repo.AdminDir(w.Name), w.Tree, w.Name} {
						path, state = strings.ReplaceAll(path, part, "X"), strings.ReplaceAll(state, part, "X")
					}
					state = regexp.MustCompile(`\d{10} [+-]\d{4}(\ttest)?`).ReplaceAllString(state, "TIME") // git gives no reason
					found[path] = state
				}
				return found
			}
			gittest.RequireSame(t, "the entry", files(byHand), files(byGit))
			if listed := l.Git("worktree", "list", "--porcelain"); !strings.Contains(listed, "worktree "+byHand.Tree+"\n") || strings.Contains(listed, "locked") || strings.Contains(listed, "prunable") {
				t.Errorf("git lists %s", listed)
			}
		})
	}
}

// TestAddLeavesSpecialEntriesToGit checks that git writes the entry where that has more than the usual files.
func TestAddLeavesSpecialEntriesToGit(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"extensions.worktreeConfig", "core.sharedRepository", "core.sparseCheckout", "worktree.useRelativePaths"} {
		l := gittest.New(t)
		l.Git("config", key, "true")
		if EntrySetting(OpenRepo(l)) == "" {
			t.Errorf("with %s git would not be asked", key)
		}
		l.Git("config", key, "false")
		if name := EntrySetting(OpenRepo(l)); name != "" {
			t.Errorf("%s=false counts as %s", key, name)
		}
	}
}

// TestAddIgnoresDamageOfOthers adds a worktree although the entry of another one is damaged, which makes git worktree add fail.
func TestAddIgnoresDamageOfOthers(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	RegisterWorktree(l, repo, "other", filepath.Join(gittest.TempDir(t), "tree"))
	l.Must(os.Truncate(filepath.Join(repo.AdminDir("other"), "commondir"), 0))
	if _, err := l.TryGit(l.Root, "worktree", "list"); err == nil {
		t.Fatal("git accepts the damaged entry")
	}
	w := RegisterWorktree(l, repo, gittest.SandboxName, filepath.Join(gittest.TempDir(t), "tree"))
	if head := l.GitIn(w.Tree, "symbolic-ref", "HEAD"); head != w.Branch {
		t.Errorf("HEAD is %q", head)
	}
}

func TestAddRefusesTakenNames(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	w := registration(l, gittest.SandboxName)
	l.Must(os.MkdirAll(w.Tree, 0o755))
	l.Must(repo.CreateRef(t.Context(), w.Branch, l.Git("rev-parse", "HEAD"), "test"))
	l.Must(os.MkdirAll(repo.AdminDir(w.Name), 0o755))
	before := gittest.DiskState(t, l.Root, w.Tree)
	if err := Add(t.Context(), repo, w); err == nil {
		t.Error("an existing entry was overwritten")
	}
	gittest.RequireSame(t, "the repository", gittest.DiskState(t, l.Root, w.Tree), before)
}

func registration(l *gittest.Fixture, name string) Registration {
	return Registration{Name: name, Tree: filepath.Join(gittest.TempDir(l.T), "tree"), Branch: "refs/heads/agency/sandbox-" + name, Link: filepath.Join(l.T.TempDir(), name)}
}
