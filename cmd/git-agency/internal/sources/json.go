package sources

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

	"github.com/git-agency/git-agency/gitagency"
)

// maxJSON bounds the size of the JSON, all of which is held in memory. More data can be uploaded as files.
const maxJSON = 256 << 20

// ReadJSON reads and parses the file with this name, or stdin for "-". It returns an *Error if the file cannot be read, a
// *gitagency.ConfinementError for an invalid path, and any other error for invalid JSON.
func ReadJSON(ctx context.Context, name string, stdin io.Reader) ([]gitagency.File, error) {
	text, err := readInterruptibly(ctx, func() ([]byte, error) {
		if name == "-" {
			return io.ReadAll(io.LimitReader(stdin, maxJSON+1))
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
		return text, errors.Join(err, f.Close())
	})
	if err != nil {
		return nil, &Error{err}
	}
	if len(text) > maxJSON {
		return nil, fmt.Errorf("more than %d MiB; put files by name instead", maxJSON>>20)
	}
	return ParseJSON(text)
}

// readInterruptibly calls read but returns when ctx ends, since a user who is unexpectedly prompted for input may
// interrupt.
func readInterruptibly(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
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

// ParseJSON parses an array of objects. It is strict, because a misspelt field would otherwise become a file with
// the wrong content.
func ParseJSON(text []byte) ([]gitagency.File, error) {
	if !utf8.Valid(text) {
		return nil, cmp.Or(invalidPathError(text), errors.New("the text is not valid UTF-8; other bytes go into content_base64"))
	}
	if at := findLoneSurrogate(text); at >= 0 {
		return nil, cmp.Or(invalidPathError(text), fmt.Errorf("unpaired surrogate at byte %d; other bytes go into content_base64", at))
	}
	return decodeFileArray(text)
}

// invalidByteBase is the first of 256 private-use code points that stand for invalid bytes while invalidPathError
// parses the text.
const invalidByteBase = 0x10ff00

// invalidPathError returns the error about the first path that is not valid UTF-8, which is refused as other invalid
// paths are. It returns nil if the invalid bytes are elsewhere.
func invalidPathError(text []byte) error {
	var whole []byte
	for len(text) > 0 {
		if findLoneSurrogate(text[:min(len(text), 12)]) == 0 {
			for _, b := range encodeSurrogate(rune(escapedCodeUnit(text, 1))) {
				whole = utf8.AppendRune(whole, invalidByteBase+rune(b))
			}
			text = text[6:]
			continue
		}
		n := unitLength(text)
		if n == 0 {
			whole = utf8.AppendRune(whole, invalidByteBase+rune(text[0]))
			n = 1
		} else {
			whole = append(whole, text[:n]...)
		}
		text = text[n:]
	}
	files, err := decodeFileArray(whole)
	if err != nil {
		return nil
	}
	for i, f := range files {
		var name []byte
		for _, r := range f.Path {
			if r >= invalidByteBase && r <= invalidByteBase+0xff {
				name = append(name, byte(r-invalidByteBase))
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

// unitLength returns the length of the character or escape sequence at the start of text, or 0 for a byte that is not
// valid UTF-8.
func unitLength(text []byte) int {
	r, n := utf8.DecodeRune(text)
	switch unit := escapedCodeUnit(text, 1); {
	case r == utf8.RuneError && n == 1:
		return 0
	case r != '\\' || len(text) == 1 || text[1] >= utf8.RuneSelf:
		return n
	case unit < 0:
		return 2
	case unit >= 0xd800 && unit < 0xdc00:
		return 12 // a surrogate pair
	}
	return 6
}

// encodeSurrogate returns the three bytes that UTF-8 would use for a surrogate, were it allowed.
func encodeSurrogate(r rune) []byte {
	return []byte{0xe0 | byte(r>>12), 0x80 | byte(r>>6)&0x3f, 0x80 | byte(r)&0x3f}
}

// itemError adds the number of an item to an error about it.
func itemError(i int, err error) error { return fmt.Errorf("item %d: %w", i+1, err) }

// WithItemNumber adds to an error about a path the number of the item with that path.
func WithItemNumber(err error, files []gitagency.File) error {
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
	for i, f := range slices.Backward(files) { // of two items with the same path, the second one is at fault
		if f.Path == about {
			return itemError(i, err)
		}
	}
	return err
}

// decodeFileArray decodes an array of objects and nothing else.
func decodeFileArray(text []byte) ([]gitagency.File, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := expectDelim(dec, '['); err != nil {
		if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
			err = errors.New("wrap the object in [ ]")
		}
		return nil, fmt.Errorf("want an array of objects: %w", err)
	}
	files := []gitagency.File{}
	for dec.More() {
		f, err := decodeFile(dec)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", len(files)+1, err)
		}
		files = append(files, f)
	}
	if err := expectDelim(dec, ']'); err != nil {
		return nil, fmt.Errorf("after item %d: %w", len(files), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("unexpected data after the array")
	}
	return files, nil
}

func expectDelim(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("unexpected end of the JSON")
	case err != nil:
		return err
	case token != want:
		return fmt.Errorf("%v is not %q", token, want.String())
	}
	return nil
}

// decodeFile decodes one object.
func decodeFile(dec *json.Decoder) (gitagency.File, error) {
	var file gitagency.File
	if err := expectDelim(dec, '{'); err != nil {
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
			return file, fmt.Errorf("%q is given twice", name)
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
	if err := expectDelim(dec, '}'); err != nil {
		return file, err
	}
	return fileFromFields(fields)
}

// fileFromFields returns the file that the fields of an object describe.
func fileFromFields(fields map[string]string) (file gitagency.File, err error) {
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

// findLoneSurrogate returns the offset of the first \u escape that is half of a surrogate pair, or -1. encoding/json
// would silently replace it.
func findLoneSurrogate(text []byte) int {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // skip the escaped character, which may be a backslash
		switch unit := escapedCodeUnit(text, i); {
		case unit >= 0xd800 && unit < 0xdc00:
			next := escapedCodeUnit(text, i+6)
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

// escapedCodeUnit returns the number of a \u escape whose u is at offset at, or -1 if there is none.
func escapedCodeUnit(text []byte, at int) int64 {
	if at+5 > len(text) || text[at] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(text[at+1:at+5]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}
