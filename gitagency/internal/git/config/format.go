package config

import (
	"strings"
)

// Format writes settings as a configuration file that git reads back, in their order.
func Format(entries []FileEntry) string {
	var out strings.Builder
	header := ""
	for _, e := range entries {
		first, last := strings.IndexByte(e.Key, '.'), strings.LastIndexByte(e.Key, '.')
		now := "[" + e.Key[:first] + "]\n"
		if first != last {
			now = "[" + e.Key[:first] + " " + quoteSubsection(e.Key[first+1:last]) + "]\n"
		}
		if now != header {
			out.WriteString(now)
			header = now
		}
		out.WriteString("\t" + e.Key[last+1:])
		if !e.NoValue {
			out.WriteString(" = " + quoteUnlessPlain(e.Value))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func quoteSubsection(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// quoteUnlessPlain quotes a value, unless it has only letters, digits and punctuation without a meaning in a configuration file.
func quoteUnlessPlain(value string) string {
	const punctuation = "-_./:@+*,=%~"
	plain := func(c rune) bool {
		return c < 0x80 && IsLetter(byte(c)) || '0' <= c && c <= '9' || strings.ContainsRune(punctuation, c)
	}
	if value != "" && !strings.ContainsFunc(value, func(c rune) bool { return !plain(c) }) {
		return value
	}
	return quoteValue(value)
}

// ReplaceValues returns the text of a configuration file with other values of a setting, and all other text as it is. It fails for a
// file that it cannot parse.
func ReplaceValues(text, key string, replace func(value string) string) (string, error) {
	parts, err := parseParts(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		if p.kind == entryPart && p.entry.Key == key && !p.entry.NoValue && !p.entry.Ambiguous {
			if value := replace(p.entry.Value); value != p.entry.Value {
				p.text = withValue(p, value)
			}
		}
		out.WriteString(p.text)
	}
	return out.String(), nil
}

// withValue returns the text of an entry with another value.
func withValue(p filePart, value string) string {
	name, _, _ := strings.Cut(p.text, "=")
	comment := strings.TrimSuffix(p.comment, "\n")
	if comment != "" {
		comment = " " + comment
	}
	return strings.TrimRight(name, " \t") + " = " + quoteUnlessPlain(value) + comment + lineEnd(p.text)
}
