package main

import (
	_ "embed"
	"strings"
	"unicode/utf8"
)

// manualSource is the manual as it was written, and manualPage the page for man that 'make man' renders
// from it.
var (
	//go:embed manual/git-agency.1.md
	manualSource string
	//go:embed manual/git-agency.1
	manualPage []byte
)

// manualBlock is a part of the manual. The source keeps to a few forms of markdown: headings,
// paragraphs, definitions, bullets and fenced code, and inside of them `code`, **bold** and *emphasis*.
type manualBlock struct {
	kind  blockKind
	level int    // of a heading
	term  string // what is defined
	text  string // in one line, but for code
}

type blockKind int

const (
	heading blockKind = iota
	paragraph
	definition
	bullet
	code
)

func parseManual(source string) []manualBlock {
	var blocks []manualBlock
	var lines []string // of the paragraph, definition or bullet at hand
	flush := func() {
		if len(lines) == 0 {
			return
		}
		b := manualBlock{kind: paragraph}
		if len(lines) > 1 && strings.HasPrefix(lines[1], ": ") {
			b.kind, b.term, lines = definition, unwrapped(lines[0]), lines[1:]
			lines[0] = lines[0][2:]
		} else if rest, ok := strings.CutPrefix(lines[0], "- "); ok {
			b.kind, lines[0] = bullet, rest
		}
		b.text = unwrapped(lines...)
		blocks, lines = append(blocks, b), nil
	}
	var verbatim *strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case verbatim != nil && line == "```":
			blocks, verbatim = append(blocks, manualBlock{kind: code, text: verbatim.String()}), nil
		case verbatim != nil:
			verbatim.WriteString(line + "\n")
		case line == "```":
			flush()
			verbatim = &strings.Builder{}
		case strings.HasPrefix(line, "%"): // the title, which is for man
		case marks > 0 && strings.HasPrefix(line[marks:], " "):
			flush()
			blocks = append(blocks, manualBlock{kind: heading, level: marks, text: unwrapped(line[marks:])})
		case strings.TrimSpace(line) == "":
			flush()
		case strings.HasPrefix(line, "- "):
			flush()
			lines = []string{line}
		default:
			lines = append(lines, line)
		}
	}
	flush()
	return blocks
}

func unwrapped(lines ...string) string {
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}

// manualSection is the part of the manual under a heading, and under those that begin with it: of a group
// of commands, also what is about each of them.
func manualSection(blocks []manualBlock, title string) []manualBlock {
	var section []manualBlock
	level := 0 // of the heading; 0 outside of the section
	for _, b := range blocks {
		if b.kind == heading {
			switch {
			case b.text == title || level == b.level && strings.HasPrefix(b.text, title+" "):
				level = b.level
			case b.level <= level:
				level = 0
			}
		}
		if level > 0 {
			section = append(section, b)
		}
	}
	return section
}

// renderManual lays the manual out as text, in lines of at most so many characters where words and
// examples allow. Styled is for terminals, where what is literal is bold; elsewhere it is quoted where it
// would be hard to tell.
func renderManual(blocks []manualBlock, width int, styled bool) string {
	var b strings.Builder
	inline := func(lead, text string, indent int) {
		b.WriteString(lead)
		line := indent
		for i, w := range manualWords(text, styled) {
			switch {
			case i == 0:
			case line+1+w.width > width:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				line = indent
			default:
				b.WriteByte(' ')
				line++
			}
			b.WriteString(w.text)
			line += w.width
		}
		b.WriteByte('\n')
	}
	const body, deeper = "    ", "        "
	top := 2 // the level of heading that stands at the margin
	if len(blocks) > 0 && blocks[0].kind == heading {
		top = blocks[0].level
	}
	for i, block := range blocks {
		if i > 0 && blocks[i-1].kind != heading {
			b.WriteByte('\n')
		}
		switch block.kind {
		case heading:
			lead := body[:2*min(max(block.level-top, 0), 1)]
			inline(lead, "**"+block.text+"**", len(lead))
		case paragraph:
			inline(body, block.text, len(body))
		case definition:
			inline(body, block.term, len(body))
			inline(deeper, block.text, len(deeper))
		case bullet:
			inline(body+"- ", block.text, len(body)+2)
		case code:
			for line := range strings.Lines(block.text) {
				b.WriteString(strings.TrimRight(deeper+line, " \n") + "\n")
			}
		}
	}
	return b.String()
}

// manualWord is a word as it is printed, and how much room it takes.
type manualWord struct {
	text  string
	width int
}

var manualMarks = []struct{ mark, on string }{{"`", "\x1b[1m"}, {"**", "\x1b[1m"}, {"*", "\x1b[4m"}}

// manualWords splits a text into words and turns its marks into what a terminal understands, or drops
// them. A mark that is not closed is a character like any other.
func manualWords(text string, styled bool) []manualWord {
	var words []manualWord
	var word strings.Builder
	width := 0
	end := func() {
		if width > 0 {
			words = append(words, manualWord{word.String(), width})
		}
		word.Reset()
		width = 0
	}
	add := func(piece, style string) {
		for i, part := range strings.Split(piece, " ") {
			if i > 0 {
				end()
			}
			if part == "" {
				continue
			}
			width += utf8.RuneCountInString(part)
			if style != "" && styled {
				part = style + part + "\x1b[0m"
			}
			word.WriteString(part)
		}
	}
	whole := text
next:
	for text != "" {
		for _, m := range manualMarks {
			rest, opened := strings.CutPrefix(text, m.mark)
			inside, after, closed := strings.Cut(rest, m.mark)
			if !opened || !closed || inside == "" {
				continue
			}
			text = after
			if m.mark == "`" && !styled && len(inside)+2 < len(whole) && wantsQuotes(inside) {
				inside = "'" + inside + "'"
			}
			add(inside, m.on)
			continue next
		}
		_, first := utf8.DecodeRuneInString(text)
		n := strings.IndexAny(text[first:], "`*")
		if n < 0 {
			n = len(text) - first
		}
		add(text[:first+n], "")
		text = text[first+n:]
	}
	end()
	return words
}

// wantsQuotes reports whether it is hard to tell where a literal ends: it has several words, and neither
// quotes of its own nor the dashes that give an option away.
func wantsQuotes(literal string) bool {
	return strings.Contains(literal, " ") && !strings.Contains(literal, "'") && !strings.HasPrefix(literal, "-")
}
