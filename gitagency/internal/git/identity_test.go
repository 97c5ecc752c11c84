package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

func TestWhoACommitIsByIsWhatGitSays(t *testing.T) {
	t.Parallel()
	repo := OpenRepo(gittest.New(t))
	// What git takes as it is nobody asks it about; all the others it may change, or refuse.
	plain := []string{"A B", "A", "A,B", "it's", "A\\B", "Ä Ö", "\u00a0A", "A\u2028", "true"}
	for _, name := range append([]string{
		" A", "A ", ".A", "A.", "\"A\"", "'A'", "\\A", "A<B", "A>", "A\tB", "A\nB", "\x7fA", "\xff", "A;", ":",
	}, plain...) {
		for _, role := range []string{"AUTHOR", "COMMITTER"} {
			for _, in := range []string{"settings", "own", "role", "environment"} {
				who := object.IdentitySource{Now: time.Unix(1_700_000_000, 0).UTC()}
				r := *repo
				r.Config = config.Settings{}
				var env []string
				set := func(key, value string) {
					r.Config[key] = []config.Setting{{Value: value, Scope: "global"}}
					env = append(env, key+"="+value)
				}
				set("user.name", "U")
				set("user.email", "u@x")
				switch in {
				case "settings":
					set("user.name", name)
					set("user.email", name)
				case "role":
					set(map[string]string{"AUTHOR": "author.name", "COMMITTER": "committer.name"}[role], name)
				case "own":
					who.Name, who.Email = name, name
				case "environment":
					who.Env = []string{"GIT_" + role + "_NAME=" + name}
				}
				swift, ok := r.signatureWithoutGit(who, role)
				if ok != slices.Contains(plain, name) {
					t.Errorf("%s, %q in %s: known without git: %v", role, name, in, ok)
				}
				if !ok {
					continue
				}
				r.Env = append(r.Env[:len(r.Env):len(r.Env)], configured(env)...)
				want, err := r.signatureByGit(t.Context(), who, role)
				if err != nil || want != swift {
					t.Errorf("%s, %q in %s: %+v; git says %+v, %v", role, name, in, swift, want, err)
				}
			}
		}
	}
}

// In files, of a worktree too, and where git refuses.
func TestWhoACommitIsByIsWhatGitSaysOfFiles(t *testing.T) {
	t.Parallel()
	const person = "[user]\n\tname = U\n\temail = u@x\n"
	now := time.Unix(1_700_000_000, 0).UTC()
	for _, c := range []struct {
		name                    string
		global, local, worktree string
		env                     []string
		swift                   bool // git need not be asked
	}{
		{name: "the user's", global: person, swift: true},
		{name: "the repository's", global: person, local: "[user]\n\tname = L\n", swift: true},
		{name: "of a role", global: person, local: "[author]\n\tname = R\n[committer]\n\temail = r@x\n", swift: true},
		{name: "the worktree's", global: person, worktree: "[user]\n\tname = W\n", swift: true},
		{name: "of a role in the worktree", global: person, worktree: "[author]\n\tname = W\n[committer]\n\tname = W\n", swift: true},
		{name: "all of it in the worktree", worktree: person, swift: true},
		{name: "no name", global: "[user]\n\temail = u@x\n\tuseConfigOnly = true\n"},
		{name: "an empty name", global: person + "[user]\n\tname =\n"},
		{name: "without a value", global: person + "[user]\n\tname\n"},
		{name: "without a value, and then with one", global: "[user]\n\tname\n" + person},
		{name: "without a value, and one in the environment", global: person + "[user]\n\tname\n", env: []string{"NAME=E", "EMAIL=e@x"}},
		{name: "another role's without a value", global: person + "[author]\n\temail\n"},
		{name: "one of the repository's without a value", global: person, local: "[committer]\n\tname\n"},
		{name: "one of the worktree's without a value", global: person, worktree: "[user]\n\temail\n"},
		{name: "a moment", global: person, env: []string{"DATE=1600000000 +0130"}},
		{name: "a moment of git's", global: person, env: []string{"DATE=@1600000000 -0800"}},
		{name: "a moment as everybody writes it", global: person, env: []string{"DATE=2026-01-28T12:00:00+01:00"}},
		{name: "a moment without a zone", global: person, env: []string{"DATE=2026-01-28 12:00:00"}},
		{name: "an empty moment", global: person, env: []string{"DATE="}},
		{name: "no moment", global: person, env: []string{"DATE=whenever"}},
		{name: "a moment with what is set in the worktree", global: person, worktree: "[user]\n\tname = W\n", env: []string{"DATE=1600000000 +0130"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			linked := filepath.Join(gittest.TempDir(t), "linked")
			l.Git("worktree", "add", "-q", "--detach", linked)
			l.Git("config", "extensions.worktreeConfig", "true")
			config, err := os.ReadFile(filepath.Join(l.Root, ".git/config"))
			l.Must(err)
			l.Must(os.WriteFile(l.GlobalConfig, []byte(c.global), 0o644))
			l.WriteIn(l.Root, ".git/config", string(config)+c.local)
			l.WriteIn(l.Root, ".git/worktrees/linked/config.worktree", c.worktree)
			repo := OpenRepoIn(l, linked)
			for _, role := range []string{"AUTHOR", "COMMITTER"} {
				who := object.IdentitySource{Now: now}
				of := *l
				of.Env = append(slices.Clone(l.Env), "GIT_"+role+"_DATE="+object.FormatDate(now))
				for _, kv := range c.env {
					if who.Env = append(who.Env, "GIT_"+role+"_"+kv); kv != "DATE=" { // of which git makes the moment that is now
						of.Env = append(of.Env, "GIT_"+role+"_"+kv)
					}
				}
				want, wantErr := of.TryGit(linked, "var", "GIT_"+role+"_IDENT")
				got, err := repo.signature(t.Context(), who, role)
				if (err != nil) != (wantErr != nil) || err == nil && got.String() != strings.TrimSpace(want) || err != nil && !errors.As(err, new(*NoIdentityError)) && !errors.As(err, new(*DateError)) {
					t.Errorf("%s: %q, %v; git says %q, %v", role, got, err, want, wantErr)
				}
				if _, swift := repo.signatureWithoutGit(who, role); swift != c.swift {
					t.Errorf("%s: known without git: %v", role, swift)
				}
			}
		})
	}
}

// configured are settings as the environment gives them to git.
func configured(settings []string) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings))}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env
}
