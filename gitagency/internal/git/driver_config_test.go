package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// collide makes two commits that changed the same line of a file with attributes; those are on both sides already.
func (l *lab) collide(attributes string) (ours, theirs string) {
	l.t.Helper()
	if attributes != "" {
		l.write(".gitattributes", attributes)
	}
	l.write("sub/f", "f\n")
	base := l.commit("attributes")
	return l.side(base, map[string]string{"sub/f": "ours\n"}), l.side(base, map[string]string{"sub/f": "theirs\n"})
}

// merged is what became of that file.
func (l *lab) merged(m *Merger, what Request) string {
	l.t.Helper()
	merged := l.merge(m, what)
	l.must(m.Persist(l.t.Context()))
	text := l.git("cat-file", "blob", merged.Tree+":sub/f")
	for _, c := range merged.Conflicts {
		text += " " + c.Path + " " + strings.Join(c.Kinds, "+")
	}
	return text
}

// Promise: files are merged as the attributes of our side say, or of the one that is named; never by those that theirs
// brings, nor by any that lie around where git stands.
func TestAttributesAreOurs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ours, theirs := l.collide("sub/f merge=union\n")
	if got := l.merged(l.merger(), Request{Ours: ours, Theirs: theirs}); got != "ours\ntheirs" {
		t.Errorf("union: %q", got)
	}
	plain := l.side(theirs, map[string]string{".gitattributes": ""})
	if got := l.merged(l.merger(), Request{Ours: plain, Theirs: ours}); !strings.HasSuffix(got, " sub/f contents") {
		t.Errorf("theirs brings them: %q", got)
	}
	if got := l.merged(l.merger(), Request{Ours: plain, Theirs: ours, Attributes: ours}); got != "theirs\nours" {
		t.Errorf("those that were named: %q", got)
	}
	below := l.side(plain, map[string]string{"sub/.gitattributes": "f -merge\n"})
	if got := l.merged(l.merger(), Request{Ours: below, Theirs: ours}); !strings.HasPrefix(got, "theirs sub/f binary") {
		t.Errorf("in a directory: %q", got)
	}
	for _, dir := range []string{l.dir, filepath.Join(l.dir, ".git")} {
		l.put(dir, ".gitattributes", "* merge=union\n")
		l.put(dir, "attributes", "* merge=union\n")
	}
	if got := l.merged(l.merger(), Request{Ours: plain, Theirs: ours}); !strings.HasSuffix(got, " sub/f contents") {
		t.Errorf("around: %q", got)
	}
	l.configure("core.attributesFile", filepath.Join(l.dir, "attributes"))
	if got := l.merged(l.merger(), Request{Ours: plain, Theirs: ours}); got != "theirs\nours" {
		t.Errorf("the user's: %q", got)
	}
}

// Promise: what the repository's own file of attributes says holds when it is trusted; else what it speaks of is in
// conflict, so that neither what should have merged it is passed over, nor anything merged that should not be.
func TestAttributesBesideTheTreeCountWhenTheyAreTrusted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.side("HEAD", map[string]string{"sub/f": lines})
	ours, theirs := l.side(base, map[string]string{"sub/f": "0\n" + lines}), l.side(base, map[string]string{"sub/f": lines + "10\n"})
	ran := filepath.Join(tempDir(t), "ran")
	l.configure("merge.users.driver", "echo >"+ran+"; echo by it >%A")
	for _, c := range []struct{ attributes, trusted, not string }{
		{"", "0\n" + lines + "10", "0\n" + lines + "10"},
		{"other merge=users", "0\n" + lines + "10", "0\n" + lines + "10"},
		{"  \"sub/\\146\" merge=users\n# x\nx", "by it", "0\n" + lines[:len(lines)-1] + " sub/f contents"},
		{"[attr]mine merge=users\n* mine", "by it", "0\n" + lines[:len(lines)-1] + " sub/f contents"},
		{"* binary", "0\n" + lines[:len(lines)-1] + " sub/f binary+contents", "0\n" + lines[:len(lines)-1] + " sub/f binary+contents"},
	} {
		l.put(filepath.Join(l.dir, ".git"), "info/attributes", c.attributes)
		for _, trusted := range []bool{true, false} {
			m, want := l.merger(), c.not
			if m.Trusted = trusted; trusted {
				want = c.trusted
			}
			_ = os.Remove(ran)
			if got := l.merged(m, Request{Ours: ours, Theirs: theirs}); got != want || exists(ran) != (want == "by it") {
				t.Errorf("%q, trusted %v: %q, ran %v", c.attributes, trusted, got, exists(ran))
			}
		}
	}
}

