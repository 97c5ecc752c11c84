package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigSecretsAreNotReadableInside puts secrets into every configuration file of git that a sandbox can read. Inside,
// the files must have all other settings, git must work and be able to change its configuration, and a command must see
// what changed outside since the last one. Outside, the files must stay as they are.
func TestConfigSecretsAreNotReadableInside(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	l := newLab(t)
	home, gitDir := filepath.Join(l.dir, "home"), filepath.Join(l.repo, ".git")
	url := "https://me:" + fakeSecret + "@a.example/"
	l.git("config", "--global", "url."+url+".insteadOf", "https://b.example/")
	l.git("config", "--global", "alias.st", "status")
	l.git("config", "--global", "include.path", "work.inc")
	l.git("config", "--global", "http.cookieFile", "~/jar")
	l.write(filepath.Join(home, "jar"), fakeSecret)
	l.write(filepath.Join(home, "work.inc"), "[http]\n\textraHeader = Authorization: Basic "+fakeSecret+"\n[work]\n\tseen = yes\n")
	l.write(filepath.Join(home, ".config/git/config"), "[github]\n\ttoken = "+fakeSecret+"\n")
	l.git("remote", "add", "origin", url+"r")
	l.git("config", "include.path", "extra.inc")
	l.write(filepath.Join(gitDir, "extra.inc"), "[sendemail]\n\tsmtpPass = "+fakeSecret+"\n[extra]\n\tseen = yes\n")
	l.git("config", "extensions.worktreeConfig", "true")
	l.git("config", "--worktree", "x.password", fakeSecret)
	l.git("init", "-q", "--bare", filepath.Join(gitDir, "modules/a/b"))
	l.git("config", "--file", filepath.Join(gitDir, "modules/a/b/config"), "remote.origin.url", url+"sub")
	l.git("worktree", "add", "-q", "--detach", filepath.Join(l.dir, "linked"))
	for _, name := range []string{"sub", "sub/modules/inner"} { // as 'git submodule update' does in a linked worktree
		dir := filepath.Join(gitDir, "worktrees/linked/modules", name)
		l.git("init", "-q", "--bare", dir)
		l.git("config", "--file", filepath.Join(dir, "config"), "remote.origin.url", url+name)
		l.write(filepath.Join(dir, "FETCH_HEAD"), l.git("rev-parse", "HEAD")+"\t\tbranch 'main' of "+url+name+"\n")
		l.write(filepath.Join(dir, "config.bak"), fakeSecret)
	}
	for _, name := range []string{"config.bak", "config.worktree.bak"} {
		l.write(filepath.Join(gitDir, "worktrees/linked", name), fakeSecret)
	}
	l.write(filepath.Join(gitDir, "FETCH_HEAD"), l.git("rev-parse", "HEAD")+"\t\tbranch 'main' of "+url+"r\n")
	l.write(filepath.Join(gitDir, "remotes/old"), "URL: "+url+"old\n")
	l.write(filepath.Join(gitDir, "branches/older"), url+"older\n")
	for _, name := range []string{"logs/HEAD", "logs/refs/heads/main"} { // as 'git pull <url>' does
		log := l.read(filepath.Join(gitDir, name))
		l.write(filepath.Join(gitDir, name), log+strings.Replace(log, "commit (initial): first", "pull "+url+"r main: Fast-forward", 1))
	}
	for _, name := range []string{"config2", "old-config", "CONFIG.bak", ".gitconfig", ".netrc", "FETCH_HEAD~", "backup/config"} {
		l.write(filepath.Join(gitDir, name), "[x]\n\ttoken = "+fakeSecret+"\n")
	}
	l.git("config", "--add", "include.path", "shared-config")
	l.write(filepath.Join(gitDir, "shared-config"), "[shared]\n\tseen = yes\n\ttoken = "+fakeSecret+"\n")
	for _, name := range []string{"config.bak", "config~", ".config.swp", "config.worktree.orig", "credentials", "lfs/logs/1.log", "annex/creds/x", "modules/a/b/config.old"} {
		l.write(filepath.Join(gitDir, name), "[x\n\ty = "+fakeSecret+"\n")
	}
	l.git("update-ref", "refs/remotes/x/main", "HEAD")
	l.git("update-ref", "refs/stash", "HEAD")
	for _, name := range []string{"FETCH_HEAD", "logs/refs/heads/main", "logs/refs/remotes/x/main", "logs/refs/stash"} {
		old, _ := os.ReadFile(filepath.Join(gitDir, name))
		id := l.git("rev-parse", "HEAD")
		l.write(filepath.Join(gitDir, name), id+" "+id+" A <a@example.com> 1 +0000\tpull https://a.example/r?sig="+fakeSecret+" main: Fast-forward\n"+string(old))
	}
	w := newWalledSandboxIn(l)
	l.must("git", "-C", w.tree, "config", "--worktree", "own.token", fakeSecret)
	l.must("git", "-C", w.tree, "config", "--worktree", "own.seen", "yes")
	other := l.agency("start", "wt")
	before := w.dumpGitDir()

	secretsInside := "{ grep -rlI " + fakeSecret + " ~ " + gitDir + " || true; git config --list | grep " + fakeSecret + " || true; }"
	if got := w.runInside(secretsInside); got != "" {
		t.Errorf("secrets can be read inside:\n%s", got)
	}
	if got := w.runInside("for key in remote.origin.url alias.st work.seen extra.seen shared.seen own.seen; do git config $key; done; git config --file " + gitDir + "/modules/a/b/config remote.origin.url; git config --file " + gitDir + "/worktrees/linked/modules/sub/config remote.origin.url"); got != "https://a.example/r\nstatus\nyes\nyes\nyes\nyes\nhttps://a.example/sub\nhttps://a.example/sub" {
		t.Errorf("settings inside: %q", got)
	}
	if got := w.runInside("git reflog -1 --format=%gs main; cat " + gitDir + "/FETCH_HEAD " + gitDir + "/remotes/old"); !strings.HasPrefix(got, "pull https://a.example/r main: Fast-forward\n") || !strings.HasSuffix(got, " of https://a.example/r\nURL: https://a.example/old") {
		t.Errorf("URLs inside: %q", got)
	}
	if after := w.dumpGitDir(); after != before {
		t.Error("the real git directory was changed")
	}
	for _, key := range []string{"remote.origin.url", "http.extraHeader", "x.password", "sendemail.smtpPass"} {
		if got := l.git("config", key); !strings.Contains(got, fakeSecret) {
			t.Errorf("%s outside is %q", key, got)
		}
	}

	// Changes outside, and of a command inside.
	if got := w.runInside("git config new.key inside; git remote add more https://c.example/; git commit -q --allow-empty -m x; git config new.key"); got != "inside" {
		t.Errorf("new.key is %q", got)
	}
	l.git("config", "later.key", "outside")
	l.git("remote", "set-url", "origin", strings.Replace(url, "me:", "you:", 1)+"moved")
	if got := w.runInside("git config new.key; git remote; " + secretsInside); got != "inside\nmore\norigin" {
		t.Errorf("after a change inside: %q", got)
	}
	if got := l.agency("exec", other, "--", "bash", "-ec", "git config later.key; git config remote.origin.url; "+secretsInside); got != "outside\nhttps://a.example/moved" {
		t.Errorf("another sandbox after a change outside: %q", got)
	}
	l.git("remote", "set-url", "origin", "https://a.example/plain") // nothing to filter any more
	l.git("config", "last.key", "outside")
	if got := l.agency("exec", other, "--", "bash", "-ec", "git config last.key; git config remote.origin.url; "+secretsInside); got != "outside\nhttps://a.example/plain" {
		t.Errorf("after the secret was removed: %q", got)
	}
	l.git("config", "--global", "agency.sandbox.read", filepath.Join(gitDir, "config.worktree"))
	l.git("config", "--global", "--add", "agency.sandbox.read", "~/.config/git/config")
	if got := l.agency("exec", other, "--", "bash", "-ec", secretsInside); got != filepath.Join(home, ".config/git/config")+"\n"+filepath.Join(gitDir, "config.worktree") {
		t.Errorf("after two files were granted: %q", got)
	}
	w.checkAndDiscard()
}

