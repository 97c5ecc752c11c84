package git

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
)

// Git takes text for UTF-8 unless a commit declares something else, and recodes it whenever it shows or copies it. So
// do we where words of one commit get into another. No git is asked for it: it would hand bytes that an agent wrote to
// the C library, and can only recode what is in a commit.

// inUTF8 is text as git would put it into a commit of its own: recoded from what it was declared to be in. What
// cannot be recoded, because nobody knows that encoding or it is not in it, is taken as it is, and what is no UTF-8
// then for Latin-1, byte by byte.
func inUTF8(text, declared string) string {
	if known, ok := recoded(text, declared); ok {
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

// recoded is text in UTF-8 that is in another encoding.
func recoded(text, declared string) (string, bool) {
	from := encodingCalled(declared)
	if from == nil {
		return "", false
	}
	known, err := from.NewDecoder().String(text)
	return known, err == nil && !strings.ContainsRune(known, utf8.RuneError)
}

// encodingCalled is what a name stands for; nil for UTF-8, and where nobody knows.
func encodingCalled(name string) encoding.Encoding {
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

// inUTF8 is a commit that says the same in UTF-8. Its author stays as it is where it would be nobody then.
func (c written) inUTF8() written {
	if author := inUTF8(c.author, c.encoding); isSignature(author) && !strings.ContainsAny(author, "\n\x00") {
		c.author = author
	}
	c.message, c.encoding = inUTF8(c.message, c.encoding), ""
	return c
}

// fits reports whether text says the same in whatever a commit may declare.
func fits(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
