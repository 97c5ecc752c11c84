package toolconfig

import (
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// yamlLine matches a line of a list or of keys: indentation with dashes, a key, a value.
var yamlLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^( *(?:- +)*)(?:([A-Za-z0-9_.-]+):(?: +|$))?(.*)$`)
})

// YAML filters a file with settings in a simple form of YAML, such as that of conda: keys at the beginning of lines, with
// values on the same line or lists and keys below them. A setting in another form is left out.
func YAML(text string) (string, bool) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\r\n", "\n")
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r\u0085\u2028\u2029") {
		return "", false
	}
	var out strings.Builder
	var block []string
	started := false // a document begins with --- or its first setting
	flush := func() {
		if clean, ok := cleanYAML(block); ok {
			out.WriteString(clean)
		}
		block = nil
	}
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " ")
		switch trimmed := strings.TrimLeft(line, " \t"); {
		case trimmed == "" || trimmed[0] == '#':
			continue
		case line == "---" && !started:
			started = true
			continue
		case line[0] != ' ' && line[0] != '-':
			flush()
			if m := yamlLine().FindStringSubmatch(line); m[2] == "" {
				return "", false // no setting, such as the end of a document or a list of them
			}
		case block == nil || strings.HasPrefix(line, "---"):
			return "", false
		}
		block, started = append(block, line), true
	}
	flush()
	return out.String(), true
}

// cleanYAML returns the lines of a setting without secrets. It returns false for one that is a secret, or has another form
// than YAML describes.
func cleanYAML(lines []string) (string, bool) {
	var out strings.Builder
	complete := -1 // column that a line must not be beyond, because the value of the line before it would go on
	for _, line := range lines {
		m := yamlLine().FindStringSubmatch(line)
		lead, key, value := m[1], m[2], m[3]
		indent := len(line) - len(strings.TrimLeft(line, " "))
		isItem := strings.Contains(lead, "-")
		if complete >= 0 && indent > complete || key == "" && !isItem || strings.Contains(line, "\t") || isSecretName(key) {
			return "", false
		}
		clean, ok := cleanScalar(value, strings.Contains(strings.ToLower(lines[0]), "proxy"))
		if !ok {
			return "", false
		}
		switch complete = -1; {
		case value != "" && key != "":
			complete = len(lead)
		case value != "":
			complete = strings.LastIndexByte(lead, '-')
		}
		if key != "" {
			key = strings.TrimRight(key+": "+clean, " ")
			clean = ""
		}
		out.WriteString(strings.TrimRight(lead+key+clean, " ") + "\n")
	}
	return out.String(), len(lines) > 0
}

// cleanScalar returns a value on one line without passwords. It returns false for one that is a secret, or in a form that
// may go on in the next line or have a meaning that the text does not show.
func cleanScalar(text string, isProxy bool) (string, bool) {
	quote := ""
	if text != "" && strings.ContainsAny(text[:1], `"'`) {
		quote = text[:1]
		inner, after, closed := strings.Cut(text[1:], quote)
		after = strings.TrimLeft(after, " ")
		if !closed || strings.Contains(inner, `\`) || after != "" && after[0] != '#' {
			return "", false
		}
		text = inner
	} else {
		if comment := strings.Index(text, " #"); comment >= 0 {
			text = strings.TrimRight(text[:comment], " ")
		}
		if text == "[]" || text == "{}" {
			return text, true
		}
		if text != "" && strings.ContainsAny(text[:1], "!&*|>{}[]%@`?,#-:") || strings.Contains(text, ": ") || strings.HasSuffix(text, ":") {
			return "", false
		}
	}
	clean, ok := cleanValue(text, isProxy)
	return quote + clean + quote, ok
}
