package transport

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

func TestParsePushPorcelain(t *testing.T) {
	t.Parallel()
	got := parsePushPorcelain("To /hub.git\n!\tabc:refs/heads/main\t[rejected] (fetch\tfirst)\n \ta:refs/heads/b\t1..2\n=\ta:refs/heads/c\t[up to date]\nDone\n")
	want := []pushedRef{
		{'!', "abc", "refs/heads/main", "[rejected] (fetch\tfirst)"}, {' ', "a", "refs/heads/b", "1..2"}, {'=', "a", "refs/heads/c", "[up to date]"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, out := range []string{"", "\n", "Done\n", "!\tab\tc\n", "!!\ta:b\tc\n", "!\ta:b\n", "\t\t\t\n", "To a\tb:c\td\n"} {
		if got := parsePushPorcelain(out); got != nil {
			t.Errorf("%q: %q", out, got)
		}
	}
}

func FuzzParsePushPorcelain(f *testing.F) {
	f.Add("To /hub.git\n!\tabc:refs/heads/main\t[rejected] (fetch first)\nDone\n")
	f.Add("*\t:x\t\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, p := range parsePushPorcelain(out) {
			line := string([]byte{p.flag}) + "\t" + p.from + ":" + p.to + "\t" + p.summary
			if !strings.Contains(out, line) || strings.Contains(line, "\n") {
				t.Errorf("%q is not in %q", line, out)
			}
		}
	})
}

func TestRemoteMessagesKeepsRemoteLines(t *testing.T) {
	t.Parallel()
	got := remoteMessages("remote: no, thanks        \nremote:         \nerror: failed\nremote: bye\n" + strings.Repeat("remote: x\n", 100))
	if len(got) != 20 || got[0] != "no, thanks" || got[1] != "bye" {
		t.Errorf("got %q", got)
	}
}

func TestURLProtocolOfEveryURLForm(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]string{
		"/srv/a.git":               {"file", "/srv/a.git"},
		"../a.git":                 {"file", "../a.git"},
		"a":                        {"file", "a"},
		"./a:b":                    {"file", "./a:b"},
		"file:///srv/a%20b.git":    {"file", "/srv/a b.git"},
		"host:a.git":               {"ssh", ""},
		"me@host:/a.git":           {"ssh", ""},
		"[::1]:a.git":              {"ssh", ""},
		"ssh://host/a.git":         {"ssh", ""},
		"git+ssh://host/a.git":     {"ssh", ""},
		"https://host/a.git":       {"https", ""},
		"HTTPS://host/a.git":       {"HTTPS", ""},
		"git://host/a.git":         {"git", ""},
		"ext::sh -c x":             {"ext", ""},
		"ext::/a":                  {"ext", ""},
		"fd::7":                    {"fd", ""},
		"foo://x":                  {"foo", ""},
		"https::http://host/a.git": {"https", ""},
	} {
		if p, path := urlProtocol(url), localPath(url); p != want[0] || path != want[1] {
			t.Errorf("%s: %q, %q", url, p, path)
		}
	}
}

func TestTrackingRefAcceptsOnlyRemoteTrackingRefs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fetch []string
		want  string
	}{
		{nil, ""},
		{[]string{"+refs/heads/*:refs/remotes/origin/*"}, "refs/remotes/origin/a/main"},
		{[]string{"refs/heads/a/main:refs/remotes/x"}, "refs/remotes/x"},
		{[]string{"refs/heads/a/*n:refs/remotes/*/x"}, "refs/remotes/mai/x"},
		{[]string{"refs/heads/b/*:refs/remotes/b/*", "refs/heads/*:refs/remotes/c/*"}, "refs/remotes/c/a/main"},
		{[]string{"refs/heads/*:refs/remotes/c/*", "^refs/heads/a/*"}, ""},
		{[]string{"refs/heads/*"}, ""},
		{[]string{"+refs/heads/*:refs/heads/*"}, ""},
		{[]string{"+refs/*:refs/*"}, ""},
		{[]string{"+refs/heads/a/main:refs/remotes/../heads/main"}, ""},
		{[]string{"+refs/heads/a/main*n:refs/remotes/c/*"}, ""},
	} {
		if got := (Remote{fetchSpecs: c.fetch}).TrackingRef("refs/heads/a/main"); got != c.want {
			t.Errorf("%q: %q", c.fetch, got)
		}
	}
}

