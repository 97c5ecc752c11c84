package treediff

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// ParsePatch parses the output of "git diff-tree -r --raw -p --full-index": one line for each file that differs, an
// empty line, and then the patches in the same order. Names, modes and ids are taken from the raw lines, which are
// unambiguous; the patches only supply the content. The result keeps references to text.
func ParsePatch(text string) (Diff, error) {
	p := parser{rest: text}
	files, err := p.parseRawEntries()
	if err != nil {
		return Diff{}, err
	}
	var d Diff
	for _, f := range files {
		if f.RemovedBody != nil {
			if *f.RemovedBody, err = p.parseFilePatch(); err != nil {
				return Diff{}, fmt.Errorf("%q: %w", f.Path, err)
			}
		}
		if f.Body, err = p.parseFilePatch(); err != nil {
			return Diff{}, fmt.Errorf("%q: %w", f.Path, err)
		}
		f.countLines()
		d.add(f)
	}
	if p.rest != "" {
		return Diff{}, p.unexpectedError("the end")
	}
	return d, nil
}

// ParseCounts parses the output of "git diff-tree -r -z --raw", with or without --numstat: the files that differ, and
// their line counts.
func ParseCounts(text string) (Diff, error) {
	var files []File
	fields := nulFields{text}
	for strings.HasPrefix(fields.rest, ":") {
		f, err := parseRawEntry(fields.next())
		if err != nil {
			return Diff{}, err
		}
		if f.Path = fields.next(); f.Similarity > 0 {
			f.OldPath, f.Path = f.Path, fields.next()
		}
		if f.Path == "" {
			return Diff{}, fmt.Errorf("git diff: file without a path")
		}
		files = append(files, f)
	}
	at := map[string]int{}
	for i, f := range files {
		at[f.Path] = i
	}
	for fields.rest != "" {
		counts := strings.SplitN(fields.next(), "\t", 3)
		if len(counts) != 3 {
			return Diff{}, fmt.Errorf("git diff: invalid line counts %q", counts)
		}
		path := counts[2]
		if path == "" { // renamed: two paths follow
			fields.next()
			path = fields.next()
		}
		i, known := at[path]
		if !known {
			return Diff{}, fmt.Errorf("git diff: line counts of %q, which is not in the list of files", path)
		}
		f := &files[i]
		if counts[0] == "-" {
			f.Binary = f.OldID != f.NewID // a patch does not mark unchanged content as binary either
			continue
		}
		var err error
		if f.Insertions, err = strconv.Atoi(counts[0]); err == nil {
			f.Deletions, err = strconv.Atoi(counts[1])
		}
		if err != nil {
			return Diff{}, err
		}
	}
	var d Diff
	for _, f := range files {
		f.RemovedBody = nil // without patches the two bodies of a type change do not matter
		d.add(f)
	}
	return d, nil
}

// nulFields splits text at NUL bytes.
type nulFields struct{ rest string }

func (f *nulFields) next() string {
	var field string
	field, f.rest, _ = strings.Cut(f.rest, "\x00")
	return field
}

// parseRawEntry parses ":<mode> <mode> <id> <id> <status>".
func parseRawEntry(line string) (File, error) {
	fail := func() (File, error) { return File{}, fmt.Errorf("git diff: invalid raw entry %q", line) }
	words := strings.Split(strings.TrimPrefix(line, ":"), " ")
	if len(words) != 5 || len(words[4]) == 0 {
		return fail()
	}
	for i, w := range words[:4] {
		switch {
		case i < 2 && (len(w) != 6 || strings.Trim(w, "01234567") != ""):
			return fail()
		case i >= 2 && (len(w) != 40 && len(w) != 64 || strings.Trim(w, "0123456789abcdef") != ""):
			return fail()
		case strings.Trim(w, "0") == "":
			words[i] = "" // all zero: absent on this side
		}
	}
	f := File{OldMode: words[0], NewMode: words[1], OldID: words[2], NewID: words[3]}
	if f.OldMode == "" && f.NewMode == "" {
		return fail()
	}
	if status := words[4]; status[0] == 'R' || status[0] == 'C' {
		score, err := strconv.Atoi(status[1:])
		if err != nil || score < 1 || score > 100 || f.OldMode == "" || f.NewMode == "" {
			return fail()
		}
		f.Similarity = score
	}
	if f.OldMode != "" && f.NewMode != "" && fileKind(f.OldMode) != fileKind(f.NewMode) {
		f.RemovedBody = &Body{}
	}
	return f, nil
}

// fileKind returns the part of a mode that tells files, symlinks and submodules apart.
func fileKind(mode string) string { return mode[:min(len(mode), 3)] }

// parser reads text line by line.
type parser struct{ rest string }

func (p *parser) nextLine() string {
	var line string
	line, p.rest, _ = strings.Cut(p.rest, "\n")
	return line
}

func (p *parser) hasPrefix(prefix string) bool { return strings.HasPrefix(p.rest, prefix) }

