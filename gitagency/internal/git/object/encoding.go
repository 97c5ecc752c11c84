package object

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
)

// Git takes the text of a commit for UTF-8 unless the commit declares another encoding, and recodes it whenever it
// shows or copies it. We do the same where text of one commit is copied into another. Git is not used for it: it
// would pass bytes that an agent wrote to iconv of the C library, and can only recode commits.

// ToUTF8 recodes text as git would when it copies it into a commit: from the declared encoding to UTF-8. Text that
// cannot be recoded, because the encoding is unknown or the text is invalid in it, is taken as it is; bytes that are
// no valid UTF-8 then count as Latin-1.
func ToUTF8(text, declared string) string {
	if known, ok := decodeText(text, declared); ok {
		text = known
	}
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			r = rune(text[i])
		}
		b.WriteRune(r)
	}
	return b.String()
}

// decodeText recodes text from the declared encoding to UTF-8; ok is false where that is impossible or not needed.
func decodeText(text, declared string) (string, bool) {
	from := findEncoding(declared)
	if from == nil {
		return "", false
	}
	known, err := from.NewDecoder().String(text)
	return known, err == nil && !strings.ContainsRune(known, utf8.RuneError)
}

// findEncoding returns the encoding of this name; nil for UTF-8 and for unknown names.
func findEncoding(name string) encoding.Encoding {
	if name == "" || strings.EqualFold(name, "UTF-8") || strings.EqualFold(name, "UTF8") {
		return nil
	}
	for _, find := range []func(string) (encoding.Encoding, error){
		ianaindex.MIME.Encoding, ianaindex.IANA.Encoding,
		htmlindex.Get, // the web knows more names than the standard, such as ISO8859-1
	} {
		if e, err := find(name); err == nil && e != nil && e != encoding.Replacement {
			return e
		}
	}
	return nil
}

// ToUTF8 returns the commit with its text in UTF-8. The author line is left unchanged if recoding would make it
// invalid.
func (c Commit) ToUTF8() Commit {
	if author := ToUTF8(c.Author, c.Encoding); isSignature(author) && !strings.ContainsAny(author, "\n\x00") {
		c.Author = author
	}
	c.Message, c.Encoding = ToUTF8(c.Message, c.Encoding), ""
	return c
}

// IsASCII reports whether text has the same bytes in every encoding that a commit may declare.
func IsASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
