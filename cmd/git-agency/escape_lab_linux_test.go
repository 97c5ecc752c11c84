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

// escapeAttempt is one attempt to escape from a sandbox. It runs twice: behind walls, where it must have no
// effect, and as a control without walls, where the same checks must detect its effect.
type escapeAttempt struct {
	name   string
	script string   // for sh; if it has $T, it runs for each of escapeRun.targets
	flags  []string // further flags of exec, behind walls

	outputs          string                      // --outputs of the sandbox; empty: open
	toolEnv          []string                    // environment of the tool itself
	inheritedFiles   func(s *escapeRun) []string // files that the tool inherits open, from descriptor 3 on
	prepare          func(s *escapeRun) []string // sets up the host; returns variables for the script
	succeeded        func(s *escapeRun) string   // returns the effect, or ""; changed targets are always detected
	unchangedTargets func(s *escapeRun) []string // targets that do not change even without walls
	control          controlKind                 // kind of the control
	rootOnlyReason   string                      // why only root can do it; empty: every user can
	noControlReason  string                      // why there is no control
}

// controlKind is the environment without walls in which an attempt must succeed.
type controlKind int

const (
	controlSandbox    controlKind = iota // a sandbox with --isolation none
	controlShell                         // no sandbox at all
	controlNamespaces                    // a shell in a user and a mount namespace, without walls
	controlNone                          // none; the attempt says why
)

// escapeLab is a lab with sandboxes, a home directory with secrets, and listening sockets on the host.
type escapeLab struct {
	*lab
	integration, otherTree string            // integration tree; tree of another sandbox
	sandboxIDs             map[string]string // sandbox ids by --outputs; "without": the one without walls
	sandboxTrees           map[string]string
	listeners              *listenerSet
}

const fakeSecret = "hunter2-was-here"

// secretFiles are common paths of secrets below the home directory.
var secretFiles = []string{
	".ssh/id_ed25519", ".netrc", ".aws/credentials", ".git-credentials", ".gnupg/secring", ".config/gh/hosts.yml", ".docker/config.json",
	".kube/config", ".npmrc", ".pypirc", ".bash_history", ".config/gcloud/credentials.db",
}

