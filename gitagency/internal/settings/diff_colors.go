package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// DiffColors reads the user's color.diff.<slot> settings, with git's defaults. It ignores the configuration of the
// repository: an agent that can write there could make changes invisible.
func (r *Reader) DiffColors() (treediff.Colors, error) {
	colors := treediff.Colors{Emphasis: "\x1b[7m", EmphasisEnd: "\x1b[27m", Reset: "\x1b[m"}
	for _, slot := range []struct {
		names []string
		color string
		field *string
	}{
		{[]string{"context", "plain"}, "", &colors.Same},
		{[]string{"meta"}, "bold", &colors.Meta},
		{[]string{"frag"}, "cyan", &colors.Hunk},
		{[]string{"func"}, "", &colors.Section},
		{[]string{"old"}, "red", &colors.Removed},
		{[]string{"new"}, "green", &colors.Added},
	} {
		color := slot.color
		for _, name := range slices.Backward(slot.names) {
			key := "color.diff." + name
			s, set, _ := r.Config.LastTrusted(key, nil)
			if !set {
				continue
			}
			if _, ok := colorSequence(s.Value); !ok {
				return treediff.Colors{}, InvalidSetting(key, s, "a colour such as 'bold red' or '#ff8800'")
			}
			color = s.Value
		}
		*slot.field, _ = colorSequence(color)
	}
	return colors, nil
}

// colorSequence translates a git colour setting into the escape sequence that git sends to a terminal. The setting
// has words for attributes and for up to two colours, the second being the background.
func colorSequence(value string) (sequence string, ok bool) {
	var reset, attributes, codes []string
	colors := 0
	for word := range strings.FieldsSeq(value) {
		if word == "reset" {
			reset = []string{""}
			continue
		}
		if code, is := attributeCode(word); is {
			attributes = append(attributes, code)
			continue
		}
		code, is := colorCode(word, 10*colors)
		if colors++; !is || colors > 2 {
			return "", false
		}
		if code != "" {
			codes = append(codes, code)
		}
	}
	slices.SortFunc(attributes, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	codes = slices.Concat(reset, slices.Compact(attributes), codes)
	if len(codes) == 0 {
		return "", true
	}
	return "\x1b[" + strings.Join(codes, ";") + "m", true
}

// colorAttributes and colorNames are indexed by their SGR number; colours are offsets from 30.
var (
	colorAttributes = []string{"", "bold", "dim", "italic", "ul", "blink", "", "reverse", "", "strike"}
	colorNames      = []string{"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}
)

func attributeCode(word string) (code string, ok bool) {
	plain, negated := strings.CutPrefix(word, "no")
	if negated && word != "normal" {
		plain = strings.TrimPrefix(plain, "-")
	} else {
		plain, negated = word, false
	}
	n := slices.Index(colorAttributes, plain)
	switch {
	case n < 1:
		return "", false
	case negated && n == 1:
		n = 22
	case negated:
		n += 20
	}
	return strconv.Itoa(n), true
}

// colorCode returns the SGR code of one colour word; offset is 10 for a background and 0 for a foreground.
func colorCode(word string, offset int) (code string, ok bool) {
	bright := 0
	name := word
	if rest, is := strings.CutPrefix(word, "bright"); is {
		name, bright = rest, 60
	}
	if n := slices.Index(colorNames, name); n >= 0 {
		return strconv.Itoa(30 + n + bright + offset), true
	}
	switch {
	case word == "normal" || word == "-1":
		return "", true
	case word == "default":
		return strconv.Itoa(39 + offset), true
	case len(word) == 7 && word[0] == '#':
		n, err := strconv.ParseUint(word[1:], 16, 32)
		return fmt.Sprintf("%d;2;%d;%d;%d", 38+offset, n>>16, n>>8&0xff, n&0xff), err == nil
	}
	n, err := strconv.ParseUint(word, 10, 8)
	switch {
	case err != nil:
		return "", false
	case n < 8:
		return strconv.Itoa(30 + int(n) + offset), true
	case n < 16:
		return strconv.Itoa(90 + int(n) - 8 + offset), true
	}
	return fmt.Sprintf("%d;5;%d", 38+offset, n), true
}
