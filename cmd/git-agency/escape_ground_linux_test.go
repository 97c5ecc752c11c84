package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attempt is one way to get out of a sandbox. It is made twice: behind walls, where nothing may come of it,
// and where there are none, where the same eyes must see that it works. Otherwise they might be closed.
type attempt struct {
	name   string
	script string   // for sh. With $T in it, it is run for each of the targets; see side.targets
	flags  []string // of exec, behind walls

	outputs string                 // of the sandbox; empty is open
	toolEnv []string               // for the tool itself
	files   func(s *side) []string // what the tool has open, from descriptor 3 on
	prepare func(s *side) []string // what is needed outside; variables for the script
	worked  func(s *side) string   // what came of it; empty is nothing. That targets changed is seen anyway
	keep    func(s *side) []string // names of targets that even without walls stay as they are
	control control                // where it is made without walls
	root    string                 // why only root could do it at all; empty when everybody can
	why     string                 // why it is made nowhere without walls
}

// control is where an attempt is made that must succeed.
type control int

const (
	sandboxWithout control = iota // a sandbox with --isolation none
	plainShell                    // no sandbox at all
	ownNamespaces                 // a shell with a user and a mount namespace: all that walls are made of, but none of them
	noControl                     // there is a reason
)

// ground is where attempts are made: a repository, sandboxes, a home with secrets.
type ground struct {
	*lab
	wt, other string            // an integration tree, the tree of another sandbox
	ids       map[string]string // of sandboxes, by their outputs; "without" is the one that has no walls
	trees     map[string]string
	ears      *ears
}

const secret = "hunter2-was-here"

// secretPlaces are where people keep secrets, below their home.
var secretPlaces = []string{
	".ssh/id_ed25519", ".netrc", ".aws/credentials", ".git-credentials", ".gnupg/secring", ".config/gh/hosts.yml", ".docker/config.json",
	".kube/config", ".npmrc", ".pypirc", ".bash_history", ".config/gcloud/credentials.db",
}

