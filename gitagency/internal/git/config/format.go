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
