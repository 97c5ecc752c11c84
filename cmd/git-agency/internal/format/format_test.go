package format

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestFormatHasShortForms(t *testing.T) {
	t.Parallel()
	names := FieldNames()
	for _, name := range names {
		for ending, shorter := range map[string]string{"_at": ":relative", "_commit": ":short"} {
			if strings.HasSuffix(name, ending) && !slices.Contains(names, name+shorter) {
				t.Errorf("the field %%(%s%s) is missing", name, shorter)
			}
		}
	}
}

// FuzzFormat checks that Parse returns an Error, or pieces that print and parse to the same pieces.
func FuzzFormat(f *testing.F) {
	for _, seed := range []string{"", "%", "%%", "%(status)", "a%(base_commit:short)b%00", "%(", "%(x)", "%0", "%zz", "%28status)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := Parse(text)
		var wrong *Error
		if err != nil {
			if !errors.As(err, &wrong) || parsed != nil {
				t.Fatalf("%q: got %v and %v", text, parsed, err)
			}
			return
		}
		var again strings.Builder
		for _, p := range parsed {
			again.WriteString(strings.ReplaceAll(p.literal, "%", "%%"))
			if p.atom >= 0 {
				again.WriteString("%(" + atoms[p.atom].name + ")")
			}
		}
		second, err := Parse(again.String())
		if err != nil || !slices.Equal(parsed, second) {
			t.Fatalf("%q parses to %v, which prints and parses to %v, %v", text, parsed, second, err)
		}
		if !strings.Contains(text, "%") && (len(parsed) != 1 || parsed[0].literal != text) {
			t.Fatalf("%q without fields parses to %v", text, parsed)
		}
	})
}