// TestReplacedConfigShowsNoSecret replaces a filtered file outside while a command runs, as git config does.
func TestReplacedConfigShowsNoSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.git("config", "--global", "github.token", fakeSecret)
	w := newWalledSandboxIn(l)
	cmd := w.startInside("a", "true", "grep -rl "+fakeSecret+" ~ >.notes/secret || true")
	l.git("config", "--global", "gitlab.token", "new-"+fakeSecret)
	w.resume("a")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := l.read(filepath.Join(w.tree, ".notes/secret")); got != "" {
		t.Errorf("can be read: %s", got)
	}
}

// TestReflogOfOtherRefShowsNoSecret pulls into a ref while HEAD is up to date, which writes nothing to the reflog of HEAD.
func TestReflogOfOtherRefShowsNoSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.git("update-ref", "--create-reflog", "-m", "pull https://me:"+fakeSecret+"@a.example/r main:other: storing head", "refs/heads/other", "HEAD")
	w := newWalledSandboxIn(l)
	if got := w.runInside("git reflog --format=%gs other"); got != "pull https://a.example/r main:other: storing head" {
		t.Errorf("inside: %q", got)
	}
}

// TestUnparsableConfigIsHidden checks that a configuration file that cannot be parsed is empty inside, with a warning.
func TestUnparsableConfigIsHidden(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	w := newWalledSandboxIn(l)
	path := filepath.Join(l.dir, "home", ".config", "git", "config") // GIT_CONFIG_GLOBAL is set, so git does not read it
	l.write(path, "[github\n\ttoken = "+fakeSecret+"\n")
	o := l.try(nil, "git-agency", "exec", w.id, "--", "cat", path)
	if o.code != 0 || o.stdout != "" || !strings.Contains(o.stderr, path+" is too large or cannot be parsed, so it is empty behind the walls") {
		t.Errorf("%+v", o)
	}
}