func newGround(t *testing.T, outputs ...string) *ground {
	t.Helper()
	// Names of sockets must be short, and those of temporary directories are not when tests run in tests.
	dir, err := os.MkdirTemp("/tmp", "e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &ground{lab: newLabIn(t, dir), ids: map[string]string{}, trees: map[string]string{}, ears: newEars(t)}
	for _, name := range secretPlaces {
		g.write(filepath.Join(g.dir, "home", name), secret+"\n")
	}
	g.copyEscapist()
	g.wt = g.agency("worktree", "create", "wt")
	g.other = g.agency("path", g.agency("start", "wt"))
	g.write(filepath.Join(g.other, "secret"), secret+"\n")
	g.add("without", "--isolation", "none")
	for _, o := range outputs {
		g.add(o, "--isolation", "os", "--outputs", o)
	}
	return g
}

// copyEscapist puts the helper where a sandbox sees it: what links lead to in /tmp, it does not see.
func (l *lab) copyEscapist() {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	if out, err := exec.CommandContext(l.t.Context(), "cp", exe, filepath.Join(l.bin, "escapist")).CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

func (g *ground) add(name string, flags ...string) {
	g.t.Helper()
	g.ids[name] = g.agency(append([]string{"start", "wt"}, flags...)...)
	g.trees[name] = g.agency("path", g.ids[name])
}

// side is an attempt as it is made, with or without walls.
type side struct {
	*ground
	t       *testing.T
	attempt attempt
	walls   bool
	key     string // unlike that of any other
	id      string
	tree    string
	targets map[string]string // directories that it may try to change, by where they are
	out     outcome
	before  string // what prepare found, for worked
}

// word is one that nobody else says.
func (s *side) word() string { return fmt.Sprintf("word-%d-%s", os.Getpid(), s.key) }

// at is a target.
func (s *side) at(zone string, names ...string) string {
	return filepath.Join(append([]string{s.targets[zone]}, names...)...)
}

// make makes the attempt and says what came of it.
func (g *ground) make(t *testing.T, a attempt, key string, walls bool) (came []string, out outcome) {
	t.Helper()
	l := *g.lab
	l.t = t
	mine := *g
	mine.lab = &l
	s := &side{ground: &mine, t: t, attempt: a, walls: walls, key: key}
	s.tree, s.id = g.trees["without"], g.ids["without"]
	if walls {
		outputs := a.outputs
		if outputs == "" {
			outputs = "open"
		}
		s.tree, s.id = g.trees[outputs], g.ids[outputs]
	}
	s.targets = map[string]string{
		"home": filepath.Join(g.dir, "home", "target-"+key), "the integration tree": filepath.Join(g.wt, "target-"+key),
		"the repository": filepath.Join(g.repo, "target-"+key), "the git directory": filepath.Join(g.repo, ".git", "target-"+key),
		"another sandbox": filepath.Join(g.other, "target-"+key), "the data directory": filepath.Join(g.data, "target-"+key),
		"somewhere else": filepath.Join(g.dir, "elsewhere", "target-"+key),
	}
	env := []string{
		"HOMEDIR=" + filepath.Join(g.dir, "home"), "REPO=" + g.repo, "WT=" + g.wt, "OTHER=" + g.other, "DATA=" + g.data, "TREE=" + s.tree, "LAB=" + g.dir,
		"WORD=" + s.word(), "KEY=" + key, "ESCAPIST=" + filepath.Join(g.bin, "escapist"),
	}
	before, zones := map[string]string{}, []string{}
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for zone, dir := range s.targets {
		for _, name := range []string{"victim", "dir/inner"} {
			s.write(filepath.Join(dir, name), "as it was\n")
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
		zones = append(zones, dir)
		before[zone] = fingerprint(t, dir)
	}
	if a.prepare != nil {
		env = append(env, a.prepare(s)...)
		for zone, dir := range s.targets {
			before[zone] = fingerprint(t, dir)
		}
	}
	script, each := a.script, strings.Contains(a.script, "$T/") || strings.Contains(a.script, "$T ")
	if each {
		script = "for T in $TARGETS; do (\n" + script + "\n) done"
	}
	loops := each || strings.Contains(a.script, "%/")
	s.out = s.run(prelude+script, append(env, "TARGETS="+strings.Join(zones, " "), "PIDNS="+pidNamespace(t)))

	for _, zone := range slices.Sorted(maps.Keys(s.targets)) {
		changed := fingerprint(t, s.targets[zone]) != before[zone]
		switch {
		case changed && walls:
			came = append(came, "it changed something in "+zone+":\n"+diff(before[zone], fingerprint(t, s.targets[zone])))
		case changed:
			came = append(came, "it changed something in "+zone)
		case loops && !walls && a.control != noControl && a.worked == nil && (a.keep == nil || !slices.Contains(a.keep(s), zone)):
			t.Errorf("without walls nothing was changed in %s: the attempt is none\n%s%s", zone, s.out.stdout, s.out.stderr)
		}
	}
	if strings.Contains(s.out.stdout, "not apart\n") {
		came = append(came, "it is among the processes outside")
	}
	if a.worked != nil {
		if what := a.worked(s); what != "" {
			came = append(came, what)
		}
	}
	return came, s.out
}

// prelude has apart, which goes no further unless the processes here are not those outside: some attempts
// would otherwise harm the machine, should the walls be missing.
const prelude = `apart() { [ "$(readlink /proc/self/ns/pid)" != "$PIDNS" ] || { echo not apart; exit; }; }
`

func pidNamespace(t *testing.T) string {
	t.Helper()
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// patience is how long an attempt may take; the tool ends it well before.
const patience = 40 * time.Second

// run runs a script on this side.
func (s *side) run(script string, env []string) outcome {
	s.t.Helper()
	var argv []string
	if s.walls || s.attempt.control == sandboxWithout {
		argv = []string{filepath.Join(s.bin, "git-agency"), "exec", s.id, "--timeout", "20s", "--grace", "1s"}
		if s.walls {
			argv = append(argv, s.attempt.flags...)
		}
		for _, kv := range env {
			argv = append(argv, "--env", kv)
		}
		argv = append(argv, "--", "sh", "-c", script)
	} else {
		argv = []string{"sh", "-c", script}
		if s.attempt.control == ownNamespaces {
			argv = append([]string{"unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"}, argv...)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // something may have kept the pipes
	cmd.Dir, cmd.Env = s.repo, slices.Concat(s.env, s.attempt.toolEnv)
	if argv[0] == "sh" || argv[0] == "unshare" {
		cmd.Dir, cmd.Env = s.tree, append(cmd.Env, env...)
	}
	if s.attempt.files != nil {
		for _, name := range s.attempt.files(s) {
			fd, err := unix.Open(name, unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.EISDIR) {
				fd, err = unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			}
			if err != nil {
				s.t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), name)
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		s.t.Fatalf("%q: %v", argv, err)
	}
	if ctx.Err() != nil {
		s.t.Fatalf("%q does not end", argv)
	}
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if s.walls && o.code == 125 {
		s.t.Fatalf("it was not made: %s", o.stderr)
	}
	return o
}

// says reports an attempt that worked if it printed a text.
func says(text string) func(*side) string {
	return func(s *side) string {
		if strings.Contains(s.out.stdout, text) {
			return fmt.Sprintf("it said %q", text)
		}
		return ""
	}
}

// leaks reports an attempt that worked if it printed the secret.
func leaks(s *side) string { return says(secret)(s) }

// heard reports an attempt that worked if somebody outside heard its word.
func heard(s *side) string {
	if s.ears.heard(s.t, s.word()) {
		return "somebody outside heard it"
	}
	return ""
}

// fingerprint is everything that can be changed of a directory and what is in it.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		what := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				what = err.Error()
			} else {
				what = fmt.Sprintf("%x", sha256.Sum256(data))
			}
		case unix.S_IFLNK:
			if what, err = os.Readlink(path); err != nil {
				return err
			}
		}
		list := make([]byte, 4096)
		n, err := unix.Llistxattr(path, list)
		if err != nil {
			n = 0
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%q %o %d:%d links=%d changed=%d %q %s\n", rel, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Nano(), list[:n], what)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return "it is gone\n"
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// handleOf is what open_by_handle_at wants for a file.
func handleOf(t *testing.T, path string) []string {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"HANDLE=" + strconv.Itoa(int(h.Type())) + " " + hex.EncodeToString(h.Bytes())}
}

// ears listen outside.
type ears struct {
	mu    sync.Mutex
	words map[string]bool
	tcp4  string // addresses
	tcp6  string // empty where there is no such thing
	udp   string
}

func newEars(t *testing.T) *ears {
	t.Helper()
	e := &ears{words: map[string]bool{}}
	e.tcp4 = e.listen(t, "tcp4", "127.0.0.1:0")
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		e.tcp6 = e.listen(t, "tcp6", "[::1]:0")
	}
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.udp = e.receive(t, c)
	return e
}

func (e *ears) hear(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for word := range strings.FieldsSeq(text) {
		e.words[word] = true
	}
}

// listen hears every word that is said at an address. Whoever speaks first is heard first.
func (e *ears) listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.hear("connected-to-" + l.Addr().String())
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				e.hear(lines.Text())
				if lines.Text() == "\r" || lines.Text() == "" { // the end of what HTTP asks
					_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func (e *ears) receive(t *testing.T, c net.PacketConn) string {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			e.hear(string(buf[:n]))
		}
	}()
	return c.LocalAddr().String()
}

// listenIn listens at sockets in directories.
func (e *ears) listenIn(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		e.listen(t, "unix", filepath.Join(dir, "sock"))
		c, err := net.ListenPacket("unixgram", filepath.Join(dir, "dgram"))
		if err != nil {
			t.Fatal(err)
		}
		e.receive(t, c)
	}
}

// heard reports whether a word was heard. What was said before has been heard by then: the ears are asked
// for another word, which was said after it.
func (e *ears) heard(t *testing.T, word string) bool {
	t.Helper()
	e.listened(t, "tcp", e.tcp4, word)
	e.listened(t, "udp", e.udp, word)
	if e.tcp6 != "" {
		e.listened(t, "tcp", e.tcp6, word)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.words[word]
}

// heardIn is the same for sockets in directories.
func (e *ears) heardIn(t *testing.T, word string, dirs ...string) bool {
	t.Helper()
	for _, dir := range dirs {
		e.listened(t, "unix", filepath.Join(dir, "sock"), word)
		e.listened(t, "unixgram", filepath.Join(dir, "dgram"), word)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.words[word]
}

func (e *ears) listened(t *testing.T, network, address, word string) {
	t.Helper()
	after := "after-" + word + network + address
	if err := say(network, address, after); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.words[after] }) {
		t.Fatal("the ears are closed")
	}
}
