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

func TestSignatureWithoutGitAgreesWithGit(t *testing.T) {
	t.Parallel()
	repo := OpenRepo(gittest.New(t))
	// Names that git uses unchanged must not need git. Git may clean up or refuse all others.
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
				got, ok := r.signatureWithoutGit(who, role)
				if ok != slices.Contains(plain, name) {
					t.Errorf("%s, %q in %s: determined without git: %v", role, name, in, ok)
				}
				if !ok {
					continue
				}
				r.Env = append(r.Env[:len(r.Env):len(r.Env)], settingsEnv(env)...)
				want, err := r.signatureByGit(t.Context(), who, role)
				if err != nil || want != got {
					t.Errorf("%s, %q in %s: %+v; git has %+v, %v", role, name, in, got, want, err)
				}
			}
		}
	}
}

// The identity from configuration files, also of a worktree, must be that of git var, and missing where git var fails.
func TestSignatureFromConfigFilesAgreesWithGit(t *testing.T) {
	t.Parallel()
	const person = "[user]\n\tname = U\n\temail = u@x\n"
	now := time.Unix(1_700_000_000, 0).UTC()
	for _, c := range []struct {
		name                    string
		global, local, worktree string
		env                     []string
		withoutGit              bool // the identity can be determined without git
	}{
		{name: "user config", global: person, withoutGit: true},
		{name: "repository config", global: person, local: "[user]\n\tname = L\n", withoutGit: true},
		{name: "author and committer config", global: person, local: "[author]\n\tname = R\n[committer]\n\temail = r@x\n", withoutGit: true},
		{name: "worktree config", global: person, worktree: "[user]\n\tname = W\n", withoutGit: true},
		{name: "author and committer in worktree config", global: person, worktree: "[author]\n\tname = W\n[committer]\n\tname = W\n", withoutGit: true},
		{name: "only worktree config", worktree: person, withoutGit: true},
		{name: "no name", global: "[user]\n\temail = u@x\n\tuseConfigOnly = true\n"},
		{name: "an empty name", global: person + "[user]\n\tname =\n"},
		{name: "name without a value", global: person + "[user]\n\tname\n"},
		{name: "name without a value, then with one", global: "[user]\n\tname\n" + person},
		{name: "name without a value, set in the environment", global: person + "[user]\n\tname\n", env: []string{"NAME=E", "EMAIL=e@x"}},
		{name: "author email without a value", global: person + "[author]\n\temail\n"},
		{name: "committer name of the repository without a value", global: person, local: "[committer]\n\tname\n"},
		{name: "email of the worktree without a value", global: person, worktree: "[user]\n\temail\n"},
		{name: "date", global: person, env: []string{"DATE=1600000000 +0130"}},
		{name: "date with @", global: person, env: []string{"DATE=@1600000000 -0800"}},
		{name: "ISO 8601 date", global: person, env: []string{"DATE=2026-01-28T12:00:00+01:00"}},
		{name: "date without a zone", global: person, env: []string{"DATE=2026-01-28 12:00:00"}},
		{name: "empty date", global: person, env: []string{"DATE="}},
		{name: "invalid date", global: person, env: []string{"DATE=whenever"}},
		{name: "date and worktree config", global: person, worktree: "[user]\n\tname = W\n", env: []string{"DATE=1600000000 +0130"}},
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
					if who.Env = append(who.Env, "GIT_"+role+"_"+kv); kv != "DATE=" { // git takes an empty date for now, and this test for the fixed date
						of.Env = append(of.Env, "GIT_"+role+"_"+kv)
					}
				}
				want, wantErr := of.TryGit(linked, "var", "GIT_"+role+"_IDENT")
				got, err := repo.signature(t.Context(), who, role)
				if (err != nil) != (wantErr != nil) || err == nil && got.String() != strings.TrimSpace(want) || err != nil && !errors.As(err, new(*NoIdentityError)) && !errors.As(err, new(*DateError)) {
					t.Errorf("%s: %q, %v; git has %q, %v", role, got, err, want, wantErr)
				}
				if _, ok := repo.signatureWithoutGit(who, role); ok != c.withoutGit {
					t.Errorf("%s: determined without git: %v", role, ok)
				}
			}
		})
	}
}

// settingsEnv returns the environment variables that pass "key=value" settings to git.
func settingsEnv(settings []string) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings))}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env
}
