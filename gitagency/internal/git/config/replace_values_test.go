package config

import "testing"

func TestReplaceValuesLeavesOtherTextAsItIs(t *testing.T) {
	t.Parallel()
	replace := func(value string) string {
		if value == "/old" {
			return "/new place"
		}
		return value
	}
	for text, want := range map[string]string{
		"":                                    "",
		"[remote \"origin\"]\n\turl = /old\n": "[remote \"origin\"]\n\turl = \"/new place\"\n",
		"[remote \"origin\"] URL=/old ; why\n# /old\n":                           "[remote \"origin\"] URL = \"/new place\" ; why\n# /old\n",
		"[remote \"origin\"]\n\turl = \"/old\"":                                  "[remote \"origin\"]\n\turl = \"/new place\"",
		"[remote \"other\"]\n\turl = /old\n":                                     "[remote \"other\"]\n\turl = /old\n",
		"[remote \"origin\"]\n\tpushurl = /old\n\turl\n\turl = /older\n":         "[remote \"origin\"]\n\tpushurl = /old\n\turl\n\turl = /older\n",
		"[core]\n\tx = a \\\n b\n[remote \"origin\"]\n\turl = /ol\\\nd\n\ty=1\n": "[core]\n\tx = a \\\n b\n[remote \"origin\"]\n\turl = \"/new place\"\n\ty=1\n",
	} {
		if got, err := ReplaceValues(text, "remote.origin.url", replace); err != nil || got != want {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := ReplaceValues("[remote\n", "remote.origin.url", replace); err == nil {
		t.Errorf("a file that cannot be parsed became %q", got)
	}
}