func TestReadRemotesFindsPushURLs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, kv := range [][]string{
		{"remote.one.url", "../one.git"},
		{"remote.two.url", "https://host/two.git"},
		{"remote.two.pushurl", "/two.git"},
		{"remote.none.fetch", "+refs/heads/*:refs/remotes/none/*"},
		{"remote.a.b.url", "host:ab.git"},
		{"remote.many.url", "/a", "/b"},
		{"remote.ext.url", "ext::sh -c x"},
		{"remote.empty.url", ""},
		{"url./elsewhere.insteadOf", "/two.git"},
		{"protocol.ext.allow", "always"},
	} {
		for _, v := range kv[1:] {
			l.Git("config", "--add", kv[0], v)
		}
	}
	repo := repotest.OpenRepo(l)
	remotes, err := ReadRemotes(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := remotes.Names(), []string{"a.b", "ext", "many", "one", "two"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]string{
		"one": filepath.Join(filepath.Dir(l.Root), "one.git"), "two": "/two.git", "a.b": "host:ab.git", "many": "", "ext": "", "empty": "", "none": "", "": "",
	} {
		got, err := remotes.Find(t.Context(), name)
		if got.URL != want || (err != nil) != (want == "") || want != "" && !got.Untrusted {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if err := remotes.CheckFullHistory(); err != nil {
		t.Error(err)
	}
	l.Git("config", "remote.one.promisor", "true")
	if remotes, err = ReadRemotes(t.Context(), repo); err != nil || remotes.CheckFullHistory() == nil {
		t.Errorf("a partial clone passes CheckFullHistory: %v", err)
	}
}

func TestAllowedProtocolsFollowUserConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env    []string
		config config.Settings
		want   string
	}{
		{nil, config.Settings{}, "file git http https ssh"},
		{[]string{"GIT_ALLOW_PROTOCOL=https:ext:ssh"}, config.Settings{}, "https ssh"},
		{[]string{"GIT_ALLOW_PROTOCOL="}, config.Settings{}, ""},
		{nil, config.Settings{"protocol.file.allow": {{Value: "never", Scope: "global"}}}, "git http https ssh"},
		{nil, config.Settings{"protocol.allow": {{Value: "never", Scope: "global"}}, "protocol.ssh.allow": {{Value: "always", Scope: "system"}}}, "ssh"},
		{nil, config.Settings{"protocol.ext.allow": {{Value: "always", Scope: "global"}}}, "file git http https ssh"},
	} {
		if got := (RemoteConfig{repo: &git.Repo{Env: c.env}, config: c.config}).allowedProtocols(); strings.Join(got, " ") != c.want {
			t.Errorf("%q %v: %q", c.env, c.config, got)
		}
	}
}

