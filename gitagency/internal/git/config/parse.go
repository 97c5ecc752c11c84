package config

import (
	"errors"
	"slices"
	"strings"
)

// FileEntry is one setting of a configuration file.
type FileEntry struct {
	Key     string // spelled as git prints it
	Value   string
	NoValue bool // it has no value, which git takes for true

	Ambiguous bool // versions of git parse the value differently
}

// errNotPlain reports a configuration that only git should read: it may be invalid, or have includes.
var errNotPlain = errors.New("not a plain configuration")

// ParsePlainFile parses a configuration file exactly as git does, or fails. It refuses a file with includes.
func ParsePlainFile(text string) ([]FileEntry, error) {
	entries, err := ParseFile(text)
	if err == nil && slices.ContainsFunc(entries, func(e FileEntry) bool {
		return strings.HasPrefix(e.Key, "include.") || strings.HasPrefix(e.Key, IncludeIfPrefix)
	}) {
		return nil, errNotPlain
	}
	return entries, err
}

// ParseFile is ParsePlainFile that accepts includes. It returns them as entries and does not follow them.
func ParseFile(text string) ([]FileEntry, error) {
	parts, err := parseParts(text)
	var entries []FileEntry
	for _, p := range parts {
		if p.kind == entryPart {
			entries = append(entries, p.entry)
		}
	}
	return entries, err
}

// filePart is a piece of a configuration file. The parts of a file are its whole text.
type filePart struct {
	kind partKind
	text string
	// With kind entryPart.
	entry   FileEntry
	comment string // comment after the value, with the line end
	// With kind headerPart.
	section       string // in lower case
	subsection    string
	hasSubsection bool
}

type partKind int

const (
	blankPart  partKind = iota // white space and comments
	headerPart                 // [section "subsection"]
	entryPart                  // a setting, with the comment and the line end after it
)

// parseParts splits a configuration file into its parts.
func parseParts(text string) ([]filePart, error) {
	if strings.ContainsAny(text, "\r\x00") || strings.HasPrefix(text, "\xef\xbb\xbf") {
		return nil, errNotPlain
	}
	var (
		p       = fileParser{rest: text}
		parts   []filePart
		section string
	)
	add := func(before string, part filePart) {
		if part.text = before[:len(before)-len(p.rest)]; part.text != "" {
			parts = append(parts, part)
		}
	}
	for {
		before := p.rest
		p.skipBlank()
		add(before, filePart{kind: blankPart})
		before = p.rest
		switch c := p.peek(); {
		case c == 0:
			return parts, nil
		case c == '[':
			part, ok := p.section()
			if !ok {
				return nil, errNotPlain
			}
			if section = part.section; part.hasSubsection {
				section += "." + part.subsection
			}
			add(before, part)
		case IsLetter(c) && section != "":
			e, ok := p.entry()
			if !ok {
				return nil, errNotPlain
			}
			e.Key = section + "." + e.Key
			add(before, filePart{kind: entryPart, entry: e, comment: p.comment[:len(p.comment)-min(len(p.comment), len(p.rest))]})
		default:
			return nil, errNotPlain
		}
	}
}

// fileParser holds the unread rest of a file. At its end peek returns 0, which no file contains.
type fileParser struct {
	rest    string
	comment string // the file from the comment of the last value on; empty if it has none
}

func (p *fileParser) peek() byte {
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *fileParser) next() byte {
	c := p.peek()
	if c != 0 {
		p.rest = p.rest[1:]
	}
	return c
}

// skipBlank skips white space, line ends and comments.
func (p *fileParser) skipBlank() {
	for {
		switch p.peek() {
		case ' ', '\t', '\n':
			p.next()
		case '#', ';':
			_, p.rest, _ = strings.Cut(p.rest, "\n")
		default:
			return
		}
	}
}

// section reads [name] or [name "subsection"]. The old form [name.subsection] is a name with a dot.
func (p *fileParser) section() (part filePart, ok bool) {
	part.kind = headerPart
	line, _, _ := strings.Cut(p.rest, "\n")
	end := 1
	for end < len(line) && (isKeyByte(line[end]) || line[end] == '.') {
		end++
	}
	if part.section = strings.ToLower(line[1:end]); part.section == "" {
		return part, false
	}
	if after := strings.TrimLeft(line[end:], " \t"); after != line[end:] {
		if !strings.HasPrefix(after, `"`) {
			return part, false
		}
		end = len(line) - len(after) + 1
		var name strings.Builder
		for ; end < len(line) && line[end] != '"'; end++ {
			if line[end] == '\\' {
				if end++; end == len(line) {
					return part, false
				}
			}
			name.WriteByte(line[end])
		}
		part.subsection, part.hasSubsection = name.String(), true
		end++
	}
	if end >= len(line) || line[end] != ']' {
		return part, false
	}
	p.rest = p.rest[end+1:]
	return part, true
}

// entry reads "name" or "name = value".
func (p *fileParser) entry() (e FileEntry, ok bool) {
	end := 0
	for end < len(p.rest) && isKeyByte(p.rest[end]) {
		end++
	}
	p.comment = ""
	e.Key, p.rest = strings.ToLower(p.rest[:end]), strings.TrimLeft(p.rest[end:], " \t")
	switch p.peek() {
	case 0, '\n':
		e.NoValue, e.Value = true, "true"
		return e, true
	case '=':
		p.next()
	default:
		return e, false
	}
	e.Value, e.Ambiguous, ok = p.value()
	return e, ok
}

// value reads the text after the equals sign, to the end of the line or of its last continuation line.
func (p *fileParser) value() (value string, doubtful, ok bool) {
	var out strings.Builder
	quoted, comment, blank := false, false, 0
	for {
		at := p.rest
		switch c := p.next(); {
		case c == 0 || c == '\n':
			return out.String(), doubtful, !quoted
		case comment:
		case (c == ' ' || c == '\t') && !quoted:
			if out.Len() > 0 { // trailing white space does not count
				blank++
				doubtful = doubtful || c == '\t' // newer versions keep a tab, older ones make it a space
			}
		case (c == '#' || c == ';') && !quoted:
			comment, p.comment = true, at
		default:
			for ; blank > 0; blank-- {
				out.WriteByte(' ')
			}
			switch c {
			case '"':
				quoted = !quoted
				continue
			case '\\':
				switch c = p.next(); c {
				case '\n':
					continue
				case 't':
					c = '\t'
				case 'b':
					c = '\b'
				case 'n':
					c = '\n'
				case '\\', '"':
				default:
					return "", false, false
				}
			case '\v', '\f': // versions of git may treat these as white space
				return "", false, false
			}
			out.WriteByte(c)
		}
	}
}

func IsLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isKeyByte(c byte) bool { return IsLetter(c) || '0' <= c && c <= '9' || c == '-' }
