package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSignedCommitsBehindWalls makes signed commits with gpg and with ssh behind walls: refused without the keys, and
// signed with the grants that the manual names.
func TestSignedCommitsBehindWalls(t *testing.T) {
	t.Parallel()
	t.Run("openpgp", func(t *testing.T) {
		t.Parallel()
		requirePrograms(t, "gpg", "gpgconf", "gpg-agent")
		l := newLab(t)
		home := filepath.Join(l.dir, "home", ".gnupg")
		env := []string{"GNUPGHOME=" + home}
		if o := l.try(nil, "mkdir", "-m", "700", home); o.code != 0 {
			t.Fatal(o.stderr)
		}
		if o := l.try(env, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", "Lab <lab@example.com>", "ed25519", "sign", "never"); o.code != 0 {
			t.Skipf("skipped: gpg does not work outside the walls: %s", o.stderr)
		}
		t.Cleanup(func() { // the context of the test is cancelled by then
			stop := exec.CommandContext(context.Background(), "gpgconf", "--kill", "gpg-agent")
			stop.Env = append(os.Environ(), env...)
			if out, err := stop.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		socket := l.try(env, "gpgconf", "--list-dirs", "agent-socket").line()
		l.git("config", "--global", "user.signingKey", "lab@example.com")
		testSigning(l, env, "GNUPGHOME", []string{home + "/pubring.kbx", socket}, home+"/private-keys-v1.d")
	})
	t.Run("ssh", func(t *testing.T) {
		t.Parallel()
		requirePrograms(t, "ssh-keygen", "ssh-agent", "ssh-add")
		l := newLab(t)
		key := filepath.Join(l.dir, "home", ".ssh", "id")
		l.write(filepath.Join(filepath.Dir(key), "known_hosts"), "")
		l.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
		socket := startSSHAgent(l, key)
		public := l.read(key + ".pub")
		l.write(filepath.Join(l.dir, "home", "signers"), "* "+public)
		l.git("config", "--global", "gpg.format", "ssh")
		l.git("config", "--global", "gpg.ssh.allowedSignersFile", filepath.Join(l.dir, "home", "signers"))
		l.git("config", "--global", "user.signingKey", "key::"+strings.TrimSpace(public))
		testSigning(l, []string{"SSH_AUTH_SOCK=" + socket}, "SSH_AUTH_SOCK", []string{socket}, key)
	})
}

// testSigning commits behind walls with commit.gpgSign on. The variable leads to the keys, the grants show what signing
// needs, and the secret is the private key, which must stay hidden.
func testSigning(l *lab, env []string, variable string, grants []string, secret string) {
	l.t.Helper()
	l.git("config", "--global", "commit.gpgSign", "true")
	l.agency("worktree", "create", "wt")
	id := l.agency("start", "wt", "--outputs", "none")
	commit := func(args ...string) outcome {
		l.t.Helper()
		return l.try(env, slices.Concat([]string{"git-agency", "exec", id}, args, []string{"--", "sh", "-c", "echo more >>readme && git commit -qam work"})...)
	}
	signature := func() string { return l.try(env, "git", "log", "-1", "--format=%G?", "agency/sandbox-"+id).line() }

	const warning = "commits made there are not signed"
	if o := commit(); o.code != 0 || strings.Count(o.stderr, warning) != 1 || signature() != "N" {
		l.t.Errorf("the first commit: %+v, signature %s", o, signature())
	}
	if o := commit(); o.code != 0 || o.stderr != "" || signature() != "N" {
		l.t.Errorf("the second commit: %+v, signature %s", o, signature())
	}
	if o := commit("--env", variable); o.code != 128 {
		l.t.Errorf("with %s alone: %+v", variable, o)
	}
	for _, path := range grants {
		l.git("config", "--global", "--add", "agency.sandbox.read", path)
	}
	l.git("config", "--global", "agency.sandbox.env", variable)
	if o := commit(); o.code != 0 || !slices.Contains([]string{"G", "U"}, signature()) {
		l.t.Errorf("with the grants: %+v, signature %s", o, signature())
	}
	if o := l.try(env, "git-agency", "exec", id, "--", "ls", secret); o.code == 0 {
		l.t.Errorf("the private key can be read: %+v", o)
	}
	tip := l.git("rev-parse", "agency/sandbox-"+id)
	l.agency("land", id)
	if o := l.try(env, "git", "log", "-1", "--format=%G?", tip); !slices.Contains([]string{"G", "U"}, o.line()) {
		l.t.Errorf("after landing: %+v", o)
	}
}

// TestLFSBehindWalls starts a sandbox with a file of Git LFS, changes and adds such files inside and lands them. The
// objects of every commit must be in the real repository then, also those of files that a later commit changed or removed.
func TestLFSBehindWalls(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "git-lfs")
	l := newLab(t)
	if o := l.try(nil, "git", "lfs", "install", "--skip-repo"); o.code != 0 {
		t.Skipf("skipped: git lfs does not work outside the walls: %s", o.stderr)
	}
	l.git("lfs", "track", "*.bin")
	l.write(filepath.Join(l.repo, "a.bin"), "from outside\n")
	l.git("add", "-A")
	l.git("commit", "-qm", "lfs")
	l.agency("worktree", "create", "wt")
	wt := l.agency("worktree", "path", "wt")
	id := l.agency("start", "wt", "--outputs", "none")
	if got := l.read(filepath.Join(l.agency("path", id), "a.bin")); got != "from outside\n" {
		t.Errorf("start checked out %q", got)
	}
	o := l.try(nil, "git-agency", "exec", id, "--", "sh", "-ec", `cat a.bin
		echo first >a.bin; echo removed >b.bin; git add -A; git commit -qm one
		echo second >a.bin; git rm -q b.bin; echo new >c.bin; git add -A; git commit -qm two
		git cat-file -p HEAD:c.bin | head -n 1; rm c.bin; git checkout -q c.bin; cat c.bin; git status --short`)
	if want := "from outside\nversion https://git-lfs.github.com/spec/v1\nnew\n"; o.code != 0 || o.stdout != want {
		t.Fatalf("inside: %+v, want %q", o, want)
	}
	tip := l.git("rev-parse", "agency/sandbox-"+id)
	l.agency("land", id)
	if got := l.read(filepath.Join(wt, "a.bin")) + l.read(filepath.Join(wt, "c.bin")); got != "second\nnew\n" {
		t.Errorf("the landed files have %q", got)
	}
	if got := l.git("-C", wt, "status", "--short"); got != "" {
		t.Errorf("after landing: %s", got)
	}
	for file, want := range map[string]string{tip + "~:a.bin": "first", tip + "~:b.bin": "removed", tip + ":a.bin": "second", tip + ":c.bin": "new"} {
		if got := l.try(nil, "sh", "-c", "git cat-file -p "+file+" | git lfs smudge"); got.line() != want {
			t.Errorf("%s is %q (%s), want %q", file, got.stdout, got.stderr, want)
		}
	}
}
