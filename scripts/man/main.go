// Command man renders the manual: markdown on standard input, a page for man(1) on standard output.
//
// go-md2man does the work. What is done to its output is what a manual full of commands needs: new
// versions of groff print plain - ' ` ^ and ~ as typographic characters, which no shell understands
// when they are copied from the screen, and examples stand out when they are indented.
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
		case line == ".nh\n": // too early; the title switches it on again
		case strings.HasPrefix(line, ".TH "):
			page.WriteString(line + layout)
		case line == ".EX\n":
			page.WriteString(".RS 4\n.EX\n")
		case line == ".EE\n":
			page.WriteString(".EE\n.RE\n.nh\n") // the end of an example switches hyphens on again
		case strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".S"):
			page.WriteString(line)
		default:
			page.WriteString(literal(line))
		}
	}
	return page.String()
}

// layout: no hyphens that were not written, ragged lines, and one space between sentences. In a text
// full of commands, whatever groff adds might be taken for a part of one.
const layout = ".nh\n.ad l\n.ss 12 0\n"

// literal makes groff print the characters that shells care about as they are.
func literal(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\': // an escape of md2man's: a font, a character, or a backslash
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
