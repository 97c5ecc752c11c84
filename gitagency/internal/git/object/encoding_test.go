package object

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestToUTF8RecodesAsGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	head := l.Git("rev-parse", "HEAD")
	for _, tt := range []struct{ name, declared, text, want string }{
		{"nothing declared", "", "Zoë", "Zoë"},
		{"UTF-8 by another name", "utf8", "Zoë", "Zoë"},
		{"Latin-1", "ISO-8859-1", "na\xefve", "naïve"},
		{"Latin-1 by another name", "latin1", "na\xefve", "naïve"},
		{"Latin-1 by a nonstandard name", "ISO8859-1", "na\xefve", "naïve"},
		{"Latin-9", "ISO-8859-15", "5 \xa4", "5 €"},
		{"Windows-1252", "CP1252", "\x80 5", "€ 5"},
		{"KOI8-R", "KOI8-R", "\xd0\xd2\xc9\xd7\xc5\xd4", "привет"},
		{"EUC-JP", "EUC-JP", "\xa4\xa2", "あ"},
		{"ISO-2022-JP", "ISO-2022-JP", "\x1b$B$\"\x1b(B", "あ"},
		{"Shift_JIS", "Shift_JIS", "\x82\xa0", "あ"},
		{"GBK", "GBK", "\xc4\xe3", "你"},
		{"a backslash byte inside a Shift_JIS character", "Shift_JIS", "\x83\x5c", "ソ"},
		{"unknown encoding", "x-nobody", "na\xefve", "naïve"},
		{"invalid in the declared encoding", "EUC-JP", "na\xefve", "naïve"},
		{"nothing declared, mixed Latin-1 and UTF-8", "", "na\xefve Zoë", "naïve Zoë"},
		{"a replacement character in the text", "", "\xef\xbf\xbd \xff", "\uFFFD ÿ"},
		{"Latin-1 declared as ASCII", "US-ASCII", "na\xefve", "naïve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ToUTF8(tt.text, tt.declared); got != tt.want {
				t.Errorf("got %q", got)
			}
			header := ""
			if tt.declared != "" {
				header = "encoding " + tt.declared + "\n"
			}
			by := "A <a@example.com> 1600000000 +0000\n"
			commit := l.RawCommit("tree " + l.Git("rev-parse", head+"^{tree}") + "\nparent " + head + "\nauthor " + by + "committer " + by + header + "\n" + tt.text + "\n")
			// The same text after git has recoded it for a commit of its own.
			made := l.Git("commit-tree", "-p", head, "-m", l.Git("log", "-1", "--encoding=UTF-8", "--format=%B", commit), head+"^{tree}")
			if git := l.Git("log", "-1", "--format=%B", made); strings.TrimSpace(git) != tt.want {
				t.Errorf("git has %q", git)
			}
		})
	}
}

// FuzzCommitToUTF8 checks that a commit stays well-formed when it is recoded to UTF-8: a sandbox can write a commit with
// any declared encoding.
func FuzzCommitToUTF8(f *testing.F) {
	for _, declared := range []string{"", "UTF-16", "UTF-16LE", "ISO-2022-JP", "latin1", "HZ-GB-2312", "x"} {
		f.Add(declared, "J\xf6rg \n\x0a\x3c", "na\xefve\x0a\x0a\x3e")
	}
	f.Fuzz(func(t *testing.T, declared, name, message string) {
		author := name + " <a@example.com> 1600000000 +0000"
		c := Commit{Author: author, Encoding: declared, Message: message}.ToUTF8()
		if c.Author != author && (!isSignature(c.Author) || strings.Contains(c.Author, "\n")) {
			t.Errorf("author %q became %q", author, c.Author)
		}
		if !utf8.ValidString(c.Message) || c.Encoding != "" {
			t.Errorf("message is %q, encoding %q", c.Message, c.Encoding)
		}
	})
}