// Fetch must store the objects of a remote ref in the repository without changing its refs, and return "" for a missing
// ref. Push must report the answer of the remote.
func TestPusherFetchStoresObjectsWithoutRefs(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	at := l.Git("rev-parse", "HEAD")
	hub := filepath.Join(t.TempDir(), "hub.git")
	l.Git("clone", "-q", "--bare", l.Root, hub)
	theirs := l.Git("-C", hub, "commit-tree", "-p", at, "-m", "theirs", at+"^{tree}")
	l.Git("-C", hub, "update-ref", "refs/heads/main", theirs)
	l.Git("remote", "add", "hub", hub)
	repo := repotest.OpenRepo(l)
	remotes, err := ReadRemotes(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := remotes.Find(t.Context(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	for _, untrusted := range []bool{false, true} {
		c, err := NewPusher(repo, remote, at, untrusted)
		if err != nil {
			t.Fatal(err)
		}
		before := l.Git("for-each-ref")
		if got, err := c.Fetch(t.Context(), "refs/heads/main", at); got != theirs || err != nil {
			t.Errorf("Fetch: %q, %v", got, err)
		}
		if got, err := c.Fetch(t.Context(), "refs/heads/nothing", at); got != "" || err != nil {
			t.Errorf("Fetch of a missing ref: %q, %v", got, err)
		}
		if answer, err := c.Push(t.Context(), at, "refs/heads/main"); answer.Accepted || answer.Reason == "" || err != nil {
			t.Errorf("Push: %+v, %v", answer, err)
		}
		if answer, err := c.Push(t.Context(), at, "refs/heads/new"); !answer.Accepted || err != nil {
			t.Errorf("Push: %+v, %v", answer, err)
		}
		if after := l.Git("for-each-ref"); after != before || l.Git("cat-file", "-t", theirs) != "commit" {
			t.Errorf("refs are\n%s\nand were\n%s", after, before)
		}
		if err := c.Close(); err != nil || gittest.Exists(c.dir) {
			t.Errorf("Close: %v", err)
		}
	}
	if err := os.RemoveAll(hub); err != nil {
		t.Fatal(err)
	}
	c, err := NewPusher(repo, remote, at, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(t.Context(), "refs/heads/main", at); err == nil {
		t.Error("Fetch from a removed remote succeeded")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Promise: a remote-tracking ref that another process has moved since our fetch keeps its new value.
func TestUpdateTrackingRefKeepsConcurrentUpdate(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	first := l.Git("rev-parse", "HEAD")
	l.Git("commit", "-q", "--allow-empty", "-m", "second")
	second := l.Git("rev-parse", "HEAD")
	l.Git("commit", "-q", "--allow-empty", "-m", "third")
	third := l.Git("rev-parse", "HEAD")
	const ref = "refs/remotes/origin/main"
	repo := repotest.OpenRepo(l)
	for _, c := range []struct{ old, oid, want string }{
		{"", first, first},      // the ref does not exist
		{first, second, second}, // the old value is right
		{first, third, second},  // the ref was moved meanwhile
		{"", third, second},     // the ref was created meanwhile
	} {
		if err := UpdateTrackingRef(t.Context(), repo, ref, c.oid, c.old, "push"); err != nil {
			t.Errorf("from %q to %s: %v", c.old, c.oid, err)
		}
		if got := l.Git("rev-parse", ref); got != c.want {
			t.Errorf("from %q to %s: ref is at %s", c.old, c.oid, got)
		}
	}
	if err := UpdateTrackingRef(t.Context(), repo, ref, strings.Repeat("1", 40), second, "push"); err == nil {
		t.Error("moved to a missing commit")
	}
}

// TestPushTurnExcludesOnlyPushes: a second push waits for the first, and a lock of another program on the remote's
// directory, which needs only permission to read, delays none.
func TestPushTurnExcludesOnlyPushes(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	at := l.Git("rev-parse", "HEAD")
	hub := filepath.Join(l.Root, "hub.git")
	l.Git("init", "-q", "--bare", hub)
	dir, err := os.Open(hub)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	newPusher := func(path string) *Pusher {
		c, err := NewPusher(repotest.OpenRepo(l), Remote{Path: path}, at, false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := newPusher(hub)
	first.WaitTurn(t.Context())
	if first.turnLock == nil {
		t.Fatal("the lock of another program took the turn")
	}
	other, second := newPusher(l.Root), newPusher(hub)
	if other.WaitTurn(t.Context()); other.turnLock == nil || other.Close() != nil {
		t.Error("a push to another remote did not get its turn")
	}
	waited := make(chan bool)
	go func() {
		second.WaitTurn(t.Context())
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("two pushes have the turn")
	case <-time.After(50 * time.Millisecond): // a second push that does not wait may be missed, never the opposite
	}
	turn := first.turnLock.Name()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	<-waited
	if second.turnLock == nil || second.turnLock.Name() != turn || second.Close() != nil {
		t.Error("the second push did not get the turn")
	}
	if gittest.Exists(turn) {
		t.Errorf("%s is left", turn)
	}
}
