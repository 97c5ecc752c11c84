package git

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestOpenReadsSettingsOfEveryScope(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.ConfigureGlobal("agency.lines", "one\ntwo = \"three\" # four")
	l.ConfigureGlobal("agency.over", "global")
	l.ConfigureGlobal("agency.Pro file.changeset", "clone")
	l.ConfigureGlobal("other.x", "not ours")
	l.ConfigureGlobal("checkout.workers", "3")
	l.Git("config", "agency.over", "local")
	l.Git("config", "agency.dataDir", "~/data")
	l.WriteIn(l.Root, ".git/more", "[agency]\n\tflag\n\tempty =\n")
	l.Git("config", "include.path", "more")
	l.Env = append(l.Env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.counted", "GIT_CONFIG_VALUE_0=c")
	l.Env = append(l.Env, "GIT_CONFIG_PARAMETERS='agency.over'='command' 'agency.bare'")
	global, local := "file:"+l.GlobalConfig, "file:.git/config"
	want := config.Settings{
		"agency.lines":              {{Value: "one\ntwo = \"three\" # four", Scope: "global", Origin: global, NoValue: false}},
		"agency.Pro file.changeset": {{Value: "clone", Scope: "global", Origin: global, NoValue: false}},
		"checkout.workers":          {{Value: "3", Scope: "global", Origin: global, NoValue: false}},
		"agency.over":               {{Value: "global", Scope: "global", Origin: global, NoValue: false}, {Value: "local", Scope: "local", Origin: local, NoValue: false}, {Value: "command", Scope: "command", Origin: "command line", NoValue: false}},
		"agency.counted":            {{Value: "c", Scope: "command", Origin: "command line", NoValue: false}},
		"agency.bare":               {{Value: "true", Scope: "command", Origin: "command line", NoValue: true}},
		"core.bare":                 {{Value: "false", Scope: "local", Origin: local, NoValue: false}},
		"core.filemode":             {{Value: "true", Scope: "local", Origin: local, NoValue: false}},
		"core.logallrefupdates":     {{Value: "true", Scope: "local", Origin: local, NoValue: false}},
		config.FormatVersionKey:     {{Value: "0", Scope: "local", Origin: local, NoValue: false}},
		"agency.datadir":            {{Value: "~/data", Scope: "local", Origin: local, NoValue: false}},
		"agency.flag":               {{Value: "true", Scope: "local", Origin: "file:.git/more", NoValue: true}},
		"agency.empty":              {{Value: "", Scope: "local", Origin: "file:.git/more", NoValue: false}},
		"user.name":                 {{Value: "Somebody", Scope: "global", Origin: global, NoValue: false}},
		"user.email":                {{Value: "somebody@example.com", Scope: "global", Origin: global, NoValue: false}},
	}
	if got := OpenRepo(l).Config; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestOpenReadsWorktreeScopeSettings(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	l.Git("config", "extensions.worktreeConfig", "true")
	l.GitIn(linked, "config", "--worktree", "agency.x", "here")
	if got, _ := OpenRepoIn(l, linked).Config.Last("agency.x"); got.Value != "here" || got.Scope != "worktree" {
		t.Errorf("got %+v", got)
	}
	if got, have := OpenRepo(l).Config.Last("agency.x"); have {
		t.Errorf("in the main worktree: %+v", got)
	}
}

func TestLastTrustedIgnoresRepositoryScopes(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.ConfigureGlobal("agency.mine.command", "global")
	l.Git("config", "agency.mine.command", "local")
	l.Git("config", "agency.theirs.command", "local")
	config := OpenRepo(l).Config
	if got, ok, others := config.LastTrusted("agency.mine.command", nil); !ok || got.Value != "global" || len(others) != 1 || others[0].Value != "local" {
		t.Errorf("got %+v, %v, %+v", got, ok, others)
	}
	if got, ok, others := config.LastTrusted("agency.theirs.command", nil); ok || len(others) != 1 {
		t.Errorf("got %+v, %v, %+v", got, ok, others)
	}
	l.Env = append(l.Env, "GIT_CONFIG_PARAMETERS='agency.mine.command'='command'")
	if got, ok, _ := OpenRepo(l).Config.LastTrusted("agency.mine.command", nil); !ok || got.Value != "command" {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestParseExpiryAgreesWithGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	now := time.Now()
	for text, check := range map[string]func(time.Time) bool{
		"never":                func(at time.Time) bool { return at.IsZero() },
		"now":                  func(at time.Time) bool { return !at.Before(now.Truncate(time.Second)) },
		"2.weeks.ago":          func(at time.Time) bool { return at.Before(now) && at.After(now.AddDate(0, 0, -15)) },
		"2026-01-28T12:00:00Z": func(at time.Time) bool { return at.Equal(time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)) },
	} {
		if at, ok, err := ParseExpiry(t.Context(), l.Root, l.Env, text); err != nil || !ok || !check(at) {
			t.Errorf("%s: %v, %v, %v", text, at, ok, err)
		}
	}
	for _, text := range []string{"", "soon", "--global"} {
		if at, ok, err := ParseExpiry(t.Context(), l.Root, l.Env, text); err != nil || ok {
			t.Errorf("%q: %v, %v", text, at, err)
		}
	}
}
