package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// mostJSON bounds what put reads into memory. Whoever has more has files, and need not spell them out.
const mostJSON = 256 << 20

// readFiles reads what --json names.
func readFiles(c *cli.Context) ([]gitagency.File, error) {
	text, err := interruptibly(c.Context, func() ([]byte, error) {
		if c.String("json") == "-" {
			return io.ReadAll(io.LimitReader(c.App.Reader, mostJSON+1))
		}
		f, err := os.Open(c.String("json"))
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, mostJSON+1))
		return text, errors.Join(err, f.Close())
	})
	if err != nil {
		return nil, &sourceError{err}
	}
	if len(text) > mostJSON {
		return nil, asUsage(c, fmt.Errorf("--json: more than %d MiB; put files by name instead", mostJSON>>20))
	}
	files, err := parseFiles(text)
	if is[*gitagency.ConfinementError](err) {
		return nil, fmt.Errorf("--json: %w", err)
	}
	if err != nil {
		return nil, asUsage(c, fmt.Errorf("--json: %w", err))
	}
	return files, nil
}

// interruptibly reads, but does not wait when ctx ends: a person who is asked for input may have meant
// something else.
func interruptibly(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// parseFiles reads an array of objects, and is strict: a field that is misspelt would otherwise be a file with
// the wrong content.
func parseFiles(text []byte) ([]gitagency.File, error) {
	if !utf8.Valid(text) {
		return nil, cmp.Or(brokenPath(text), errors.New("the text is not valid UTF-8; other bytes go into content_base64"))
	}
	if at := loneSurrogate(text); at >= 0 {
		return nil, cmp.Or(brokenPath(text), fmt.Errorf("at byte %d is half a character; other bytes go into content_base64", at))
	}
	return decodeFiles(text)
}

// stray stands for a byte that belongs to no character, while the path that it is in is looked for.
const stray = 0x10ff00

// brokenPath is the error about a path that is not valid UTF-8, which is refused like other bad names; nil when what
// is not valid is elsewhere.
func brokenPath(text []byte) error {
	var whole []byte
	for len(text) > 0 {
		if loneSurrogate(text[:min(len(text), 12)]) == 0 {
			for _, b := range encoded(rune(escapedUnit(text, 1))) {
				whole = utf8.AppendRune(whole, stray+rune(b))
			}
			text = text[6:]
			continue
		}
		n := wholeUnit(text)
		if n == 0 {
			whole = utf8.AppendRune(whole, stray+rune(text[0]))
			n = 1
		} else {
			whole = append(whole, text[:n]...)
		}
		text = text[n:]
	}
	files, err := decodeFiles(whole)
	if err != nil {
		return nil
	}
	for i, f := range files {
		var name []byte
		for _, r := range f.Path {
			if r >= stray && r <= stray+0xff {
				name = append(name, byte(r-stray))
			} else {
				name = utf8.AppendRune(name, r)
			}
		}
		if !utf8.Valid(name) {
			return itemError(i, &gitagency.ConfinementError{Path: string(name), Why: "is not valid UTF-8"})
		}
	}
	return nil
}

// wholeUnit is the length of the character or the escape at the beginning of a text; 0 when it is a byte that belongs
// to none.
func wholeUnit(text []byte) int {
	r, n := utf8.DecodeRune(text)
	switch unit := escapedUnit(text, 1); {
	case r == utf8.RuneError && n == 1:
		return 0
	case r != '\\' || len(text) == 1 || text[1] >= utf8.RuneSelf:
		return n
	case unit < 0:
		return 2
	case unit >= 0xd800 && unit < 0xdc00:
		return 12 // both halves
	}
	return 6
}

// encoded are the bytes that half a character would have.
func encoded(r rune) []byte {
	return []byte{0xe0 | byte(r>>12), 0x80 | byte(r>>6)&0x3f, 0x80 | byte(r)&0x3f}
}

// itemError says which item an error is about.
func itemError(i int, err error) error { return fmt.Errorf("item %d: %w", i+1, err) }

// withItem says of an error about a path which item that is.
func withItem(err error, files []gitagency.File) error {
	var confined *gitagency.ConfinementError
	var inPath *fs.PathError
	about := ""
	switch {
	case errors.As(err, &confined):
		about = confined.Path
	case errors.As(err, &inPath):
		about = inPath.Path
	default:
		return err
	}
	for i, f := range slices.Backward(files) { // of what is there twice, the second is one too many
		if f.Path == about {
			return itemError(i, err)
		}
	}
	return err
}

func decodeFiles(text []byte) ([]gitagency.File, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := expect(dec, '['); err != nil {
		if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
			err = errors.New("wrap the object in [ ]")
		}
		return nil, fmt.Errorf("want an array of objects: %w", err)
	}
	files := []gitagency.File{}
	for dec.More() {
		f, err := parseFile(dec)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", len(files)+1, err)
		}
		files = append(files, f)
	}
	if err := expect(dec, ']'); err != nil {
		return nil, fmt.Errorf("after item %d: %w", len(files), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is something behind the array")
	}
	return files, nil
}

