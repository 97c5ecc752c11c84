package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// requirePrograms skips a test if one of the programs is not installed, and returns the path of the first.
func requirePrograms(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if _, err := findProgram(name); err != nil {
			t.Skipf("skipped: %s is not installed", name)
		}
	}
	first, err := findProgram(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// findProgram looks for a program on PATH and in /usr/sbin, which the PATH of an ordinary user may lack.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// startSSHServer runs an sshd of the test's own user for each connection to a port of the loopback, and returns the port.
// It writes a key, a known_hosts and a configuration for ssh to .ssh of the lab's home; the host is called "allowed".
func startSSHServer(l *lab) (port int) {
	l.t.Helper()
	sshd := requirePrograms(l.t, "sshd", "ssh", "ssh-keygen", "ssh-agent", "ssh-add")
	dir, ssh := filepath.Join(l.dir, "sshd"), filepath.Join(l.dir, "home", ".ssh")
	for _, d := range []string{dir, ssh} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			l.t.Fatal(err)
		}
	}
	l.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "host"))
	l.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(ssh, "id"))
	l.write(filepath.Join(dir, "authorized_keys"), l.read(filepath.Join(ssh, "id.pub")))
	l.write(filepath.Join(dir, "config"), "HostKey "+dir+"/host\nAuthorizedKeysFile "+dir+"/authorized_keys\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n")
	if o := l.try(nil, sshd, "-t", "-f", filepath.Join(dir, "config")); o.code != 0 {
		l.t.Skipf("skipped: sshd does not start: %s", o.stderr)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSSH(l, conn.(*net.TCPConn), sshd, dir)
		}
	}()
	port = listener.Addr().(*net.TCPAddr).Port
	l.write(filepath.Join(ssh, "known_hosts"), "[127.0.0.1]:"+strconv.Itoa(port)+" "+l.read(filepath.Join(dir, "host.pub")))
	l.write(filepath.Join(ssh, "config"), "Host allowed\n\tHostName 127.0.0.1\n\tPort "+strconv.Itoa(port)+"\n\tUserKnownHostsFile "+ssh+"/known_hosts\n\tIdentityFile "+ssh+"/id\n\tBatchMode yes\n")
	if o := l.try(nil, "ssh", "-F", filepath.Join(ssh, "config"), "allowed", "echo outside"); o.stdout != "outside\n" {
		l.t.Skipf("skipped: ssh does not work outside the walls: %s%s", o.stderr, l.read(filepath.Join(dir, "log")))
	}
	return port
}

// serveSSH serves one connection with an sshd in the mode for inetd, which needs no port of its own.
func serveSSH(l *lab, conn *net.TCPConn, sshd, dir string) {
	f, err := conn.File()
	_ = conn.Close()
	if err != nil {
		return
	}
	defer f.Close()
	cmd := exec.CommandContext(l.t.Context(), sshd, "-i", "-f", filepath.Join(dir, "config"), "-E", filepath.Join(dir, "log"))
	cmd.Stdin, cmd.Stdout = f, f
	_ = cmd.Run() // ssh reports a failure
}

// startSSHAgent runs an agent that knows the key, and returns its socket.
func startSSHAgent(l *lab, key string) (socket string) {
	l.t.Helper()
	socket = filepath.Join(l.dir, "agent")
	cmd := exec.CommandContext(l.t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if !waitForFile(socket) {
		l.t.Fatal("ssh-agent does not listen")
	}
	if o := l.try([]string{"SSH_AUTH_SOCK=" + socket}, "ssh-add", "-q", key); o.code != 0 {
		l.t.Fatal(o.stderr)
	}
	return socket
}

// TestSSHToAllowedHost runs ssh and git over ssh behind walls, with the grants that the manual names.
func TestSSHToAllowedHost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := strconv.Itoa(startSSHServer(l))
	ssh := filepath.Join(l.dir, "home", ".ssh")
	socket := startSSHAgent(l, filepath.Join(ssh, "id"))
	upstream := filepath.Join(l.dir, "up.git")
	l.git("clone", "-q", "--bare", ".", upstream)
	l.git("config", "--global", "core.sshCommand", "ssh -F "+ssh+"/config")
	l.agency("worktree", "create", "wt")
	const works = "ssh works\n"
	connect := []string{"ssh", "-F", ssh + "/config", "allowed", "echo ssh works"}
	inside := func(id string, argv ...string) outcome {
		t.Helper()
		return l.try([]string{"SSH_AUTH_SOCK=" + socket}, append([]string{"git-agency", "exec", id, "--"}, argv...)...)
	}

	allowed, none := l.agency("start", "wt", "--outputs", "hosts:127.0.0.1:"+port), l.agency("start", "wt", "--outputs", "none")
	if o := inside(allowed, connect...); o.code == 0 || o.stdout != "" {
		t.Errorf("without grants: %+v", o)
	}

	// The key itself, and a host that is allowed later.
	if o := inside(none, connect...); o.code == 0 {
		t.Errorf("with no host allowed: %+v", o)
	}
	l.agency("allow", none, "--outputs", "hosts:127.0.0.1:"+port, "--read", ssh)
	if o := inside(none, connect...); o.stdout != works {
		t.Errorf("after allow: %+v", o)
	}

	// The agent, without the key.
	for _, path := range []string{ssh + "/config", ssh + "/known_hosts", socket} {
		l.git("config", "--global", "--add", "agency.sandbox.read", path)
	}
	l.git("config", "--global", "agency.sandbox.env", "SSH_AUTH_SOCK")
	if o := inside(allowed, connect...); o.stdout != works {
		t.Errorf("with the agent: %+v", o)
	}
	if o := inside(allowed, "cat", ssh+"/id"); o.code == 0 {
		t.Errorf("the key can be read: %+v", o)
	}
	if o := inside(allowed, "git", "ls-remote", "ssh://allowed"+upstream, "HEAD"); !strings.HasPrefix(o.stdout, l.git("rev-parse", "HEAD")) {
		t.Errorf("git ls-remote: %+v", o)
	}

	t.Run("through the proxy", func(t *testing.T) {
		requirePrograms(t, "nc")
		if o := l.withT(t).try(nil, "sh", "-c", "nc -h 2>&1 | grep -e -X"); o.code != 0 {
			t.Skip("skipped: this nc knows no proxies; that of OpenBSD does")
		}
		any := l.agency("start", "wt", "--outputs", "hosts:127.0.0.1:*")
		if o := inside(any, connect...); o.code == 0 {
			t.Errorf("without a ProxyCommand: %+v", o)
		}
		proxied := append([]string{"ssh", "-o", "ProxyCommand=nc -X connect -x ${https_proxy#http://} %h %p"}, connect[1:]...)
		if o := inside(any, proxied...); o.stdout != works {
			t.Errorf("with a ProxyCommand: %+v", o)
		}
	})
}
