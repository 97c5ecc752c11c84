package toolconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// TOML filters a file in TOML. Of tables called env it keeps the variables that pass the walls.
func TOML(passes func(name string) bool) Filter {
	return func(text string) (string, bool) {
		text = strings.ReplaceAll(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\r\n", "\n")
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r") {
			return "", false
		}
		p := tomlParser{text: text, passes: passes}
		for p.skipBlank(true); p.pos < len(p.text) && !p.failed; p.skipBlank(true) {
			p.statement()
		}
		return p.out.String(), !p.failed
	}
}

// tomlParser copies the statements of a text that contain no secret.
type tomlParser struct {
	text   string
	pos    int
	passes func(name string) bool
	failed bool // the text is no TOML that the parser understands

	table       []string // path of the current table
	tableSecret bool
	out         strings.Builder

	// the statement at hand
	secret bool
	edits  []tomlEdit
}

// tomlEdit is a part of the text that is replaced.
type tomlEdit struct {
	start, end int
	text       string
}

// scripts are tables and settings of mise with shell code and templates, which may contain anything.
var scripts = []string{"tasks", "task_templates", "hooks", "watch_files", "shell_alias", "prepare", "vars", postinstall}

// postinstall is the shell code to run after a tool was installed. It is beside the version of the tool, so in an inline
// table it becomes empty; to leave out all of the table would leave out the tool.
const postinstall = "postinstall"

// statement copies a header or a setting.
func (p *tomlParser) statement() {
	start := p.pos
	p.secret, p.edits = false, nil
	if p.text[p.pos] == '[' {
		opening, closing := "[", "]"
		if strings.HasPrefix(p.text[p.pos:], "[[") {
			opening, closing = "[[", "]]"
		}
		p.expect(opening)
		p.table = p.keyPath()
		p.expect(closing)
		p.checkNames(p.table)
		p.tableSecret = p.secret
	} else {
		path := slices.Concat(p.table, p.keyPath())
		p.expect("=")
		p.checkNames(path)
		p.value(path, 0)
	}
	end, edits := p.pos, p.edits
	p.skipBlank(false)
	if p.pos < len(p.text) && p.text[p.pos] != '\n' {
		p.failed = true
	}
	if p.failed || p.secret || p.tableSecret {
		return
	}
	for _, e := range edits {
		p.out.WriteString(p.text[start:e.start] + e.text)
		start = e.end
	}
	p.out.WriteString(p.text[start:end] + "\n")
}

// checkNames marks the statement as a secret if its path says so.
func (p *tomlParser) checkNames(path []string) {
	for i, name := range path {
		clean, ok := cleanValue(name, false)
		switch {
		case clean != name || !ok || isSecretName(name) || slices.Contains(scripts, name):
			p.secret = true
		case strings.EqualFold(name, "env") && i+1 < len(path) && !p.passes(path[i+1]):
			p.secret = true
		}
	}
}

// skipBlank skips white space and comments, and line ends if they are blank too. Comments in a statement are removed.
func (p *tomlParser) skipBlank(lineEnds bool) {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == ' ' || c == '\t' || c == '\n' && lineEnds:
			p.pos++
		case c == '#':
			end := strings.IndexByte(p.text[p.pos:], '\n')
			if end < 0 {
				end = len(p.text) - p.pos
			}
			p.edits = append(p.edits, tomlEdit{p.pos, p.pos + end, ""})
			p.pos += end
		default:
			return
		}
	}
}

// expect skips a token, with the blanks around it.
func (p *tomlParser) expect(token string) {
	p.skipBlank(false)
	if !strings.HasPrefix(p.text[p.pos:], token) {
		p.failed = true
		return
	}
	p.pos += len(token)
	if token != "]" && token != "]]" {
		p.skipBlank(false)
	}
}

// keyPath reads a key, which may be dotted.
func (p *tomlParser) keyPath() (path []string) {
	for !p.failed {
		p.skipBlank(false)
		start := p.pos
		if p.pos < len(p.text) && (p.text[p.pos] == '"' || p.text[p.pos] == '\'') {
			path = append(path, p.quoted(p.text[p.pos:p.pos+1]))
		} else {
			for p.pos < len(p.text) && isBare(p.text[p.pos], "_-") {
				p.pos++
			}
			p.failed = p.pos == start
			path = append(path, p.text[start:p.pos])
		}
		p.skipBlank(false)
		if p.pos >= len(p.text) || p.text[p.pos] != '.' {
			break
		}
		p.pos++
	}
	return path
}

func isBare(c byte, more string) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(more, c) >= 0
}

// maxDepth bounds nested arrays and tables.
const maxDepth = 50

