package merge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// makeConflictingCommits makes two commits that change the same line of sub/f; both have the attributes of their parent.
func makeConflictingCommits(l *gittest.Fixture, attributes string) (ours, theirs string) {
	l.T.Helper()
	if attributes != "" {
		l.Write(".gitattributes", attributes)
	}
	l.Write("sub/f", "f\n")
	base := l.Commit("attributes")
	return l.CommitDetached(base, map[string]string{"sub/f": "ours\n"}), l.CommitDetached(base, map[string]string{"sub/f": "theirs\n"})
}

// mergedFileText merges and returns the content of sub/f, followed by the conflicts.
func mergedFileText(l *gittest.Fixture, m *Merger, what Request) string {
	l.T.Helper()
	merged := mergeCommits(l, m, what)
	l.Must(m.Persist(l.T.Context()))
	text := l.Git("cat-file", "blob", merged.Tree+":sub/f")
	for _, c := range merged.Conflicts {
		text += " " + c.Path + " " + strings.Join(c.Kinds, "+")
	}
	return text
}

// Promise: a merge uses the attributes of Request.Ours or Request.Attributes; never those of Theirs, nor files in git's
// current directory.
func TestMergeUsesAttributesOfOurs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ours, theirs := makeConflictingCommits(l, "sub/f merge=union\n")
	if got := mergedFileText(l, openMerger(l), Request{Ours: ours, Theirs: theirs}); got != "ours\ntheirs" {
		t.Errorf("union: %q", got)
	}
	plain := l.CommitDetached(theirs, map[string]string{".gitattributes": ""})
	if got := mergedFileText(l, openMerger(l), Request{Ours: plain, Theirs: ours}); !strings.HasSuffix(got, " sub/f contents") {
		t.Errorf("attributes of theirs: %q", got)
	}
	if got := mergedFileText(l, openMerger(l), Request{Ours: plain, Theirs: ours, Attributes: ours}); got != "theirs\nours" {
		t.Errorf("attributes of Request.Attributes: %q", got)
	}
	below := l.CommitDetached(plain, map[string]string{"sub/.gitattributes": "f -merge\n"})
	if got := mergedFileText(l, openMerger(l), Request{Ours: below, Theirs: ours}); !strings.HasPrefix(got, "theirs sub/f binary") {
		t.Errorf("attributes in a directory: %q", got)
	}
	for _, dir := range []string{l.Root, filepath.Join(l.Root, ".git")} {
		l.WriteIn(dir, ".gitattributes", "* merge=union\n")
		l.WriteIn(dir, "attributes", "* merge=union\n")
	}
	if got := mergedFileText(l, openMerger(l), Request{Ours: plain, Theirs: ours}); !strings.HasSuffix(got, " sub/f contents") {
		t.Errorf("attributes in the current directory: %q", got)
	}
	l.ConfigureGlobal("core.attributesFile", filepath.Join(l.Root, "attributes"))
	if got := mergedFileText(l, openMerger(l), Request{Ours: plain, Theirs: ours}); got != "theirs\nours" {
		t.Errorf("attributes of the user: %q", got)
	}
}

// Promise: a merge uses .git/info/attributes if the repository is trusted. If not, files with merge attributes in it
// become conflicts, so that their driver is neither run nor replaced by git's own merge.
func TestMergeUsesInfoAttributesOnlyIfTrusted(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.CommitDetached("HEAD", map[string]string{"sub/f": nineLines})
	ours, theirs := l.CommitDetached(base, map[string]string{"sub/f": "0\n" + nineLines}), l.CommitDetached(base, map[string]string{"sub/f": nineLines + "10\n"})
	ran := filepath.Join(gittest.TempDir(t), "ran")
	l.ConfigureGlobal("merge.users.driver", "echo >"+ran+"; echo by it >%A")
	for _, c := range []struct{ attributes, trusted, untrusted string }{
		{"", "0\n" + nineLines + "10", "0\n" + nineLines + "10"},
		{"other merge=users", "0\n" + nineLines + "10", "0\n" + nineLines + "10"},
		{"  \"sub/\\146\" merge=users\n# x\nx", "by it", "0\n" + nineLines[:len(nineLines)-1] + " sub/f contents"},
		{"[attr]mine merge=users\n* mine", "by it", "0\n" + nineLines[:len(nineLines)-1] + " sub/f contents"},
		{"* binary", "0\n" + nineLines[:len(nineLines)-1] + " sub/f binary+contents", "0\n" + nineLines[:len(nineLines)-1] + " sub/f binary+contents"},
	} {
		l.WriteIn(filepath.Join(l.Root, ".git"), "info/attributes", c.attributes)
		for _, trusted := range []bool{true, false} {
			m, want := openMerger(l), c.untrusted
			if m.Trusted = trusted; trusted {
				want = c.trusted
			}
			_ = os.Remove(ran)
			if got := mergedFileText(l, m, Request{Ours: ours, Theirs: theirs}); got != want || gittest.Exists(ran) != (want == "by it") {
				t.Errorf("%q, trusted %v: got %q, driver ran %v", c.attributes, trusted, got, gittest.Exists(ran))
			}
		}
	}
}

