// Command man renders the manual: it reads Markdown from standard input and writes a man(1) page to standard output.
//
// go-md2man does the conversion. This command changes its output for a manual full of commands: recent versions of
// groff print plain - ' ` ^ and ~ as typographic characters, which do not work when copied into a shell, and examples
// are indented to stand out.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

func main() {
	source, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, render(source))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func render(source []byte) string {
	var page strings.Builder
	page.WriteString(".\\\" Made from git-agency.1.md by 'make man'; change that one.\n")
	for line := range strings.Lines(string(md2man.Render(source))) {
		switch {
		case line == ".nh\n": // too early: .TH turns hyphenation on again
		case strings.HasPrefix(line, ".TH "):
			page.WriteString(line + layout)
		case line == ".EX\n":
			page.WriteString(".RS 4\n.EX\n")
		case line == ".EE\n":
			page.WriteString(".EE\n.RE\n.nh\n") // .EE turns hyphenation on again
		case strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".S"):
			page.WriteString(line)
		default:
			page.WriteString(escapeLiteral(line))
		}
	}
	return page.String()
}

// layout turns off hyphenation and justification and sets one space between sentences: anything that groff inserts
// might be taken for a part of a command.
const layout = ".nh\n.ad l\n.ss 12 0\n"

// escapeLiteral makes groff print characters that are special to shells unchanged.
func escapeLiteral(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\': // an escape written by md2man: a font, a character, or a backslash
			i++
			if text[i] == '\\' {
				b.WriteString(`\(rs`)
			} else {
				b.WriteString(text[i-1 : i+1])
			}
		case '-':
			b.WriteString(`\-`)
		case '\'':
			b.WriteString(`\(aq`)
		case '`':
			b.WriteString(`\(ga`)
		case '^':
			b.WriteString(`\(ha`)
		case '~':
			b.WriteString(`\(ti`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
