// Package manual parses the source of the manual and renders it as text for a terminal or a file. It must never print, or
// know what the manual says.
package manual

import (
	"strings"
	"unicode/utf8"
)

// Block is one block of the manual. The source uses a subset of markdown: headings, paragraphs, definitions,
// bullets and fenced code, and inside of them `code`, **bold** and *emphasis*.
type Block struct {
	Kind  Kind
	Level int    // level of a heading
	Term  string // term of a definition
	Text  string // text in one line; code keeps its lines
}

// Kind is the kind of a block.
type Kind int

// Kinds of blocks.
const (
	Heading Kind = iota
	Paragraph
	Definition
	Bullet
	Code
)

// Parse splits the markdown source into blocks.
func Parse(source string) []Block {
	var blocks []Block
	var lines []string // lines of the paragraph, definition or bullet that is being read
	flush := func() {
		if len(lines) == 0 {
			return
		}
		b := Block{Kind: Paragraph}
		if len(lines) > 1 && strings.HasPrefix(lines[1], ": ") {
			b.Kind, b.Term, lines = Definition, unwrapLines(lines[0]), lines[1:]
			lines[0] = lines[0][2:]
		} else if rest, ok := strings.CutPrefix(lines[0], "- "); ok {
			b.Kind, lines[0] = Bullet, rest
		}
		b.Text = unwrapLines(lines...)
		blocks, lines = append(blocks, b), nil
	}
	var verbatim *strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		level := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case verbatim != nil && line == "```":
			blocks, verbatim = append(blocks, Block{Kind: Code, Text: verbatim.String()}), nil
		case verbatim != nil:
			verbatim.WriteString(line + "\n")
		case line == "```":
			flush()
			verbatim = &strings.Builder{}
		case strings.HasPrefix(line, "%"): // title, used by man only
		case level > 0 && strings.HasPrefix(line[level:], " "):
			flush()
			blocks = append(blocks, Block{Kind: Heading, Level: level, Text: unwrapLines(line[level:])})
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

// Section returns the blocks below the heading title and below headings of the same level that extend it: the
// section of a command group includes those of its commands.
func Section(blocks []Block, title string) []Block {
	var section []Block
	level := 0 // level of the section's heading; 0 outside of the section
	for _, b := range blocks {
		if b.Kind == Heading {
			switch {
			case b.Text == title || level == b.Level && strings.HasPrefix(b.Text, title+" "):
				level = b.Level
			case b.Level <= level:
				level = 0
			}
		}
		if level > 0 {
			section = append(section, b)
		}
	}
	return section
}

// Sections returns the titles of the sections, not of the subsections in them.
func Sections(blocks []Block) []string {
	var titles []string
	for _, b := range blocks {
		if b.Kind == Heading && b.Level == 2 {
			titles = append(titles, b.Text)
		}
	}
	return titles
}

// Render lays the manual out as text with lines of at most width characters, where words and examples allow. For
// terminals (styled), literals are bold; otherwise they are quoted where their end would be hard to see.
func Render(blocks []Block, width int, styled bool) string {
	var b strings.Builder
	inline := func(lead, text string, indent int) {
		b.WriteString(lead)
		line := indent
		for i, w := range splitWords(text, styled) {
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
	if len(blocks) > 0 && blocks[0].Kind == Heading {
		top = blocks[0].Level
	}
	for i, block := range blocks {
		if i > 0 && blocks[i-1].Kind != Heading {
			b.WriteByte('\n')
		}
		switch block.Kind {
		case Heading:
			lead := body[:2*min(max(block.Level-top, 0), 1)]
			inline(lead, "**"+block.Text+"**", len(lead))
		case Paragraph:
			inline(body, block.Text, len(body))
		case Definition:
			inline(body, block.Term, len(body))
			inline(deeper, block.Text, len(deeper))
		case Bullet:
			inline(body+"- ", block.Text, len(body)+2)
		case Code:
			for line := range strings.Lines(block.Text) {
				b.WriteString(strings.TrimRight(deeper+line, " \n") + "\n")
			}
		}
	}
	return b.String()
}

// styledWord is a word with its escape sequences, and its width in characters.
type styledWord struct {
	text  string
	width int
}

var marks = []struct{ mark, on string }{{"`", "\x1b[1m"}, {"**", "\x1b[1m"}, {"*", "\x1b[4m"}}

// splitWords splits text into words and replaces its marks by escape sequences, or drops them unless styled. A mark
// that is not closed is an ordinary character.
func splitWords(text string, styled bool) []styledWord {
	var words []styledWord
	var word strings.Builder
	width := 0
	end := func() {
		if width > 0 {
			words = append(words, styledWord{word.String(), width})
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
		for _, m := range marks {
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
