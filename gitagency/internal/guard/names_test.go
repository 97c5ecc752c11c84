package guard

import (
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// hostileNames returns the paths that CheckPath must refuse. The tests of the commands use the same table.
func hostileNames(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "hostile_names.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table []struct{ Name, Why string }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, row := range table {
		names = append(names, row.Name)
	}
	return append(names, "a\xffb", ".g\xc0it", "\xed\xa0\x80") // not UTF-8, so not in the JSON file
}

func TestHostileNamesAreRefused(t *testing.T) {
	t.Parallel()
	names := hostileNames(t)
	if len(names) < 60 {
		t.Errorf("only %d names", len(names))
	}
	for _, name := range names {
		err := CheckPath(name)
		var confined *ConfinementError
		if !errors.As(err, &confined) || confined.Path != name {
			t.Errorf("%q: %v", name, err)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, "path confinement") {
			t.Errorf("%q: %v", name, err)
		}
		if strings.ContainsFunc(text, isInvisible) || !utf8.ValidString(text) {
			t.Errorf("%q: control characters in the error: %q", name, text)
		}
		if utf8.ValidString(name) && !strings.ContainsFunc(name, isInvisible) && !strings.Contains(text, name) {
			t.Errorf("%q is not in %q", name, text)
		}
	}
}

func TestOrdinaryNamesAreAllowed(t *testing.T) {
	t.Parallel()
	const scotland = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
	for name, want := range map[string]string{
		"a": "a", "a/b": "a/b", "./a//b": "a/b", "a/": "a", ".": ".", "./": ".", "a/.": "a",
		".gitignore": ".gitignore", ".github/workflows/x.yml": ".github/workflows/x.yml", ".gitattributes": ".gitattributes",
		".gitmodules": ".gitmodules", "agency": "agency", "git": "git", ".agencyrc": ".agencyrc", "x.git": "x.git",
		"naïve.txt": "naïve.txt", "nai\u0308ve.txt": "nai\u0308ve.txt", "日本語/ファイル": "日本語/ファイル", "🎉.md": "🎉.md", "❤\ufe0f": "❤\ufe0f",
		"a b": "a b", " a": " a", "-x": "-x", "--help": "--help", "...x": "...x", "..x": "..x", ".x": ".x", "x..y": "x..y",
		"aux.c": "aux.c", "NUL": "NUL", "a:b": "a:b", "git~": "git~", "git~x": "git~x", "a~1": "a~1", "agency~": "agency~",
		"*": "*", "$(x)": "$(x)", "%s": "%s", `"`: `"`, "'": "'", "AC／DC": "AC／DC", ".git-blame-ignore-revs": ".git-blame-ignore-revs",
		"می\u200cخواهم.txt": "می\u200cخواهم.txt", "क्\u200dष": "क्\u200dष", "👩\u200d💻.md": "👩\u200d💻.md", "🏳\ufe0f\u200d🌈": "🏳\ufe0f\u200d🌈",
		scotland: scotland, scotland + "/x": scotland + "/x", "…": "…", "a/…": "a/…",
		strings.Repeat("n", 255): strings.Repeat("n", 255), "node_modules/.bin/x": "node_modules/.bin/x",
	} {
		if got, err := CleanPath(name); err != nil || got != want {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// TestJoinersAndTagsCannotDisguiseNames: joiners and tag characters, which some scripts need, are refused where they
// could make one name look like another.
func TestJoinersAndTagsCannotDisguiseNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		".g\u200cit", ".\u200dgit", ".git\u200c", "\u200c.git", "．ｇ\u200cｉｔ", "．ｇ\u200dｉｔ", "．ａ\u200cｇency", "．\u200cgit",
		"a\u200dé", "é\u200da", "é\u200d", "é\u200d/é", "\u200dé", "é\u200d\u200dé", "é\u200c\u202eé", "\u200d",
		"\U000e0067", "x\U000e0067", "🏴x\U000e0067", "🏴\U000e0067\U000e007f\U000e0067", "🏴\U000e0001", "‥", "a/‥/b", "….", "‥\ufe0f",
	} {
		if err := CheckPath(name); !isConfined(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzCheckPath checks accepted paths against an independent implementation of the rules.
func FuzzCheckPath(f *testing.F) {
	for _, name := range hostileNames(f) {
		f.Add(name)
		f.Add("a/" + name + "/b")
	}
	f.Add("naïve/🎉 x.txt")
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := CleanPath(name)
		if err != nil {
			var confined *ConfinementError
			if !errors.As(err, &confined) || confined.Path != name || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("%q: %v", name, err)
			}
			return
		}
		if joined := filepath.Join("/top", name); joined != "/top" && !strings.HasPrefix(joined, "/top/") {
			t.Errorf("%q leads to %q", name, joined)
		}
		if again, err := CleanPath(clean); err != nil || again != clean || clean != path.Clean(name) || !filepath.IsLocal(clean) {
			t.Errorf("%q became %q, and that %q, %v", name, clean, again, err)
		}
		if len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsAny(name, "\\\x00\x7f\n\u202e\u200b") {
			t.Errorf("%q was accepted", name)
		}
		for part := range strings.SplitSeq(name, "/") {
			// A component must not become a reserved name when invisible characters and trailing dots and spaces are
			// removed and compatibility forms are normalized.
			if bare := normalizeName(part); bare == ".git" || bare == ".agency" || bare == "git~1" || bare == "agency~1" {
				t.Errorf("%q: %q looks like %q", name, part, bare)
			}
			if len(part) > 255 || part == ".." || len(part) > 1 && strings.HasSuffix(part, ".") {
				t.Errorf("%q was accepted", name)
			}
		}
	})
}

// normalizeName normalizes a component: NFKC, lower case, without invisible characters, stream suffix and trailing dots and
// spaces.
func normalizeName(part string) string {
	part, _, _ = strings.Cut(norm.NFKC.String(part), ":")
	part = strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) {
			return -1
		}
		return r
	}, part))
	return strings.TrimRight(part, ". ")
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, ".agency": true, ".Agency": true, "git~1": true, ".git\u200c": true, ".git ": true,
		"": false, ".": false, "git": false, ".github": false, ".gitignore": false, "agency": false, ".env": false, "a.git": false,
	} {
		if got := IsReservedName(name); got != want {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