// Promise: a merge driver of the user's runs. One that only the repository names runs when the repository is trusted;
// else it does not, and what it would have merged is in conflict.
func TestMergeDriversOfTheRepositoryRunOnlyWhenItIsTrusted(t *testing.T) {
	t.Parallel()
	driver := "printf 'by the driver\\n' >%A; echo ran >>"
	for _, c := range []struct {
		name         string
		local, users bool
		trusted, ran bool
		conflict     bool
	}{
		{name: "users", users: true, ran: true},
		{name: "own", local: true, conflict: true},
		{name: "own.of = \"one\" who is trusted", local: true, trusted: true, ran: true},
		{name: "both", local: true, users: true, ran: true},
		{name: "nobodys"}, // as in git
	} {
		l := newLab(t)
		name := strings.NewReplacer(" ", "", `"`, "", "=", "").Replace(c.name)
		l.write(".gitattributes", "f merge="+name+"\n")
		base := l.side("HEAD", map[string]string{"sub/f": lines}) // which anybody could merge
		ours, theirs := l.side(base, map[string]string{"sub/f": "0\n" + lines}), l.side(base, map[string]string{"sub/f": lines + "10\n"})
		ran, never := filepath.Join(tempDir(t), "ran"), filepath.Join(tempDir(t), "never")
		if c.users {
			l.configure("merge."+name+".driver", driver+ran)
		}
		if c.local {
			target := ran
			if c.users || !c.trusted {
				target = never
			}
			l.git("config", "merge."+name+".driver", driver+target)
			l.git("config", "merge."+name+".name", "a driver")
		}
		m := l.merger()
		m.Trusted = c.trusted
		got := l.merged(m, Request{Ours: ours, Theirs: theirs})
		if exists(ran) != c.ran || exists(never) || strings.HasSuffix(got, " sub/f contents") != c.conflict || (got == "by the driver") != c.ran {
			t.Errorf("%s: ran %v, %q", c.name, exists(ran), got)
		}
	}
}

// Promise: whatever the user has set for merges, they come out and can be read; what changes files by design does.
func TestSettingsOfTheUserDoNotBreakMerges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("long", lines)
	ours, theirs := l.collide("")
	ours = l.side(ours, map[string]string{"long": "", "moved": lines})
	theirs = l.side(theirs, map[string]string{"long": lines + "10\n", "crlf": "1\r\n2\r\n"})
	want := l.merge(l.merger(), Request{Ours: ours, Theirs: theirs})
	if len(want.Conflicts) != 1 {
		t.Fatalf("%v", want)
	}
	for key, value := range map[string]string{
		"merge.ff": "only", "merge.autoStash": "true", "pull.rebase": "true", "commit.gpgSign": "true", "gpg.program": "false", "rerere.enabled": "true",
		"rerere.autoUpdate": "true", "core.autocrlf": "true", "core.eol": "crlf", "merge.verbosity": "5", "merge.stat": "true", "merge.log": "true",
		"core.quotePath": "false", "core.abbrev": "4", "color.ui": "always", "merge.tool": "x", "core.hooksPath": "/nonexistent", "advice.mergeConflict": "true",
	} {
		l.configure(key, value)
	}
	if got := l.merge(l.merger(), Request{Ours: ours, Theirs: theirs}); got.Tree != want.Tree || len(got.Conflicts) != 1 || got.Conflicts[0].Path != "sub/f" {
		t.Errorf("got %v, want %v", got, want)
	}
	l.configure("merge.renormalize", "true")
	if got := l.merge(l.merger(), Request{Ours: ours, Theirs: theirs}); len(got.Conflicts) != 1 {
		t.Errorf("normalized: %v", got)
	}
	l.configure("merge.renames", "false")
	// Which git heeds in some versions, and not in others.
	got := l.merge(l.merger(), Request{Ours: ours, Theirs: theirs})
	if last := len(got.Conflicts) - 1; last != 0 && (last != 1 || got.Conflicts[0].Kinds[0] != "modify/delete") || got.Conflicts[last].Path != "sub/f" {
		t.Errorf("without renames: %v", got)
	}
}

// Promise: a commit is signed by the program that the user names, and never by one that the repository names.
func TestCommitsAreSignedByTheUsersProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := tempDir(t)
	program := func(name string) string {
		path := filepath.Join(dir, name)
		l.must(os.WriteFile(path, []byte("#!/bin/sh\necho ran >"+path+".ran\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\nprintf -- '-----BEGIN PGP SIGNATURE-----\\n"+name+"\\n-----END PGP SIGNATURE-----\\n'\n"), 0o755))
		return path
	}
	l.configure("gpg.program", program("mine"))
	l.git("config", "gpg.program", program("agents"))
	l.git("config", "gpg.format", "ssh")
	l.git("config", "gpg.ssh.program", program("agents"))
	l.git("config", "user.signingKey", "agents")
	m := l.merger()
	who := Signature{Identity{"Ä <nn>", "a@example.com"}, "1700000000 +0100"}
	head := l.git("rev-parse", "HEAD")
	c := CommitRequest{Tree: l.git("rev-parse", "HEAD^{tree}"), Parents: []string{head}, Author: who, Committer: who, Message: "signed\n\n# and more"}
	unsigned, err := m.CreateCommit(t.Context(), c)
	l.must(err)
	c.Sign = true
	signed, err := m.CreateCommit(t.Context(), c)
	l.must(err)
	l.must(m.Persist(t.Context()))
	text, plain := l.git("cat-file", "-p", signed), l.git("cat-file", "-p", unsigned)
	header, message, _ := strings.Cut(text, "\ngpgsig ")
	if !strings.Contains(message, "\n mine\n") || exists(filepath.Join(dir, "agents.ran")) {
		t.Errorf("%s", text)
	}
	_, message, _ = strings.Cut(message, "\n\n")
	if header+"\n\n"+message != plain {
		t.Errorf("signed:\n%s\nunsigned:\n%s", text, plain)
	}
	l.git("fsck", "--strict", signed, unsigned)
}
