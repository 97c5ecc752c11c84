package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseSettingsReadsScopeOriginKeyAndValue(t *testing.T) {
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
		if got, err := ParseSettings(c.out); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v", c.out, got, err)
		}
	}
	for _, out := range []string{"x", "local\x00file:f\x00agency.x", "local\x00", "local\x00file:f\x00", "local\x00file:f\x00agency.x\ny\x00local"} {
		if got, err := ParseSettings(out); err == nil {
			t.Errorf("%q: %+v", out, got)
		}
	}
}

// FuzzParseSettings checks that parsed settings, written again in the format of git, are parsed to the same settings.
func FuzzParseSettings(f *testing.F) {
	f.Add("local\x00file:.git/config\x00agency.x\ny\x00")
	f.Add("command\x00command line:\x00agency.flag\x00global\x00file:/x\x00agency.flag\n\x00")
	f.Fuzz(func(t *testing.T, out string) {
		config, err := ParseSettings(out)
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
		again, err := ParseSettings(b.String())
		if err != nil || !reflect.DeepEqual(again, config) {
			t.Errorf("%+v became %+v, %v", config, again, err)
		}
	})
}
