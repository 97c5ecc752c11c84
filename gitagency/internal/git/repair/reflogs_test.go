package repair

import (
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

func TestOrphanReflogsAreReflogsOfMissingRefs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	main := l.Git("rev-parse", "main")
	only := l.Git("commit-tree", "-m", "only logged", "main^{tree}")
	l.Git("branch", "packed")
	l.Git("pack-refs", "--all")
	l.Git("symbolic-ref", "refs/heads/dangling", "refs/heads/nowhere")
	entry := func(old, now string) string { return old + " " + now + " A <a@b> 1 +0000\tx\n" }
	zeros := strings.Repeat("0", 40)
	for name, log := range map[string]string{
		"logs/refs/heads/gone":      entry(zeros, main),
		"logs/refs/heads/only":      entry(zeros, main) + entry(main, only),
		"logs/refs/heads/old":       entry(only, main),
		"logs/refs/heads/missing":   entry(zeros, strings.Repeat("1", 40)),
		"logs/refs/heads/nonsense":  "\x00\xff\nHEAD main\n--all --all\n" + strings.Repeat("z", 40) + "\n",
		"logs/refs/heads/empty":     "",
		"logs/refs/heads/a b":       entry(zeros, main),
		"logs/refs/heads/dangling":  entry(zeros, main),
		"logs/refs/heads/gone.lock": "",
	} {
		l.WriteIn(repo.CommonDir, name, log)
	}
	found, err := OrphanReflogs(t.Context(), repo)
	l.Must(err)
	want := map[string][]string{
		"refs/heads/gone": nil, "refs/heads/only": {only}, "refs/heads/old": {only}, "refs/heads/missing": nil,
		"refs/heads/nonsense": nil, "refs/heads/empty": nil, "refs/heads/a b": nil,
	}
	for _, ref := range found {
		commits, known := want[ref]
		if got, err := OnlyInReflog(t.Context(), repo, ref); !known || err != nil || !slices.Equal(got, commits) {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
		delete(want, ref)
		l.Must(RemoveReflog(repo, ref))
	}
	if len(want) > 0 {
		t.Errorf("not found: %q", want)
	}
	if again, err := OrphanReflogs(t.Context(), repo); len(again) > 0 || err != nil {
		t.Errorf("orphans left: %q, %v", again, err)
	}
}
