package term

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Printable escapes control and formatting characters, so that text from a record or message cannot control the
// terminal. It keeps newline and tab.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, IsUnprintable) {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); c == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else if IsUnprintable(c) {
			quoted := strconv.QuoteRuneToASCII(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// IsUnprintable reports whether Printable escapes a character.
func IsUnprintable(c rune) bool {
	return c != '\n' && c != '\t' && !quote.IsPrintable(c)
}

// OneLine is Printable that escapes newline and tab too.
func OneLine(s string) string {
	if isPlain(s) {
		return s
	}
	return lineBreakEscaper.Replace(Printable(s))
}

// isPlain reports whether a text has only printable ASCII characters, as most cells of large tables do.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

var lineBreakEscaper = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Ago formats for people how long ago a time was.
func Ago(now, then time.Time) string {
	d := now.Sub(then)
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{365 * 24 * time.Hour, "year"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int(d / unit.size); n == 1 {
			return "1 " + unit.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("%d %ss ago", n, unit.name)
		}
	}
	return "now"
}

// Cut cuts a line to a display width.
func Cut(line string, width int) string { return displaywidth.TruncateString(line, width, "…") }
