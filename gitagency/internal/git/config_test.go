package git

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseConfigReadsScopeOriginKeyAndValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		out  string
		want Settings
	}{
		{"", Settings{}},
		{"local\x00file:.git/config\x00agency.x\ny\x00", Settings{"agency.x": {{"y", "local", "file:.git/config", false}}}},
		{"global\x00file:/a\nb\x00agency.x\n\x00", Settings{"agency.x": {{"", "global", "file:/a\nb", false}}}},
		{"local\x00file:f\x00agency.flag\x00", Settings{"agency.flag": {{"true", "local", "file:f", true}}}},
		{"local\x00file:f\x00agency.x\none\ntwo\n\x00", Settings{"agency.x": {{"one\ntwo\n", "local", "file:f", false}}}},
		{"system\x00file:/etc\x00agency.x\n1\x00local\x00file:f\x00agency.x\n2\x00command\x00command line:\x00agency.x\n3\x00", Settings{"agency.x": {{"1", "system", "file:/etc", false}, {"2", "local", "file:f", false}, {"3", "command", "command line", false}}}},
		{"local\x00file:f\x00agency.Pro file.changeset\nclone\x00", Settings{"agency.Pro file.changeset": {{"clone", "local", "file:f", false}}}},
		{"local\x00file:\xff\x00agency.x\n\xff\x00", Settings{"agency.x": {{"\xff", "local", "file:\xff", false}}}},
	} {
		if got, err := parseSettings(c.out); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v", c.out, got, err)
		}
	}
	for _, out := range []string{"x", "local\x00file:f\x00agency.x", "local\x00", "local\x00file:f\x00", "local\x00file:f\x00agency.x\ny\x00local"} {
		if got, err := parseSettings(out); err == nil {
			t.Errorf("%q: %+v", out, got)
		}
	}
}

// Whatever is read can be written the way git writes it and read again.
func FuzzParseConfig(f *testing.F) {
	f.Add("local\x00file:.git/config\x00agency.x\ny\x00")
	f.Add("command\x00command line:\x00agency.flag\x00global\x00file:/x\x00agency.flag\n\x00")
	f.Fuzz(func(t *testing.T, out string) {
		config, err := parseSettings(out)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(config)) {
			for _, s := range config[key] {
				b.WriteString(s.Scope + "\x00" + s.Origin + "\x00" + key)
				if !s.NoValue {
					b.WriteString("\n" + s.Value)
				}
				b.WriteString("\x00")
			}
		}
		again, err := parseSettings(b.String())
		if err != nil || !reflect.DeepEqual(again, config) {
			t.Errorf("%+v became %+v, %v", config, again, err)
		}
	})
}

func TestOpenReadsTheSettingsOfEveryScope(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("agency.lines", "one\ntwo = \"three\" # four")
	l.configure("agency.over", "global")
	l.configure("agency.Pro file.changeset", "clone")
	l.configure("other.x", "not ours")
	l.configure("checkout.workers", "3")
	l.git("config", "agency.over", "local")
	l.git("config", "agency.dataDir", "~/data")
	l.put(l.dir, ".git/more", "[agency]\n\tflag\n\tempty =\n")
	l.git("config", "include.path", "more")
	l.env = append(l.env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.counted", "GIT_CONFIG_VALUE_0=c")
	l.env = append(l.env, "GIT_CONFIG_PARAMETERS='agency.over'='command' 'agency.bare'")
	global, local := "file:"+l.global, "file:.git/config"
	want := Settings{
		"agency.lines":              {{"one\ntwo = \"three\" # four", "global", global, false}},
		"agency.Pro file.changeset": {{"clone", "global", global, false}},
		"checkout.workers":          {{"3", "global", global, false}},
		"agency.over":               {{"global", "global", global, false}, {"local", "local", local, false}, {"command", "command", "command line", false}},
		"agency.counted":            {{"c", "command", "command line", false}},
		"agency.bare":               {{"true", "command", "command line", true}},
		"core.bare":                 {{"false", "local", local, false}},
		"core.filemode":             {{"true", "local", local, false}},
		formatVersionKey:            {{"0", "local", local, false}},
		"agency.datadir":            {{"~/data", "local", local, false}},
		"agency.flag":               {{"true", "local", "file:.git/more", true}},
		"agency.empty":              {{"", "local", "file:.git/more", false}},
		"user.name":                 {{"Somebody", "global", global, false}},
		"user.email":                {{"somebody@example.com", "global", global, false}},
	}
	if got := l.open().Config; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestSettingsOfAWorktreeHaveThatScope(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	linked := filepath.Join(tempDir(t), "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	l.git("config", "extensions.worktreeConfig", "true")
	l.in(linked, "config", "--worktree", "agency.x", "here")
	if got, _ := l.openIn(linked).Config.Last("agency.x"); got.Value != "here" || got.Scope != "worktree" {
		t.Errorf("got %+v", got)
	}
	if got, have := l.open().Config.Last("agency.x"); have {
		t.Errorf("elsewhere: %+v", got)
	}
}

func TestACommandIsTakenOnlyFromWhereARepositoryCannotReach(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("agency.mine.command", "global")
	l.git("config", "agency.mine.command", "local")
	l.git("config", "agency.theirs.command", "local")
	config := l.open().Config
	if got, ok, others := config.LastTrusted("agency.mine.command", nil); !ok || got.Value != "global" || len(others) != 1 || others[0].Value != "local" {
		t.Errorf("got %+v, %v, %+v", got, ok, others)
	}
	if got, ok, others := config.LastTrusted("agency.theirs.command", nil); ok || len(others) != 1 {
		t.Errorf("got %+v, %v, %+v", got, ok, others)
	}
	l.env = append(l.env, "GIT_CONFIG_PARAMETERS='agency.mine.command'='command'")
	if got, ok, _ := l.open().Config.LastTrusted("agency.mine.command", nil); !ok || got.Value != "command" {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestExpiriesAreReadAsGitReadsThem(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now()
	for text, check := range map[string]func(time.Time) bool{
		"never":                func(at time.Time) bool { return at.IsZero() },
		"now":                  func(at time.Time) bool { return !at.Before(now.Truncate(time.Second)) },
		"2.weeks.ago":          func(at time.Time) bool { return at.Before(now) && at.After(now.AddDate(0, 0, -15)) },
		"2026-01-28T12:00:00Z": func(at time.Time) bool { return at.Equal(time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)) },
	} {
		if at, ok, err := ParseExpiry(t.Context(), l.dir, l.env, text); err != nil || !ok || !check(at) {
			t.Errorf("%s: %v, %v, %v", text, at, ok, err)
		}
	}
	for _, text := range []string{"", "soon", "--global"} {
		if at, ok, err := ParseExpiry(t.Context(), l.dir, l.env, text); err != nil || ok {
			t.Errorf("%q: %v, %v", text, at, err)
		}
	}
}
