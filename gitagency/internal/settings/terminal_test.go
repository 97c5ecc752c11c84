package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
)

// settingsFromLines makes settings from "scope key=value" lines.
func settingsFromLines(t *testing.T, lines ...string) config.Settings {
	t.Helper()
	cfg := config.Settings{}
	for _, line := range lines {
		scope, rest, _ := strings.Cut(line, " ")
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			t.Fatalf("%q is not a setting", line)
		}
		cfg[key] = append(cfg[key], config.Setting{Value: value, Scope: scope, Origin: "file:" + scope})
	}
	return cfg
}

func TestPagerSettingsFollowGit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		config  []string
		env     []string
		pager   string
		paging  string
		ignored string // the values, joined
	}{
		{"nothing is set", nil, nil, "less", "", ""},
		{"PAGER", nil, []string{"PAGER=more"}, "more", "", ""},
		{"core.pager beats PAGER", []string{"global core.pager=delta"}, []string{"PAGER=more"}, "delta", "", ""},
		{"pager.agency beats core.pager", []string{"global core.pager=delta", "global pager.agency=less -S"}, nil, "less -S", "always", ""},
		{"GIT_PAGER beats them all", []string{"global core.pager=delta", "global pager.agency=less -S"}, []string{"PAGER=more", "GIT_PAGER=most"}, "most", "always", ""},
		{"an empty GIT_PAGER is no pager", nil, []string{"GIT_PAGER=", "PAGER=more"}, "", "", ""},
		{"an empty PAGER is no pager", nil, []string{"PAGER="}, "", "", ""},
		{"cat is no pager", []string{"system core.pager=cat"}, []string{"PAGER=more"}, "", "", ""},
		{"an empty core.pager is no pager", []string{"global core.pager="}, []string{"PAGER=more"}, "", "", ""},
		{"a boolean pager.agency does not name the program", []string{"global core.pager=delta", "local pager.agency=true"}, nil, "delta", "always", ""},
		{"pager.agency=false", []string{"local pager.agency=false"}, nil, "less", "never", ""},
		{"an empty pager.agency is false", []string{"global pager.agency="}, nil, "less", "never", ""},
		{"pager.agency=cat pages with nothing", []string{"local pager.agency=cat"}, nil, "", "always", ""},
		{"the last one counts", []string{"global pager.agency=delta", "local pager.agency=no"}, nil, "less", "never", ""},

		{"a repository cannot name a pager", []string{"local core.pager=evil"}, nil, "less", "", "evil"},
		{"nor can a worktree's configuration", []string{"worktree core.pager=evil"}, []string{"PAGER=more"}, "more", "", "evil"},
		{"nor with pager.agency", []string{"local pager.agency=evil"}, nil, "less", "", "evil"},
		{"the user's pager stays", []string{"global core.pager=delta", "local core.pager=evil"}, nil, "delta", "", "evil"},
		{"the user's pager.agency stays", []string{"global pager.agency=delta", "local pager.agency=evil", "local core.pager=worse"}, nil, "delta", "always", "evil"},
		{"an overridden pager is not reported", []string{"local core.pager=evil", "command core.pager=delta"}, nil, "delta", "", ""},
		{"nor is one that GIT_PAGER overrides", []string{"local core.pager=evil"}, []string{"GIT_PAGER=most"}, "most", "", ""},
		{"a repository can ask for none", []string{"global core.pager=delta", "local core.pager=cat"}, nil, "", "", ""},
		{"core.pager is no boolean", []string{"local core.pager=yes"}, nil, "less", "", "yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseTerminalSettings(settingsFromLines(t, tt.config...), tt.env)
			if err != nil {
				t.Fatal(err)
			}
			var ignored []string
			for _, err := range got.Ignored {
				var s *SettingError
				if !errors.As(err, &s) || s.Setting.Origin == "" || s.Setting.Problem == "" {
					t.Fatalf("%v does not name the ignored setting", err)
				}
				ignored = append(ignored, s.Setting.Value)
			}
			if got.Pager != tt.pager || got.Paging != tt.paging || strings.Join(ignored, " ") != tt.ignored {
				t.Errorf("got %q, %q, ignored %q", got.Pager, got.Paging, ignored)
			}
		})
	}
}

func TestColorSettingsFollowGit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		config  []string
		color   string
		inPager bool
	}{
		{nil, "", true},
		{[]string{"global color.ui=always"}, "always", true},
		{[]string{"global color.ui=always", "local color.agency=never"}, "never", true},
		{[]string{"local color.agency=auto", "command color.ui=never"}, "auto", true},
		{[]string{"local color.ui=true"}, "auto", true},
		{[]string{"local color.ui=Yes"}, "auto", true},
		{[]string{"local color.ui=2"}, "auto", true},
		{[]string{"local color.ui=ALWAYS"}, "always", true},
		{[]string{"local color.ui=off"}, "never", true},
		{[]string{"local color.ui=0"}, "never", true},
		{[]string{"local color.ui="}, "never", true},
		{[]string{"local color.pager=false"}, "", false},
		{[]string{"global color.pager=false", "local color.pager=on"}, "", true},
	} {
		got, err := parseTerminalSettings(settingsFromLines(t, tt.config...), nil)
		if err != nil || got.Color != tt.color || got.ColorInPager != tt.inPager {
			t.Errorf("%q: got %q, %v, %v", tt.config, got.Color, got.ColorInPager, err)
		}
	}
}

func TestInvalidColorNamesKeyValueAndFile(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"local color.agency=purple", "local color.ui=purple", "local color.pager=purple"} {
		_, err := parseTerminalSettings(settingsFromLines(t, line), nil)
		var invalid *fault.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: got %v", line, err)
			continue
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(line, "local "), "=")
		if !strings.Contains(err.Error(), key+" (file:local)") || invalid.Value != "purple" {
			t.Errorf("%s: got %v", line, err)
		}
	}
	if _, err := parseTerminalSettings(settingsFromLines(t, "global color.ui=purple", "local color.agency=never"), nil); err != nil {
		t.Errorf("an overridden invalid value must be ignored: %v", err)
	}
}
