package treediff

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Summary returns git's one-line summary of a diff ("2 files changed, …"), or "" for an empty diff.
func (d Diff) Summary() string {
	files, insertions, deletions := d.Files(), 0, 0
	if len(files) == 0 {
		return ""
	}
	for _, f := range files {
		insertions, deletions = insertions+f.Insertions, deletions+f.Deletions
	}
	text := " " + pluralize(len(files), "file changed", "files changed")
	if insertions > 0 || deletions == 0 {
		text += ", " + pluralize(insertions, "insertion(+)", "insertions(+)")
	}
	if deletions > 0 || insertions == 0 {
		text += ", " + pluralize(deletions, "deletion(-)", "deletions(-)")
	}
	return text + "\n"
}

func pluralize(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WriteNameStatus writes one line per file: its status letter and its name.
func (d Diff) WriteNameStatus(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, f := range d.Files() {
		fmt.Fprintf(w, "%s\t", f.Status())
		if f.OldPath != "" {
			fmt.Fprintf(w, "%s\t", quote.Path(f.OldPath))
		}
		fmt.Fprintf(w, "%s\n", quote.Path(f.Path))
	}
	return w.Flush()
}

// Status returns git's status letter of a file, with the similarity of a rename.
func (f File) Status() string {
	switch {
	case f.OldMode == "":
		return "A"
	case f.NewMode == "":
		return "D"
	case f.OldPath != "":
		return fmt.Sprintf("R%03d", f.Similarity)
	case fileKind(f.OldMode) != fileKind(f.NewMode):
		return "T"
	}
	return "M"
}

// WriteStat writes a table of the files with a graph of changed lines, and the summary.
func (d Diff) WriteStat(out io.Writer, style Style) error {
	w := bufio.NewWriter(out)
	files := d.Files()
	width := cmp.Or(style.Width, 80)
	names, counts := make([]string, len(files)), make([]string, len(files))
	nameWidth, countWidth, most := 0, 0, 0
	for i, f := range files {
		names[i] = displayName(f)
		nameWidth = max(nameWidth, utf8.RuneCountInString(names[i]))
		if counts[i] = fmt.Sprint(f.Insertions + f.Deletions); f.IsBinary() {
			counts[i] = "Bin"
		}
		countWidth = max(countWidth, len(counts[i]))
		most = max(most, f.Insertions+f.Deletions)
	}
	// " <name> | <count> <graph>": the graph has at least six columns, the name gets the rest.
	const frame, leastGraph = 5, 6
	nameWidth = min(nameWidth, max(width-frame-countWidth-min(leastGraph, most), 10))
	graphWidth := max(width-frame-nameWidth-countWidth, 1)
	for i, f := range files {
		name := names[i]
		if over := utf8.RuneCountInString(name) - nameWidth; over > 0 {
			name = "..." + string([]rune(name)[over+3:])
		}
		fmt.Fprintf(w, " %s%s | %*s", name, strings.Repeat(" ", nameWidth-utf8.RuneCountInString(name)), countWidth, counts[i])
		plus, minus := f.Insertions, f.Deletions
		if most > graphWidth {
			plus, minus = scaleBar(plus, graphWidth, most), scaleBar(minus, graphWidth, most)
		}
		switch {
		case f.IsBinary():
			fmt.Fprintf(w, " %s", formatSizes(f))
		case plus+minus > 0:
			fmt.Fprintf(w, " %s%s", style.Colors.paint(style.Colors.Added, strings.Repeat("+", plus)),
				style.Colors.paint(style.Colors.Removed, strings.Repeat("-", minus)))
		}
		w.WriteByte('\n')
	}
	w.WriteString(d.Summary())
	return w.Flush()
}

// scaleBar scales a count to the width of the graph; a count above 0 has at least one column.
func scaleBar(n, width, most int) int {
	if n == 0 {
		return 0
	}
	return 1 + n*(width-2)/most
}

// displayName returns the name of a file; for a rename it writes common directories once, as in "src/{a => b}.go".
func displayName(f File) string {
	if f.OldPath == "" {
		return quote.Path(f.Path)
	}
	old, new := f.OldPath, f.Path
	if quote.Path(old) != old || quote.Path(new) != new {
		return quote.Path(old) + " => " + quote.Path(new)
	}
	head := 0
	for i := 0; i < min(len(old), len(new)) && old[i] == new[i]; i++ {
		if old[i] == '/' {
			head = i + 1
		}
	}
	tail := 0
	for i := 1; i <= min(len(old), len(new))-max(head-1, 0) && old[len(old)-i] == new[len(new)-i]; i++ {
		if old[len(old)-i] == '/' {
			tail = i
		}
	}
	if head == 0 && tail == 0 {
		return old + " => " + new
	}
	middle := func(path string) string { return path[head:max(len(path)-tail, head)] }
	return old[:head] + "{" + middle(old) + " => " + middle(new) + "}" + new[len(new)-tail:]
}