func (p *parser) unexpectedError(want string) error {
	const most = 80
	line, _, _ := strings.Cut(p.rest, "\n")
	return fmt.Errorf("git diff: want %s, have %q", want, line[:min(len(line), most)])
}

// parseRawEntries reads the raw lines and the empty line after them.
func (p *parser) parseRawEntries() ([]File, error) {
	var files []File
	for p.hasPrefix(":") {
		info, paths, _ := strings.Cut(p.nextLine(), "\t")
		f, err := parseRawEntry(info)
		if err != nil {
			return nil, err
		}
		var ok bool
		if f.Path, paths, ok = quote.ParsePath(paths); ok && f.Similarity > 0 {
			f.OldPath = f.Path
			f.Path, paths, ok = quote.ParsePath(strings.TrimPrefix(paths, "\t"))
		}
		if !ok || paths != "" {
			return nil, fmt.Errorf("git diff: invalid paths %q", paths)
		}
		files = append(files, f)
	}
	if len(files) > 0 && p.rest != "" && p.nextLine() != "" {
		return nil, fmt.Errorf("git diff: no empty line between files and patches")
	}
	return files, nil
}

// parseFilePatch reads the patch of one file.
func (p *parser) parseFilePatch() (Body, error) {
	const begin = "diff --git "
	var b Body
	if !p.hasPrefix(begin) {
		return b, p.unexpectedError("the patch of a file")
	}
	p.nextLine()
	for p.rest != "" && !p.hasPrefix(begin) {
		switch {
		case p.hasPrefix("@@ "):
			h, err := p.parseHunkLines()
			if err != nil {
				return b, err
			}
			b.Hunks = append(b.Hunks, h)
		case p.hasPrefix("Binary files "):
			b.Binary = true
			p.nextLine()
		case p.hasPrefix("GIT binary patch\n"):
			b.Binary = true
			all := p.rest
			for p.rest != "" && !p.hasPrefix(begin) {
				p.nextLine()
			}
			b.Patch = all[:len(all)-len(p.rest)]
		case len(b.Hunks) > 0 || b.Binary:
			return b, p.unexpectedError("a hunk")
		default:
			p.nextLine() // header line, already known from the raw entry
		}
	}
	return b, nil
}

// parseHunkLines reads a hunk: its header and as many lines as that announces.
func (p *parser) parseHunkLines() (Hunk, error) {
	first := p.nextLine()
	h, ok := parseHunkHeader(first)
	if !ok {
		return h, fmt.Errorf("git diff: invalid hunk header %q", first)
	}
	h.Lines = make([]Line, 0, min(h.OldLines+h.NewLines, len(p.rest)/2+1))
	for old, new := h.OldLines, h.NewLines; old > 0 || new > 0; {
		if p.rest == "" {
			return h, p.unexpectedError("more lines")
		}
		if p.hasPrefix(`\`) {
			if p.nextLine(); len(h.Lines) == 0 {
				return h, p.unexpectedError("a line")
			}
			h.Lines[len(h.Lines)-1].NoNewline = true
			continue
		}
		text := p.nextLine()
		if text == "" {
			text = " " // git leaves out the blank with diff.suppressBlankEmpty
		}
		l := Line{Op: Op(text[0]), Text: text[1:]}
		switch l.Op {
		case Same:
			old, new = old-1, new-1
		case Removed:
			old--
		case Added:
			new--
		default:
			return h, fmt.Errorf("git diff: invalid line in a hunk, begins with %q", text[0])
		}
		if old < 0 || new < 0 {
			return h, fmt.Errorf("git diff: more lines than hunk header %q says", first)
		}
		h.Lines = append(h.Lines, l)
	}
	if p.hasPrefix(`\`) && len(h.Lines) > 0 {
		p.nextLine()
		h.Lines[len(h.Lines)-1].NoNewline = true
	}
	return h, nil
}

// parseHunkHeader parses "@@ -<start>[,<lines>] +<start>[,<lines>] @@[ <section>]".
func parseHunkHeader(line string) (h Hunk, ok bool) {
	inner, section, ok := strings.Cut(strings.TrimPrefix(line, "@@ "), " @@")
	if !ok {
		return h, false
	}
	old, new, ok := strings.Cut(inner, " ")
	if !ok || !strings.HasPrefix(old, "-") || !strings.HasPrefix(new, "+") {
		return h, false
	}
	h.Section = strings.TrimPrefix(section, " ")
	return h, parseRange(old[1:], &h.OldStart, &h.OldLines) && parseRange(new[1:], &h.NewStart, &h.NewLines)
}

func parseRange(text string, start, lines *int) bool {
	const most = 1 << 40
	first, second, both := strings.Cut(text, ",")
	if !both {
		second = "1"
	}
	a, errA := strconv.ParseUint(first, 10, 63)
	b, errB := strconv.ParseUint(second, 10, 63)
	*start, *lines = int(a), int(b)
	return errA == nil && errB == nil && a < most && b < most
}