func newEscapeLab(t *testing.T, outputs ...string) *escapeLab {
	t.Helper()
	// Paths of sockets must be short, and t.TempDir is too long when a test runs itself again.
	dir, err := os.MkdirTemp("/tmp", "e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &escapeLab{lab: newLabIn(t, dir), sandboxIDs: map[string]string{}, sandboxTrees: map[string]string{}, listeners: newListenerSet(t)}
	for _, name := range secretFiles {
		g.write(filepath.Join(g.dir, "home", name), fakeSecret+"\n")
	}
	g.copyEscapist()
	g.integration = g.agency("worktree", "create", "wt")
	g.otherTree = g.agency("path", g.agency("start", "wt"))
	g.write(filepath.Join(g.otherTree, "secret"), fakeSecret+"\n")
	g.addSandbox("without", "--isolation", "none")
	for _, o := range outputs {
		g.addSandbox(o, "--isolation", "os", "--outputs", o)
	}
	return g
}

// copyEscapist copies the escapist command into the bin directory. A symlink to the test binary would not do:
// sandboxes do not see its target below /tmp.
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

func (g *escapeLab) addSandbox(name string, flags ...string) {
	g.t.Helper()
	g.sandboxIDs[name] = g.agency(append([]string{"start", "wt"}, flags...)...)
	g.sandboxTrees[name] = g.agency("path", g.sandboxIDs[name])
}

// escapeRun is one run of an attempt, behind walls or as a control.
type escapeRun struct {
	*escapeLab
	t           *testing.T
	attempt     escapeAttempt
	behindWalls bool
	key         string // unique per run
	id          string
	tree        string
	targets     map[string]string // directories that the attempt may try to change, by zone
	result      outcome
	before      string // state recorded by prepare for succeeded
}

// token returns a word that no other run sends.
func (s *escapeRun) token() string { return fmt.Sprintf("word-%d-%s", os.Getpid(), s.key) }

// targetPath returns a path below the target in a zone.
func (s *escapeRun) targetPath(zone string, names ...string) string {
	return filepath.Join(append([]string{s.targets[zone]}, names...)...)
}

// runAttempt runs the attempt and returns its effects and the outcome of the script.
func (g *escapeLab) runAttempt(t *testing.T, a escapeAttempt, key string, walls bool) (came []string, out outcome) {
	t.Helper()
	l := *g.lab
	l.t = t
	mine := *g
	mine.lab = &l
	s := &escapeRun{escapeLab: &mine, t: t, attempt: a, behindWalls: walls, key: key}
	s.tree, s.id = g.sandboxTrees["without"], g.sandboxIDs["without"]
	if walls {
		outputs := a.outputs
		if outputs == "" {
			outputs = "open"
		}
		s.tree, s.id = g.sandboxTrees[outputs], g.sandboxIDs[outputs]
	}
	s.targets = map[string]string{
		"home": filepath.Join(g.dir, "home", "target-"+key), "the integration tree": filepath.Join(g.integration, "target-"+key),
		"the repository": filepath.Join(g.repo, "target-"+key), "the git directory": filepath.Join(g.repo, ".git", "target-"+key),
		"another sandbox": filepath.Join(g.otherTree, "target-"+key), "the data directory": filepath.Join(g.data, "target-"+key),
		"somewhere else": filepath.Join(g.dir, "elsewhere", "target-"+key),
	}
	env := []string{
		"HOMEDIR=" + filepath.Join(g.dir, "home"), "REPO=" + g.repo, "WT=" + g.integration, "OTHER=" + g.otherTree, "DATA=" + g.data, "TREE=" + s.tree, "LAB=" + g.dir,
		"WORD=" + s.token(), "KEY=" + key, "ESCAPIST=" + filepath.Join(g.bin, "escapist"),
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
	s.result = s.runScript(escapePrelude+script, append(env, "TARGETS="+strings.Join(zones, " "), "PIDNS="+pidNamespace(t)))

	for _, zone := range slices.Sorted(maps.Keys(s.targets)) {
		changed := fingerprint(t, s.targets[zone]) != before[zone]
		switch {
		case changed && walls:
			came = append(came, "the attempt changed files in "+zone+":\n"+dumpDiff(before[zone], fingerprint(t, s.targets[zone])))
		case changed:
			came = append(came, "the attempt changed files in "+zone)
		case loops && !walls && a.control != controlNone && a.succeeded == nil && (a.unchangedTargets == nil || !slices.Contains(a.unchangedTargets(s), zone)):
			t.Errorf("without walls, nothing changed in %s: the attempt has no effect\n%s%s", zone, s.result.stdout, s.result.stderr)
		}
	}
	if strings.Contains(s.result.stdout, "not apart\n") {
		came = append(came, "the attempt runs in the PID namespace of the host")
	}
	if a.succeeded != nil {
		if what := a.succeeded(s); what != "" {
			came = append(came, what)
		}
	}
	return came, s.result
}

// escapePrelude defines apart, which ends the script in the PID namespace of the host: without walls, some
// attempts would harm the machine.
const escapePrelude = `apart() { [ "$(readlink /proc/self/ns/pid)" != "$PIDNS" ] || { echo not apart; exit; }; }
`

func pidNamespace(t *testing.T) string {
	t.Helper()
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// escapeTimeout bounds one attempt; exec --timeout ends it well before.
const escapeTimeout = 40 * time.Second

// runScript runs a script behind walls or in the environment of the control.
func (s *escapeRun) runScript(script string, env []string) outcome {
	s.t.Helper()
	var argv []string
	if s.behindWalls || s.attempt.control == controlSandbox {
		argv = []string{filepath.Join(s.bin, "git-agency"), "exec", s.id, "--timeout", "20s", "--grace", "1s"}
		if s.behindWalls {
			argv = append(argv, s.attempt.flags...)
		}
		for _, kv := range env {
			argv = append(argv, "--env", kv)
		}
		argv = append(argv, "--", "sh", "-c", script)
	} else {
		argv = []string{"sh", "-c", script}
		if s.attempt.control == controlNamespaces {
			argv = append([]string{"unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"}, argv...)
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), escapeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // a process that is left may hold the pipes open
	cmd.Dir, cmd.Env = s.repo, slices.Concat(s.env, s.attempt.toolEnv)
	if argv[0] == "sh" || argv[0] == "unshare" {
		cmd.Dir, cmd.Env = s.tree, append(cmd.Env, env...)
	}
	if s.attempt.inheritedFiles != nil {
		for _, name := range s.attempt.inheritedFiles(s) {
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
		s.t.Fatalf("%q did not end within %v", argv, escapeTimeout)
	}
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if s.behindWalls && o.code == 125 {
		s.t.Fatalf("the attempt did not start: %s", o.stderr)
	}
	return o
}

// printsText returns a check by which an attempt succeeded if it printed text.
func printsText(text string) func(*escapeRun) string {
	return func(s *escapeRun) string {
		if strings.Contains(s.result.stdout, text) {
			return fmt.Sprintf("the attempt printed %q", text)
		}
		return ""
	}
}

// printsSecret reports success if the attempt printed fakeSecret.
func printsSecret(s *escapeRun) string { return printsText(fakeSecret)(s) }

// receivedOutside reports success if a listener on the host received the token of the run.
func receivedOutside(s *escapeRun) string {
	if s.listeners.received(s.t, s.token()) {
		return "a listener on the host received the token"
	}
	return ""
}

// fingerprint lists a directory and all files in it with mode, owner, link count, mtime, attributes and content.
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

// fileHandleEnv returns the variable HANDLE with the type and bytes of a file's handle for open_by_handle_at.
func fileHandleEnv(t *testing.T, path string) []string {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"HANDLE=" + strconv.Itoa(int(h.Type())) + " " + hex.EncodeToString(h.Bytes())}
}

// listenerSet is a set of listening sockets on the host that record the words they receive.
type listenerSet struct {
	mu     sync.Mutex
	tokens map[string]bool
	tcp4   string // addresses
	tcp6   string // empty without IPv6
	udp    string
}

func newListenerSet(t *testing.T) *listenerSet {
	t.Helper()
	e := &listenerSet{tokens: map[string]bool{}}
	e.tcp4 = e.listen(t, "tcp4", "127.0.0.1:0")
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		e.tcp6 = e.listen(t, "tcp6", "[::1]:0")
	}
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.udp = e.receivePackets(t, c)
	return e
}

func (e *listenerSet) record(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for word := range strings.FieldsSeq(text) {
		e.tokens[word] = true
	}
}

// listen records every word received at an address. It serves connections one after another, in order.
func (e *listenerSet) listen(t *testing.T, network, address string) string {
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
			e.record("connected-to-" + l.Addr().String())
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				e.record(lines.Text())
				if lines.Text() == "\r" || lines.Text() == "" { // end of an HTTP request
					_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func (e *listenerSet) receivePackets(t *testing.T, c net.PacketConn) string {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			e.record(string(buf[:n]))
		}
	}()
	return c.LocalAddr().String()
}

// listenInDirs listens on a stream and a datagram socket in each directory.
func (e *listenerSet) listenInDirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		e.listen(t, "unix", filepath.Join(dir, "sock"))
		c, err := net.ListenPacket("unixgram", filepath.Join(dir, "dgram"))
		if err != nil {
			t.Fatal(err)
		}
		e.receivePackets(t, c)
	}
}

// received reports whether a word was received. It first drains the listeners, so that every word sent before
// the call is recorded.
func (e *listenerSet) received(t *testing.T, word string) bool {
	t.Helper()
	e.drain(t, "tcp", e.tcp4, word)
	e.drain(t, "udp", e.udp, word)
	if e.tcp6 != "" {
		e.drain(t, "tcp", e.tcp6, word)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokens[word]
}

// receivedInDirs is received for the sockets of listenInDirs.
func (e *listenerSet) receivedInDirs(t *testing.T, word string, dirs ...string) bool {
	t.Helper()
	for _, dir := range dirs {
		e.drain(t, "unix", filepath.Join(dir, "sock"), word)
		e.drain(t, "unixgram", filepath.Join(dir, "dgram"), word)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokens[word]
}

// drain sends another word to an address and waits until it is recorded.
func (e *listenerSet) drain(t *testing.T, network, address, word string) {
	t.Helper()
	after := "after-" + word + network + address
	if err := sendLine(network, address, after); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.tokens[after] }) {
		t.Fatal("the listener does not receive")
	}
}
