package main

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// listenerMain is the "listener" command of the test binary: "listener <kind> <name> [<new name> [<new directory>]]"
// binds a socket by that name, renames it, changes the directory, and runs until its standard input ends.
func listenerMain() {
	args := append(os.Args[1:], "", "")
	var err error
	if args[0] == "unixgram" {
		_, err = net.ListenUnixgram(args[0], &net.UnixAddr{Net: args[0], Name: args[1]})
	} else {
		_, err = net.Listen(args[0], args[1])
	}
	if err == nil && args[2] != "" && args[2] != args[1] {
		err = os.Rename(args[1], args[2])
	}
	if err == nil && args[3] != "" {
		err = os.Chdir(args[3])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening")
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // waits for the end
}

// startListener runs the listener command outside, in a directory, until the end of the test.
func (l *lab) startListener(dir string, args ...string) {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "listener"
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PWD="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // the outcome is of no interest
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "listening\n" {
		l.t.Fatalf("the listener %q printed %q", args, line)
	}
}

func TestExecCannotReachSocketsUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestExecCannotReachSockets")
}

// TestExecCannotReachSockets checks that a command behind walls can connect to no socket in the home directory,
// by whatever name a process outside bound it, and with any outputs. Without walls it can.
func TestExecCannotReachSockets(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "sockets-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := newLabIn(t, dir)
	l.copyEscapist()
	l.agency("worktree", "create", "wt")
	sandboxes := map[string]string{"without walls": l.agency("start", "wt", "--isolation", "none")}
	for _, outputs := range []string{"open", "none", "hosts:example.com"} {
		sandboxes[outputs] = l.agency("start", "wt", "--isolation", "os", "--outputs", outputs)
	}
	home := filepath.Join(l.dir, "home")
	type socket struct{ kind, dir, name string }
	sockets := map[string]socket{}
	for _, kind := range []string{"unix", "unixgram"} {
		for i, c := range []struct {
			what  string
			bound func(dir string) []string // name to bind, new name, new directory
			name  string                    // name of the file for a client in that directory
		}{
			{"an absolute path", func(dir string) []string { return []string{dir + "/s"} }, "s"},
			{"a name", func(string) []string { return []string{"s"} }, "s"},
			{"a path with a dot", func(string) []string { return []string{"./s"} }, "s"},
			{"a path with two dots", func(string) []string { return []string{"sub/../s"} }, "s"},
			{"a name with a newline", func(string) []string { return []string{"a\nb"} }, "a\nb"},
			{"a path with a newline", func(dir string) []string { return []string{dir + "/a\nb"} }, "a\nb"},
			{"a path with spaces", func(dir string) []string { return []string{dir + "/ a b "} }, " a b "},
			{"a path that is not UTF-8", func(dir string) []string { return []string{dir + "/\xff\x80"} }, "\xff\x80"},
			{"a name like an abstract one", func(string) []string { return []string{"./@s"} }, "./@s"},
			{"a path that was renamed", func(dir string) []string { return []string{dir + "/new", dir + "/s"} }, "s"},
			{"a name that was renamed", func(string) []string { return []string{"new", "s"} }, "s"},
			{"a name, before a change to a subdirectory", func(string) []string { return []string{"s", "", "sub"} }, "s"},
			{"a name, before a change to the root", func(string) []string { return []string{"s", "", "/"} }, "s"},
		} {
			dir := filepath.Join(home, kind+strconv.Itoa(i))
			if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			l.startListener(dir, append([]string{kind}, c.bound(dir)...)...)
			sockets[kind+" bound by "+c.what] = socket{kind, dir, c.name}
		}
	}
	for v, outputs := range slices.Sorted(maps.Keys(sandboxes)) {
		t.Run(outputs, func(t *testing.T) {
			l, id := l.withT(t), sandboxes[outputs]
			for i, what := range slices.Sorted(maps.Keys(sockets)) {
				if !isRotated(i, v) {
					continue
				}
				s := sockets[what]
				attempt := map[string]string{"unix": "near", "unixgram": "datagram"}[s.kind]
				reached := l.try(nil, "git-agency", "exec", id, "--", "escapist", attempt, s.dir, s.name, "word").code == 0
				if want := outputs == "without walls"; reached != want {
					t.Errorf("%s was reached: %t, want %t", what, reached, want)
				}
			}
		})
	}
}
