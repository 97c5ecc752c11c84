package git

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Without a prefix, Refs returns all refs, whether git or the files are read.
func TestRefsWithoutPrefixReturnsAll(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	l.Git("tag", "one")
	l.Git("update-ref", "refs/agency/x/1", "main")
	l.Git("pack-refs", "--all")
	l.Git("update-ref", "refs/agency/y/1", "main")
	byGit := *repo
	byGit.Config = nil // Refs then runs git
	for _, r := range []*Repo{repo, &byGit} {
		refs, err := r.Refs(t.Context())
		if want := []string{"refs/agency/x/1", "refs/agency/y/1", "refs/heads/main", "refs/tags/one"}; err != nil || !slices.Equal(slices.Sorted(maps.Keys(refs)), want) {
			t.Errorf("got %v, %v", refs, err)
		}
	}
}

func TestReadRefFilesAgreesWithGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	one := l.Git("rev-parse", "main")
	two := l.Git("commit-tree", "-m", "two", "main^{tree}")
	compare := func(state string, wantOK bool) {
		t.Helper()
		got, ok := repo.readRefFiles([]string{"refs/agency/x/"})
		if ok != wantOK {
			t.Fatalf("%s: read from the files: %v", state, ok)
		}
		if !ok {
			return
		}
		byGit := *repo
		byGit.Config = nil // Refs then runs git
		want, err := byGit.Refs(t.Context(), "refs/agency/x/")
		l.Must(err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, git has %v", state, got, want)
		}
		for _, ref := range []string{"refs/agency/x/1", "refs/agency/x/10", "refs/agency/x/deep", "refs/agency/x/deep/er/2", "refs/agency/x/0"} {
			if tip, ok := repo.ReadRefFile(ref); !ok || tip != want[ref] {
				t.Errorf("%s: %s is at %q, %v; git has %q", state, ref, tip, ok, want[ref])
			}
		}
	}
	compare("no refs", true)
	l.Git("update-ref", "refs/agency/x/1", one)
	l.Git("update-ref", "refs/agency/xy/1", one)
	l.Git("update-ref", "refs/agency/x/deep/er/2", one)
	compare("loose refs", true)
	l.Git("pack-refs", "--all")
	compare("packed refs", true)
	l.Git("update-ref", "refs/agency/x/1", two)
	l.Git("update-ref", "refs/agency/x/10", two)
	compare("loose and packed refs", true)
	l.Git("update-ref", "-d", "refs/agency/x/deep/er/2")
	l.WriteIn(repo.CommonDir, "refs/agency/x/7.lock", "")
	compare("with a lock file", true)
	l.Git("symbolic-ref", "refs/agency/x/9", "refs/heads/main")
	if tip, ok := repo.ReadRefFile("refs/agency/x/9"); ok {
		t.Errorf("symbolic ref was read as %q", tip)
	}
	compare("with a symbolic ref", false)
	l.Git("symbolic-ref", "-d", "refs/agency/x/9")
	l.Git("config", "extensions.worktreeConfig", "true")
	l.Git("config", "core.repositoryFormatVersion", "1")
	repo = OpenRepo(l)
	compare("format version 1", true)
	reftable := *repo
	reftable.Config = maps.Clone(repo.Config)
	reftable.Config[config.RefStorageKey] = []config.Setting{{Value: "reftable"}}
	if tip, ok := reftable.ReadRefFile("refs/agency/x/0"); ok {
		t.Errorf("a ref in a reftable was read as %q", tip)
	}
}