// Promise: a merge driver of the user's config runs. A driver of the repository's config runs if the repository is
// trusted; if not, the files it would merge become conflicts.
func TestMergeRunsRepositoryDriversOnlyIfTrusted(t *testing.T) {
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
		{name: "trusted.with = \"odd\" name", local: true, trusted: true, ran: true},
		{name: "both", local: true, users: true, ran: true},
		{name: "undefined"}, // git merges such files itself
	} {
		l := gittest.New(t)
		name := strings.NewReplacer(" ", "", `"`, "", "=", "").Replace(c.name)
		l.Write(".gitattributes", "f merge="+name+"\n")
		base := l.CommitDetached("HEAD", map[string]string{"sub/f": nineLines}) // the two changes do not conflict
		ours, theirs := l.CommitDetached(base, map[string]string{"sub/f": "0\n" + nineLines}), l.CommitDetached(base, map[string]string{"sub/f": nineLines + "10\n"})
		ran, never := filepath.Join(gittest.TempDir(t), "ran"), filepath.Join(gittest.TempDir(t), "never")
		if c.users {
			l.ConfigureGlobal("merge."+name+".driver", driver+ran)
		}
		if c.local {
			target := ran
			if c.users || !c.trusted {
				target = never
			}
			l.Git("config", "merge."+name+".driver", driver+target)
			l.Git("config", "merge."+name+".name", "a driver")
		}
		m := openMerger(l)
		m.Trusted = c.trusted
		got := mergedFileText(l, m, Request{Ours: ours, Theirs: theirs})
		if gittest.Exists(ran) != c.ran || gittest.Exists(never) || strings.HasSuffix(got, " sub/f contents") != c.conflict || (got == "by the driver") != c.ran {
			t.Errorf("%s: driver ran %v, got %q", c.name, gittest.Exists(ran), got)
		}
	}
}

// Promise: no setting in the user's config makes a merge fail or its output unreadable. Settings that are meant to change
// the result, such as merge.renormalize, do so.
func TestMergeToleratesUserConfig(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("long", nineLines)
	ours, theirs := makeConflictingCommits(l, "")
	ours = l.CommitDetached(ours, map[string]string{"long": "", "moved": nineLines})
	theirs = l.CommitDetached(theirs, map[string]string{"long": nineLines + "10\n", "crlf": "1\r\n2\r\n"})
	want := mergeCommits(l, openMerger(l), Request{Ours: ours, Theirs: theirs})
	if len(want.Conflicts) != 1 {
		t.Fatalf("%v", want)
	}
	for key, value := range map[string]string{
		"merge.ff": "only", "merge.autoStash": "true", "pull.rebase": "true", "commit.gpgSign": "true", "gpg.program": "false", "rerere.enabled": "true",
		"rerere.autoUpdate": "true", "core.autocrlf": "true", "core.eol": "crlf", "merge.verbosity": "5", "merge.stat": "true", "merge.log": "true",
		"core.quotePath": "false", "core.abbrev": "4", "color.ui": "always", "merge.tool": "x", "core.hooksPath": "/nonexistent", "advice.mergeConflict": "true",
	} {
		l.ConfigureGlobal(key, value)
	}
	if got := mergeCommits(l, openMerger(l), Request{Ours: ours, Theirs: theirs}); got.Tree != want.Tree || len(got.Conflicts) != 1 || got.Conflicts[0].Path != "sub/f" {
		t.Errorf("got %v, want %v", got, want)
	}
	l.ConfigureGlobal("merge.renormalize", "true")
	if got := mergeCommits(l, openMerger(l), Request{Ours: ours, Theirs: theirs}); len(got.Conflicts) != 1 {
		t.Errorf("with merge.renormalize: %v", got)
	}
	l.ConfigureGlobal("merge.renames", "false")
	// Only some versions of git merge-tree read this setting.
	got := mergeCommits(l, openMerger(l), Request{Ours: ours, Theirs: theirs})
	if last := len(got.Conflicts) - 1; last != 0 && (last != 1 || got.Conflicts[0].Kinds[0] != "modify/delete") || got.Conflicts[last].Path != "sub/f" {
		t.Errorf("without renames: %v", got)
	}
}

// Promise: CreateCommit signs with the program of the user's config, never with one of the repository's config.
func TestCreateCommitSignsWithUsersProgram(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	dir := gittest.TempDir(t)
	program := func(name string) string {
		path := filepath.Join(dir, name)
		l.Must(os.WriteFile(path, []byte("#!/bin/sh\necho ran >"+path+".ran\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\nprintf -- '-----BEGIN PGP SIGNATURE-----\\n"+name+"\\n-----END PGP SIGNATURE-----\\n'\n"), 0o755))
		return path
	}
	l.ConfigureGlobal("gpg.program", program("mine"))
	l.Git("config", "gpg.program", program("agents"))
	l.Git("config", "gpg.format", "ssh")
	l.Git("config", "gpg.ssh.program", program("agents"))
	l.Git("config", "user.signingKey", "agents")
	m := openMerger(l)
	author := object.Signature{Identity: object.Identity{Name: "Ä <nn>", Email: "a@example.com"}, When: "1700000000 +0100"}
	head := l.Git("rev-parse", "HEAD")
	c := CommitRequest{Tree: l.Git("rev-parse", "HEAD^{tree}"), Parents: []string{head}, Author: author, Committer: author, Message: "signed\n\n# and more"}
	unsigned, err := m.CreateCommit(t.Context(), c)
	l.Must(err)
	c.Sign = true
	signed, err := m.CreateCommit(t.Context(), c)
	l.Must(err)
	l.Must(m.Persist(t.Context()))
	text, plain := l.Git("cat-file", "-p", signed), l.Git("cat-file", "-p", unsigned)
	header, message, _ := strings.Cut(text, "\ngpgsig ")
	if !strings.Contains(message, "\n mine\n") || gittest.Exists(filepath.Join(dir, "agents.ran")) {
		t.Errorf("%s", text)
	}
	_, message, _ = strings.Cut(message, "\n\n")
	if header+"\n\n"+message != plain {
		t.Errorf("signed:\n%s\nunsigned:\n%s", text, plain)
	}
	l.Git("fsck", "--strict", signed, unsigned)
}
