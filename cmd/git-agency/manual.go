package main

import (
	_ "embed"
	"strings"
	"unicode/utf8"
)

// manualSource is the source of the manual; manualPage is the man page that 'make man' renders from it.
var (
	//go:embed manual/git-agency.1.md
	manualSource string
	//go:embed manual/git-agency.1
	manualPage []byte
)

// manualBlock is one block of the manual. The source uses a subset of markdown: headings, paragraphs, definitions,
// bullets and fenced code, and inside of them `code`, **bold** and *emphasis*.
type manualBlock struct {
	kind  blockKind
	level int    // level of a heading
	term  string // term of a definition
	text  string // text in one line; code keeps its lines
}

type blockKind int

const (
	headingBlock blockKind = iota
	paragraphBlock
	definitionBlock
	bulletBlock
	codeBlock
)

// parseManual splits the markdown source into blocks.
func parseManual(source string) []manualBlock {
	var blocks []manualBlock
	var lines []string // lines of the paragraph, definition or bullet that is being read
	flush := func() {
		if len(lines) == 0 {
			return
		}
		b := manualBlock{kind: paragraphBlock}
		if len(lines) > 1 && strings.HasPrefix(lines[1], ": ") {
			b.kind, b.term, lines = definitionBlock, unwrapLines(lines[0]), lines[1:]
			lines[0] = lines[0][2:]
		} else if rest, ok := strings.CutPrefix(lines[0], "- "); ok {
			b.kind, lines[0] = bulletBlock, rest
		}
		b.text = unwrapLines(lines...)
		blocks, lines = append(blocks, b), nil
	}
	var verbatim *strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case verbatim != nil && line == "```":
			blocks, verbatim = append(blocks, manualBlock{kind: codeBlock, text: verbatim.String()}), nil
		case verbatim != nil:
			verbatim.WriteString(line + "\n")
		case line == "```":
			flush()
			verbatim = &strings.Builder{}
		case strings.HasPrefix(line, "%"): // title, used by man only
		case marks > 0 && strings.HasPrefix(line[marks:], " "):
			flush()
			blocks = append(blocks, manualBlock{kind: headingBlock, level: marks, text: unwrapLines(line[marks:])})
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

// unwrapLines joins lines into one, with single spaces between words.
func unwrapLines(lines ...string) string {
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}

// manualSection returns the blocks below the heading title and below headings of the same level that extend it: the
// section of a command group includes those of its commands.
func manualSection(blocks []manualBlock, title string) []manualBlock {
	var section []manualBlock
	level := 0 // level of the section's heading; 0 outside of the section
	for _, b := range blocks {
		if b.kind == headingBlock {
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

// renderManual lays the manual out as text with lines of at most width characters, where words and examples allow. For
// terminals (styled), literals are bold; otherwise they are quoted where their end would be hard to see.
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
	top := 2 // level of the headings without indentation
	if len(blocks) > 0 && blocks[0].kind == headingBlock {
		top = blocks[0].level
	}
	for i, block := range blocks {
		if i > 0 && blocks[i-1].kind != headingBlock {
			b.WriteByte('\n')
		}
		switch block.kind {
		case headingBlock:
			lead := body[:2*min(max(block.level-top, 0), 1)]
			inline(lead, "**"+block.text+"**", len(lead))
		case paragraphBlock:
			inline(body, block.text, len(body))
		case definitionBlock:
			inline(body, block.term, len(body))
			inline(deeper, block.text, len(deeper))
		case bulletBlock:
			inline(body+"- ", block.text, len(body)+2)
		case codeBlock:
			for line := range strings.Lines(block.text) {
				b.WriteString(strings.TrimRight(deeper+line, " \n") + "\n")
			}
		}
	}
	return b.String()
}

// manualWord is a word with its escape sequences, and its width in characters.
type manualWord struct {
	text  string
	width int
}

var manualMarks = []struct{ mark, on string }{{"`", "\x1b[1m"}, {"**", "\x1b[1m"}, {"*", "\x1b[4m"}}

// manualWords splits text into words and replaces its marks by escape sequences, or drops them unless styled. A mark
// that is not closed is an ordinary character.
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
			if m.mark == "`" && !styled && len(inside)+2 < len(whole) && needsQuotes(inside) {
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

// needsQuotes reports whether the end of a literal is hard to see in plain text: it has several words, no quotes of
// its own, and does not begin with the dash of an option.
func needsQuotes(literal string) bool {
	return strings.Contains(literal, " ") && !strings.Contains(literal, "'") && !strings.HasPrefix(literal, "-")
}