// TestFilteredConfigFollowsNoSymlink checks that a sandbox cannot make the tool write its filtered configuration elsewhere.
func TestFilteredConfigFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gitDir := filepath.Join(l.repo, ".git")
	l.git("init", "-q", "--bare", filepath.Join(gitDir, "modules/a"))
	w := newWalledSandboxIn(l)
	victim := filepath.Join(l.dir, "victim")
	if err := os.MkdirAll(filepath.Join(victim, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.runInside("rm -rf " + gitDir + "/modules; ln -s " + victim + " " + gitDir + "/modules")
	l.git("config", "--file", filepath.Join(gitDir, "modules/a/config"), "github.token", fakeSecret)
	o := l.try(nil, "git-agency", "exec", w.id, "--", "true")
	if entries, err := os.ReadDir(filepath.Join(victim, "a")); err != nil || len(entries) > 0 {
		t.Errorf("files were written outside: %v, %v", entries, err)
	}
	if o.code != 0 {
		t.Errorf("a later command fails: %+v", o)
	}
}

// TestToolSettingsAreNotReadableInside puts secrets into files of tools that a private home shows or could show: what is
// shown has the other settings.
func TestToolSettingsAreNotReadableInside(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	l := newLab(t)
	home := filepath.Join(l.dir, "home")
	url := "https://me:" + fakeSecret + "@a.example/"
	for name, text := range map[string]string{
		".cargo/config.toml":           "[build]\njobs = 3\n[registries.x]\ntoken = \"\"\"\n" + fakeSecret + "\"\"\"\n[env]\nX = \"" + fakeSecret + "\"\n[http]\nproxy = \"me:" + fakeSecret + "@p:80\"\n",
		".cargo/env":                   "export X=" + fakeSecret + "\n",
		".cargo/credentials.toml":      fakeSecret,
		".condarc":                     "channels:\n  - https://a.example/t/" + fakeSecret + "/c\nanaconda:\n  " + fakeSecret + "\n",
		".config/mise/config.toml":     "[tools]\nnode = \"20\"\n[env]\nA = \"\"\"\n" + fakeSecret + "\"\"\"\n",
		".config/uv/uv.toml":           "[[index]]\nurl = \"" + url + "simple\"\n",
		".bunfig.toml":                 "[install.scopes]\nx = { token = \"" + fakeSecret + "\" }\n",
		".config/go/env":               "GOPROXY=" + url + "\nGOAUTH=command " + fakeSecret + "\n",
		".config/pip/pip.conf":         "[global]\nindex-url = " + url + "\n",
		".config/pypoetry/config.toml": "[http-basic.x]\npassword = \"" + fakeSecret + "\"\n",
		".npmrc":                       "//a.example/:_authToken=" + fakeSecret + "\n",
		".yarnrc.yml":                  "npmAuthToken: " + fakeSecret + "\n",
		".yarn/x":                      "",
		".gradle/gradle.properties":    "p=" + fakeSecret + "\n",
		".m2/settings.xml":             "<password>" + fakeSecret + "</password>",
		".m2/repository/x":             "",
		".sbt/.credentials":            "password=" + fakeSecret,
		".ivy2/.credentials":           "password=" + fakeSecret,
		".conan2/credentials.json":     fakeSecret,
		".pub-cache/credentials.json":  fakeSecret,
	} {
		l.write(filepath.Join(home, name), text)
	}
	l.git("config", "--global", "core.sshCommand", "sshpass -p "+fakeSecret+" ssh")
	w := newWalledSandboxIn(l)
	if got := w.runInside("grep -rsl " + fakeSecret + " ~ || true"); got != "" {
		t.Errorf("secrets can be read inside:\n%s", got)
	}
	want := `[build]
jobs = 3
[registries.x]
[env]
[http]
proxy = "p:80"
channels:
  - https://a.example/c
[tools]
node = "20"
[env]
[[index]]
url = "https://a.example/simple"
[install.scopes]
GOPROXY=https://a.example/`
	if got := w.runInside("cd; cat .cargo/config.toml .condarc .config/mise/config.toml .config/uv/uv.toml .bunfig.toml .config/go/env"); got != want {
		t.Errorf("settings inside:\n%s", got)
	}
}
