package quote

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestJSONEscapesUnprintableCharacters(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		"{\n  \"a\": 1\n}\n":           "{\n  \"a\": 1\n}\n",
		`"é 日本語 👍 <&>"`:                `"é 日本語 👍 <&>"`,
		"\"e\u0301\"":                  "\"e\u0301\"",
		"\"\x7f\u0085\u009b\"":         `"\u007f\u0085\u009b"`,
		"\"\u202e\u2066\u061c\"":       `"\u202e\u2066\u061c"`,
		"\"\u200b\u200d\ufeff\u00ad\"": `"\u200b\u200d\ufeff\u00ad"`,
		"\"\u2028\u2029\u00a0\"":       `"\u2028\u2029\u00a0"`,
		"\"\u3164\u115f\u034f\"":       `"\u3164\u115f\u034f"`,
		"\"\U000e0041\U000e0100\"":     `"\udb40\udc41\udb40\udd00"`,
		"\"\U0010ffff\uffff\"":         `"\udbff\udfff\uffff"`,
		"\"a\x9bb\"":                   `"a\ufffdb"`,
	} {
		if got := string(JSON([]byte(encoded))); got != want {
			t.Errorf("JSON(%q) = %s, want %s", encoded, got, want)
		}
	}
}

// FuzzJSON checks that the escaped JSON has the same value, and no character that controls a terminal.
func FuzzJSON(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b\x7f\u009b31m\u202e\u200b\u3164\U000e0041 é\xff")
	f.Fuzz(func(t *testing.T, text string) {
		var plain strings.Builder
		enc := json.NewEncoder(&plain)
		enc.SetEscapeHTML(false)
		if err := enc.Encode([]string{text, strings.ToUpper(text)}); err != nil {
			t.Fatal(err)
		}
		escaped := string(JSON([]byte(plain.String())))
		var want, got []string
		if err := json.Unmarshal([]byte(plain.String()), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(escaped), &got); err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s decodes to %q, %v; want %q", escaped, got, err, want)
		}
		for _, c := range strings.TrimSuffix(escaped, "\n") {
			if !unicode.IsPrint(c) || !IsPrintable(c) {
				t.Errorf("%q has the character %U", escaped, c)
			}
		}
	})
}