func expect(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the text ends too early")
	case err != nil:
		return err
	case token != want:
		return fmt.Errorf("%v is not %q", token, want.String())
	}
	return nil
}

// parseFile reads one object.
func parseFile(dec *json.Decoder) (gitagency.File, error) {
	var file gitagency.File
	if err := expect(dec, '{'); err != nil {
		return file, err
	}
	fields := map[string]string{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return file, err
		}
		name, _ := key.(string)
		switch name {
		case "path", "content", "content_base64", "mode":
		default:
			return file, fmt.Errorf("unknown field %q", name)
		}
		if _, again := fields[name]; again {
			return file, fmt.Errorf("%q is there twice", name)
		}
		value, err := dec.Token()
		if err != nil {
			return file, err
		}
		text, ok := value.(string)
		if !ok {
			return file, fmt.Errorf("%q is not a string", name)
		}
		fields[name] = text
	}
	if err := expect(dec, '}'); err != nil {
		return file, err
	}
	return fileOf(fields)
}

// fileOf is what the fields of an object say.
func fileOf(fields map[string]string) (file gitagency.File, err error) {
	name, named := fields["path"]
	content, plain := fields["content"]
	encoded, coded := fields["content_base64"]
	mode, hasMode := fields["mode"]
	if !named {
		return file, errors.New(`has no "path"`)
	}
	file.Path, file.Content = name, []byte(content)
	switch {
	case plain && coded:
		err = errors.New(`"content" and "content_base64" exclude each other`)
	case !plain && !coded:
		err = errors.New(`has neither "content" nor "content_base64"`)
	case coded:
		if file.Content, err = base64.StdEncoding.Strict().DecodeString(encoded); err != nil {
			err = fmt.Errorf(`"content_base64": %w`, err)
		}
	}
	if err == nil && hasMode {
		file.Mode, err = parseMode(mode)
	}
	if err != nil {
		return file, fmt.Errorf("%q: %w", name, err)
	}
	return file, nil
}

func parseMode(s string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) < 3 || len(s) > 4 || mode == 0 || mode > 0o777 {
		return 0, fmt.Errorf(`"mode" %q: want permissions such as "0644" or "0755", up to "0777"`, s)
	}
	return fs.FileMode(mode), nil
}

// loneSurrogate finds an escape that stands for half a character, which decoding would silently replace.
func loneSurrogate(text []byte) int {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // whatever is escaped is no backslash that escapes
		switch unit := escapedUnit(text, i); {
		case unit >= 0xd800 && unit < 0xdc00:
			next := escapedUnit(text, i+6)
			if i+5 >= len(text) || text[i+5] != '\\' || next < 0xdc00 || next > 0xdfff {
				return i - 1
			}
			i += 10
		case unit >= 0xdc00 && unit < 0xe000:
			return i - 1
		}
	}
	return -1
}

// escapedUnit is the number behind the u at a place in the text; -1 when there is none.
func escapedUnit(text []byte, at int) int64 {
	if at+5 > len(text) || text[at] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(text[at+1:at+5]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}
