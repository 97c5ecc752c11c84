package object

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestTextThatIsNotUTF8IsRecodedAsGitDoesIt(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	head := l.Git("rev-parse", "HEAD")
	for _, tt := range []struct{ name, declared, text, want string }{
		{"nothing declared", "", "Zoë", "Zoë"},
		{"UTF-8 by another name", "utf8", "Zoë", "Zoë"},
		{"Latin-1", "ISO-8859-1", "na\xefve", "naïve"},
		{"Latin-1 by another name", "latin1", "na\xefve", "naïve"},
		{"Latin-1 by a name that is not in the standard", "ISO8859-1", "na\xefve", "naïve"},
		{"with the euro", "ISO-8859-15", "5 \xa4", "5 €"},
		{"Windows", "CP1252", "\x80 5", "€ 5"},
		{"Russian", "KOI8-R", "\xd0\xd2\xc9\xd7\xc5\xd4", "привет"},
		{"Japanese", "EUC-JP", "\xa4\xa2", "あ"},
		{"Japanese in seven bits", "ISO-2022-JP", "\x1b$B$\"\x1b(B", "あ"},
		{"Japanese of Windows", "Shift_JIS", "\x82\xa0", "あ"},
		{"Chinese", "GBK", "\xc4\xe3", "你"},
		{"a slash that is none", "Shift_JIS", "\x83\x5c", "ソ"},
		{"nobody knows that one", "x-nobody", "na\xefve", "naïve"},
		{"not what it is declared to be", "EUC-JP", "na\xefve", "naïve"},
		{"not declared", "", "na\xefve Zoë", "naïve Zoë"},
		{"a mark that was there", "", "\xef\xbf\xbd \xff", "\uFFFD ÿ"},
		{"ASCII that is none", "US-ASCII", "na\xefve", "naïve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ToUTF8(tt.text, tt.declared); got != tt.want {
				t.Errorf("%q", got)
			}
			header := ""
			if tt.declared != "" {
				header = "encoding " + tt.declared + "\n"
			}
			by := "A <a@example.com> 1600000000 +0000\n"
			commit := l.RawCommit("tree " + l.Git("rev-parse", head+"^{tree}") + "\nparent " + head + "\nauthor " + by + "committer " + by + header + "\n" + tt.text + "\n")
			// What git would make of it in a commit of its own.
			made := l.Git("commit-tree", "-p", head, "-m", l.Git("log", "-1", "--encoding=UTF-8", "--format=%B", commit), head+"^{tree}")
			if git := l.Git("log", "-1", "--format=%B", made); strings.TrimSpace(git) != tt.want {
				t.Errorf("git says %q", git)
			}
		})
	}
}

// Whoever makes a commit in a sandbox can declare anything.
func FuzzACommitInUTF8IsStillOne(f *testing.F) {
	for _, declared := range []string{"", "UTF-16", "UTF-16LE", "ISO-2022-JP", "latin1", "HZ-GB-2312", "x"} {
		f.Add(declared, "J\xf6rg \n\x0a\x3c", "na\xefve\x0a\x0a\x3e")
	}
	f.Fuzz(func(t *testing.T, declared, name, message string) {
		author := name + " <a@example.com> 1600000000 +0000"
		c := Commit{Author: author, Encoding: declared, Message: message}.ToUTF8()
		if c.Author != author && (!isSignature(c.Author) || strings.Contains(c.Author, "\n")) {
			t.Errorf("%q became %q", author, c.Author)
		}
		if !utf8.ValidString(c.Message) || c.Encoding != "" {
			t.Errorf("%q in %q", c.Message, c.Encoding)
		}
	})
}