// value reads the value of a path.
func (p *tomlParser) value(path []string, depth int) {
	if p.failed || p.pos >= len(p.text) || depth > maxDepth {
		p.failed = true
		return
	}
	switch rest := p.text[p.pos:]; {
	case strings.HasPrefix(rest, `"""`), strings.HasPrefix(rest, `'''`), rest[0] == '"', rest[0] == '\'':
		p.stringValue(path)
	case rest[0] == '[':
		p.list('[', ']', func() { p.value(path, depth+1) })
	case rest[0] == '{':
		p.list('{', '}', func() {
			inner := slices.Concat(path, p.keyPath())
			p.expect("=")
			if inner[len(inner)-1] == postinstall && !p.secret {
				start, edits := p.pos, p.edits
				p.value(inner, depth+1)
				p.secret, p.edits = false, append(edits, tomlEdit{start, p.pos, `""`})
				return
			}
			p.checkNames(inner)
			p.value(inner, depth+1)
		})
	default:
		start := p.pos
		for p.pos < len(p.text) && isBare(p.text[p.pos], "_-+.:") {
			p.pos++
		}
		p.failed = p.pos == start
		p.checkPlace(path)
	}
}

// checkPlace marks the statement as a secret if its value is that of env itself, without the name of a variable.
func (p *tomlParser) checkPlace(path []string) {
	if strings.EqualFold(path[len(path)-1], "env") {
		p.secret = true
	}
}

// list reads an array or an inline table.
func (p *tomlParser) list(opening, closing byte, element func()) {
	if p.text[p.pos] != opening {
		p.failed = true
	}
	p.pos++
	for !p.failed {
		p.skipBlank(true)
		if p.pos < len(p.text) && p.text[p.pos] == closing {
			p.pos++
			return
		}
		element()
		p.skipBlank(true)
		switch {
		case p.pos < len(p.text) && p.text[p.pos] == ',':
			p.pos++
		case p.pos < len(p.text) && p.text[p.pos] == closing:
		default:
			p.failed = true
		}
	}
}

// stringValue reads a string, which loses the users and passwords of URLs.
func (p *tomlParser) stringValue(path []string) {
	start, quote := p.pos, p.text[p.pos:p.pos+1]
	if strings.HasPrefix(p.text[p.pos:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	value := p.quoted(quote)
	p.checkPlace(path)
	isProxy := slices.ContainsFunc(path, func(name string) bool { return strings.Contains(strings.ToLower(name), "proxy") })
	clean, ok := cleanValue(value, isProxy)
	switch {
	case !ok:
		p.secret = true
	case clean != value:
		p.edits = append(p.edits, tomlEdit{start, p.pos, quoteTOML(clean)})
	}
}

// quoted reads a string with its quotes and returns its value.
func (p *tomlParser) quoted(quote string) string {
	var value strings.Builder
	p.pos += len(quote)
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		switch {
		case strings.HasPrefix(rest, quote):
			p.pos += len(quote)
			for n := 0; len(quote) == 3 && n < 2 && p.pos < len(p.text) && p.text[p.pos] == quote[0]; n++ { // quotes may precede the last three
				value.WriteByte(quote[0])
				p.pos++
			}
			return value.String()
		case rest[0] == '\n' && len(quote) == 1:
			p.failed = true
			return ""
		case rest[0] == '\\' && quote[0] == '"':
			p.escape(&value)
		default:
			value.WriteByte(rest[0])
			p.pos++
		}
		if p.failed {
			return ""
		}
	}
	p.failed = true
	return ""
}

// escape reads an escape sequence.
func (p *tomlParser) escape(value *strings.Builder) {
	rest := p.text[p.pos+1:]
	if rest == "" {
		p.failed = true
		return
	}
	if at := strings.IndexByte(`btnfre"\`, rest[0]); at >= 0 {
		value.WriteByte("\b\t\n\f\r\x1b\"\\"[at])
		p.pos += 2
		return
	}
	if line := strings.TrimLeft(rest, " \t"); strings.HasPrefix(line, "\n") { // the line goes on
		p.pos = len(p.text) - len(strings.TrimLeft(line, " \t\n"))
		return
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[0]]
	if digits == 0 || len(rest) <= digits {
		p.failed = true
		return
	}
	code, err := strconv.ParseUint(rest[1:1+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(code)) || code > utf8.MaxRune {
		p.failed = true
		return
	}
	value.WriteRune(rune(code))
	p.pos += 2 + digits
}

// quoteTOML writes a string so that it is read back.
func quoteTOML(value string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range value {
		switch {
		case c == '"' || c == '\\':
			out.WriteString(`\` + string(c))
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			out.WriteRune(c)
		}
	}
	return out.String() + `"`
}
