package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFormatIsReadBackByGit(t *testing.T) {
	t.Parallel()
	entries := []FileEntry{
		{Key: "core.bare", Value: "false"},
		{Key: "core.flag", Value: "true", NoValue: true},
		{Key: "core.empty", Value: ""},
		{Key: `remote.a "quoted" \ name.url`, Value: `C:\path "x" # no comment ; none`},
		{Key: "alias.x", Value: "!f() { echo \"$1\";\n\techo two; }; f"},
		{Key: "url.https://example.com/.insteadof", Value: " leading and trailing "},
		{Key: "core.again", Value: "x"},
	}
	text := Format(entries)
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "config", "--file", file, "--null", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range entries {
		if e.NoValue {
			want = append(want, e.Key)
		} else {
			want = append(want, e.Key+"\n"+e.Value)
		}
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, want) {
		t.Errorf("git reads %q, want %q", got, want)
	}
	if got, err := ParseFile(text); err != nil || !slices.Equal(got, entries) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func FuzzFormat(f *testing.F) {
	f.Add("core.x", "value")
	f.Add(`a.b "c".d`, "x\ny\t\b\\\"")
	f.Fuzz(func(t *testing.T, key, value string) {
		before, err := ParseFile("[section \"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", "", "\x00", "").Replace(key) + "\"]\n\tname = " + quoteValue(value) + "\n")
		if err != nil || len(before) != 1 {
			t.Skip()
		}
		if after, err := ParseFile(Format(before)); err != nil || !slices.Equal(after, before) {
			t.Errorf("%+v became %+v, %v", before, after, err)
		}
	})
}
