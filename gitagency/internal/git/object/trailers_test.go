package object

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: git interpret-trailers reads our trailers from every message that we write, and trailers with our keys that the
// message had before are removed.
func TestWithTrailersAgreesWithInterpretTrailers(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ours := [][2]string{{"Agency-Invocation", "1"}, {"Agency-Base", "2"}}
	const ourLines = "Agency-Invocation: 1\nAgency-Base: 2"
	for message, want := range map[string]string{
		"subject":                                                      ourLines,
		"subject\n\nbody: of one word":                                 "body: of one word\n" + ourLines,
		"subject\n\nbody\n\nnot: a\nlist":                              ourLines,
		"subject\n\nSigned-off-by: A <a@b>\n":                          "Signed-off-by: A <a@b>\n" + ourLines,
		"subject\n\nAgency-Base: 3\nSigned-off-by: A <a@b>":            "Signed-off-by: A <a@b>\n" + ourLines,
		"subject\n\nagency-invocation: x\n\n\n":                        ourLines,
		"subject\n\nbody\n\nX: y\n folded":                             ourLines,
		"Agency-Invocation: 3":                                         ourLines,
		"s\xfcbject\n\nb\xf6dy\n\nSigned-off-by: \xc4 <a@b>\n\x00\n\n": "Signed-off-by: \xc4 <a@b>\n" + ourLines,
	} {
		full := WithTrailers(message, ours)
		l.Write("message", full+"\n")
		if got := l.Git("interpret-trailers", "--parse", "message"); got != want {
			t.Errorf("%q became %q, where git reads %q, want %q", message, full, got, want)
		}
		l.Write("message", WithTrailers(full, [][2]string{{"Agency-Invocation", ""}, {"Agency-Base", "2"}})+"\n")
		if got := l.Git("interpret-trailers", "--parse", "message"); got != strings.Replace(want, "Agency-Invocation: 1\n", "", 1) {
			t.Errorf("%q without one trailer: git reads %q", message, got)
		}
		if got := WithTrailers(full, [][2]string{{"Agency-Invocation", ""}, {"Agency-Base", ""}}); strings.Contains(got, "Agency-Base: 2") || strings.HasSuffix(got, "\n") {
			t.Errorf("%q without trailers is %q", message, got)
		}
		if subject, _, _ := strings.Cut(message, "\n"); !strings.HasPrefix(full, subject+"\n\n") {
			t.Errorf("%q became %q", message, full)
		}
	}
}
