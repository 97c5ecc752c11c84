package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The tables of escape attempts cover the promises of SECURITY in the manual: none may have an effect behind
// walls. Add a line for every new way to escape.

func TestSandboxEscapeToFiles(t *testing.T) { testEscapes(t, fileAttempts) }

func TestSandboxEscapeToFilesUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestSandboxEscapeToFiles")
}

func TestSandboxEscapeToProcessesAndDevices(t *testing.T) { testEscapes(t, processAttempts) }

func TestSandboxEscapeToProcessesAndDevicesUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestSandboxEscapeToProcessesAndDevices")
}

func TestSandboxEscapeToNetwork(t *testing.T) { testEscapes(t, networkAttempts) }

func TestSandboxEscapeToNetworkUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestSandboxEscapeToNetwork")
}

func TestSandboxEscapeBySocketsAndVariables(t *testing.T) { testEscapes(t, socketAttempts) }

func TestSandboxEscapeBySocketsAndVariablesUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestSandboxEscapeBySocketsAndVariables")
}

// rerunUnprivileged runs a test again as an ordinary user. It skips if the tests already run as one.
func rerunUnprivileged(t *testing.T, test string) {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip(test + " runs as an ordinary user already")
	}
	skipRerunIfShort(t)
	rerunAsNobody(t, test)
}

// testEscapes runs attempts in a new escapeLab with a sandbox for each of their outputs.
func testEscapes(t *testing.T, attempts []escapeAttempt) {
	t.Helper()
	t.Parallel()
	outputs := map[string]bool{"open": true}
	for _, a := range attempts {
		if a.outputs != "" {
			outputs[a.outputs] = true
		}
	}
	var list []string
	for o := range outputs {
		list = append(list, o)
	}
	newEscapeLab(t, list...).runAll(attempts)
}

// runAll runs each attempt behind walls and then, if it has one, its control; with -short the controls that isSelected
// selects.
func (g *escapeLab) runAll(attempts []escapeAttempt) {
	g.t.Helper()
	names := map[string]bool{}
	for i, a := range attempts {
		if names[a.name] {
			g.t.Errorf("two attempts have the name %q", a.name)
		}
		names[a.name] = true
		g.t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			came, o := g.runAttempt(t, a, fmt.Sprintf("%d-walls", i), true)
			for _, what := range came {
				t.Errorf("behind walls %s\n%s%s", what, o.stdout, o.stderr)
			}
			switch {
			case a.control == controlNone && a.noControlReason == "":
				t.Error("the attempt has no control and gives no reason")
			case a.control == controlNone:
				return
			case a.rootOnlyReason != "" && os.Geteuid() != 0:
				return
			case !isSelected(i, len(attempts)):
				return
			}
			if came, o := g.runAttempt(t, a, fmt.Sprintf("%d-without", i), false); len(came) == 0 {
				t.Errorf("without walls, the attempt had no effect either: the script or the checks are wrong\n%s%s", o.stdout, o.stderr)
			}
		})
	}
}

const (
	rootOnlyChown = "only root can give files away"
	rootOnlyMknod = "only root can make devices"
	rootOnlyOpen  = "only root can open it"
)

var fileAttempts = []escapeAttempt{
	// By path.
	{name: "a file is written", script: `echo owned >$T/victim`},
	{name: "a file is appended to", script: `echo owned >>$T/victim`},
	{name: "a file is truncated", script: `: >$T/victim`},
	{name: "a file is written through memory", script: `escapist mmap %/victim`},
	{name: "a file is created", script: `echo owned >$T/new`},
	{name: "a directory is created", script: `mkdir $T/new`},
	{name: "a file is renamed", script: `mv $T/victim $T/moved`},
	{name: "a file is replaced by rename", script: `echo owned >mine-$KEY; mv -f mine-$KEY $T/victim`},
	{name: "two files are exchanged", script: `escapist exchange %/victim %/dir/inner`},
	{name: "a file is removed", script: `rm -f $T/victim`},
	{name: "a directory is removed with all that is in it", script: `rm -rf $T/dir`},
	{name: "a file with a newline in its name is created", script: `touch "$T/new
line"`},
	{name: "the permissions of a file are changed", script: `chmod 0777 $T/victim`},
	{name: "the permissions of a file are changed through a read-only descriptor", script: `escapist fchmod %/victim`},
	{name: "a file is changed through an O_PATH descriptor", script: `escapist path %/victim`},
	{name: "the owner of a file is changed", script: `chown 1:1 $T/victim`, control: controlShell, rootOnlyReason: rootOnlyChown},
	{name: "the times of a file are changed", script: `touch -d 2001-01-01 $T/victim`},
	{name: "an extended attribute is set", script: `escapist setxattr %/victim user.owned 00`},
	{name: "an O_TMPFILE file is linked", script: `escapist tmpfile %/ named`},

	// Through links.
	{name: "a symlink in the sandbox to a file", script: `ln -s $T/victim link; echo owned >link; rm link`},
	{name: "a symlink in the sandbox to a directory", script: `ln -s $T link; echo owned >link/victim; rm link`},
	{name: "a file is hard-linked into the sandbox", script: `ln $T/victim hard || cp -l $T/victim hard; chmod 600 hard; echo owned >hard; rm -f hard`},
	{name: "a path with .. out of the sandbox", script: `echo owned >../../../../../../../../../../../../../../../..$T/victim`},

	// Through /proc.
	{name: "a path below /proc/self/root", script: `echo owned >/proc/self/root$T/victim`},
	{name: "a path below the root of any process", script: `for p in /proc/[0-9]*/root /proc/[0-9]*/task/*/root; do echo owned >$p$T/victim; done`},
	{name: "a path below the working directory of any process", script: `for p in /proc/[0-9]*/cwd; do echo owned >$p/../../../../../../../../../../../../../../../..$T/victim; done`},
	{
		// Opens only target files: as root, without walls, the descriptors of every process are accessible.
		name: "a path below the descriptors of any process", script: `escapist reopen $KEY`,
		inheritedFiles: func(s *escapeRun) []string {
			return []string{s.targetPath("home", "victim"), s.targetPath("somewhere else")}
		},
		control: controlShell,
	},
	{
		name: "open descriptors of the tool are inherited", script: `escapist inherited 3 200`,
		inheritedFiles: func(s *escapeRun) []string {
			return []string{s.targetPath("home", "victim"), s.targetPath("the integration tree"), s.targetPath("the git directory")}
		},
		control: controlShell,
	},

	// By mounts and namespaces.
	{name: "a target is bind-mounted into the sandbox", script: `mkdir -p mnt; escapist bind $T mnt; echo owned >mnt/victim`, control: controlNamespaces},
	{name: "all mounts are remounted writable", script: `escapist remount; echo owned >$T/victim`, control: controlNamespaces},
	{name: "a new user namespace makes the agent root", script: `unshare -Ur sh -c "echo owned >$T/victim"`},
	{name: "mounts are remounted writable in a new mount namespace", script: `unshare -Urm sh -c "mount -o remount,bind,rw / ; escapist remount; echo owned >$T/victim"`, control: controlShell},
	{name: "the root is changed by chroot", script: `escapist chroot /proc/1/root $T/victim || escapist chroot / $T/victim`, control: controlNamespaces},
	{name: "the root is changed by pivot_root", script: `mkdir -p root; escapist pivot root`, succeeded: printsText("pivoted"), control: controlNamespaces},
	{name: "the namespaces of process 1 are entered", script: `apart; escapist enter 1; escapist enter $PPID`, succeeded: printsText("entered"), control: controlNone, noControlReason: "outside it is the machine's own process 1"},
	{
		name: "a file is opened by its handle", script: `escapist handle / $HANDLE || escapist handle . $HANDLE || escapist handle $LAB $HANDLE`,
		prepare: func(s *escapeRun) []string { return fileHandleEnv(s.t, s.targetPath("the repository", "victim")) },
		control: controlShell, rootOnlyReason: "only root can open what a handle names",
	},

	// The tree itself and its .git file.
	{
		name: "the sandbox tree is replaced", script: `cd .. && mv tree moved && mkdir tree && cp -r moved/. tree; escapist exchange "$TREE" "$WT"`,
		prepare:   func(s *escapeRun) []string { return []string{"INODE=" + inodeID(s.t, s.tree)} },
		succeeded: func(s *escapeRun) string { return hasMovedTree(s) },
		control:   controlNone, noControlReason: "it would leave no sandbox for the others",
	},
	{
		name: "the .git of the sandbox is replaced", script: `echo gitdir: /nowhere >x; mv -f x .git; rm -f .git; mv .git .tig; ln -sf x .git; echo y >>.git; chmod 777 .git; escapist exchange x .git; touch -d 2001-01-01 .git`,
		prepare: func(s *escapeRun) []string { s.before = fingerprint(s.t, filepath.Join(s.tree, ".git")); return nil },
		succeeded: func(s *escapeRun) string {
			name := filepath.Join(s.tree, ".git")
			now := fingerprint(s.t, name)
			if now == s.before {
				return ""
			}
			if err := os.RemoveAll(name); err != nil {
				s.t.Fatal(err)
			}
			s.write(name, "gitdir: "+filepath.Join(s.repo, ".git", "worktrees", s.id)+"\n")
			return "the .git file changed:\n" + dumpDiff(s.before, now)
		},
		control: controlShell,
	},
	{
		name: "a file is mounted over the .git of the sandbox", script: `rm -f x; echo over >x; escapist bind x .git; cat .git`,
		succeeded: printsText("over\n"),
		control:   controlNamespaces,
	},

	// Files left in the tree.
	{
		name: "a setuid program is left", script: `cp /bin/sh suid; chmod 4755 suid; chmod u+s suid; install -m 4755 /bin/sh suid2; cp -p "$(command -v su)" suid3; perl -e 'chmod 04755, "suid"; sysopen(F, "suid4", 0101, 04755)'; umask 0; cp -a /usr/bin/passwd suid5`,
		succeeded: func(s *escapeRun) string {
			defer removeMatches(s, "suid*")
			return findFile(s, func(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeSetuid != 0 })
		},
	},
	{
		name: "a program with file capabilities is left", script: `cp /bin/true cap; escapist setxattr cap security.capability 0100000200200000000000000000000000000000`,
		succeeded: func(s *escapeRun) string {
			defer removeMatches(s, "cap")
			if n, err := unix.Lgetxattr(filepath.Join(s.tree, "cap"), "security.capability", nil); err == nil && n > 0 {
				return "the file has capabilities"
			}
			return ""
		},
		control: controlShell, rootOnlyReason: rootOnlyChown,
	},
	{
		name: "a device is left", script: `mknod null c 1 3; mknod -m 666 block b 7 0`,
		succeeded: func(s *escapeRun) string {
			defer removeMatches(s, "null", "block")
			return findFile(s, func(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeDevice != 0 })
		},
		control: controlShell, rootOnlyReason: rootOnlyMknod,
	},

	// By keeping others from writing.
	{
		name: "a lease stops writers outside", script: `echo x >"$TREE/leased"; escapist lease "$TREE/leased"; rm -f "$TREE/leased"`,
		succeeded: func(s *escapeRun) string {
			if strings.Contains(s.result.stdout, "writers wait") {
				return "the command got a lease"
			}
			return ""
		},
	},

	// Files that are hidden from the sandbox.
	{name: "secrets of the home are read", script: `cd "$HOMEDIR" && cat .ssh/id_ed25519 .netrc .aws/credentials .git-credentials .gnupg/* .config/gh/* .docker/config.json .kube/config .npmrc .pypirc .bash_history .config/gcloud/*`, succeeded: printsSecret},
	{name: "secrets are searched for", script: `grep -rsh hunter2 "$HOMEDIR" "$LAB" "$DATA" "$OTHER"`, succeeded: printsSecret},
	{name: "secrets are read after the mounts over them are removed", script: `escapist unmount "$LAB"; escapist unmount /tmp; grep -rsh hunter2 "$HOMEDIR/.ssh" "$OTHER"`, succeeded: printsSecret, control: controlNamespaces},
	{name: "secrets are read through the root of any process", script: `for p in /proc/[0-9]*/root /proc/[0-9]*/cwd; do cat "$p$HOMEDIR/.ssh/id_ed25519" "$p$OTHER/secret"; done`, succeeded: printsSecret},
	{name: "a secret is read from its directory as working directory", script: `cd "$HOMEDIR/.ssh" && cat id_ed25519; exec 9<"$HOMEDIR/.ssh" && cat <&9; cat /proc/self/fd/9/id_ed25519`, succeeded: printsSecret},
	{name: "another sandbox is read", script: `cat "$OTHER/secret"`, succeeded: printsSecret},
	{
		name: "the overlay's upper directory is written", script: `mkdir -p "$UPPER" && echo owned >"$UPPER/planted"; find "$LAB" -name upper 2>/dev/null`,
		prepare: func(s *escapeRun) []string {
			upper := filepath.Join(filepath.Dir(s.tree), "walls", "git", "upper")
			return []string{"UPPER=" + upper}
		},
		succeeded: func(s *escapeRun) string {
			upper := filepath.Join(filepath.Dir(s.tree), "walls", "git", "upper")
			if exists(filepath.Join(upper, "planted")) || strings.Contains(s.result.stdout, upper) {
				return "the upper directory is reachable"
			}
			return ""
		},
	},
}

// inodeID returns the device and inode number of a file.
func inodeID(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Dev, " ", st.Ino)
}

// hasMovedTree reports success if a directory "moved" exists beside the sandbox tree.
func hasMovedTree(s *escapeRun) string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.tree))
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if e.Name() == "moved" {
			return "the tree was moved"
		}
	}
	return ""
}

// findFile returns a description of a file in the tree for which bad holds, or "".
func findFile(s *escapeRun, bad func(fs.FileInfo) bool) string {
	s.t.Helper()
	what := ""
	err := filepath.WalkDir(s.tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && bad(fi) {
			what = fmt.Sprintf("%s has mode %s", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
	return what
}

// removeMatches removes the files of the tree that match the patterns.
func removeMatches(s *escapeRun, patterns ...string) {
	s.t.Helper()
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(s.tree, p))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// startVictim starts a process on the host and returns its pid and a mark in its command line as variables.
func startVictim(s *escapeRun) []string {
	s.t.Helper()
	mark := fmt.Sprintf("1000.%d%s", os.Getpid(), strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, s.key))
	cmd := exec.CommandContext(s.t.Context(), "sleep", mark)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s.before = fmt.Sprint(cmd.Process.Pid)
	return []string{"VICTIM=" + s.before, "MARK=" + mark}
}

// victimDied reports success if the victim is dead or has a pending SIGKILL: it may not have run since.
func victimDied(s *escapeRun) string {
	status, err := os.ReadFile("/proc/" + s.before + "/status")
	if err != nil || deadStatus.Match(status) {
		return "the victim process is dead"
	}
	return ""
}

var deadStatus = regexp.MustCompile(`(?m)^(State:\t[ZX]|S(ig|hd)Pnd:\t[0-9a-f]*[13579bdf][0-9a-f]{2}$)`) // the ninth bit of a pending mask is SIGKILL

// opensForWriting is an attempt to open a file of the kernel for writing.
func opensForWriting(path string) escapeAttempt {
	return escapeAttempt{
		name: path + " is opened for writing", script: "escapist open " + path,
		succeeded: printsText("opened"), control: controlShell, rootOnlyReason: rootOnlyOpen,
	}
}

// callsKernel is an attempt to use a system call that walls refuse.
func callsKernel(call string) escapeAttempt {
	return escapeAttempt{
		name: call + " is called", script: "escapist asks " + call,
		succeeded: printsText("answered"), control: controlShell, rootOnlyReason: "some kernels refuse the call to an ordinary user",
	}
}

var sysrqAttempt = escapeAttempt{
	name: "the sysrq trigger is opened", script: "escapist open /proc/sysrq-trigger",
	succeeded: printsText("opened"), control: controlNone, noControlReason: "not every machine has it",
}

var processAttempts = []escapeAttempt{
	{name: "a process outside is killed", script: `escapist kill $VICTIM; kill -9 $VICTIM`, prepare: startVictim, succeeded: victimDied, control: controlShell},
	{
		name: "all processes are killed", script: `apart; perl -e 'kill 9, -1'`,
		prepare: startVictim, succeeded: victimDied, control: controlNone, noControlReason: "outside it would kill the processes of the machine",
	},
	{
		name: "the supervisor is killed", script: `apart; kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; escapist kill 1; ls -d /proc/1 >/dev/null && echo it lives`,
		succeeded: func(s *escapeRun) string {
			if !strings.Contains(s.result.stdout, "it lives") {
				return "the supervisor is dead: " + s.result.stderr
			}
			return ""
		}, control: controlNone, noControlReason: "outside it would be the machine's own process 1",
	},
	{name: "a process outside is debugged", script: `escapist ptrace $VICTIM`, prepare: startVictim, succeeded: printsText("seized"), control: controlShell},
	{name: "the supervisor is debugged", script: `apart; escapist ptrace 1`, succeeded: printsText("seized"), control: controlNone, noControlReason: "outside it would be the machine's own process 1; the attempt on a process outside is the control"},
	{name: "the memory of a process outside is read", script: `escapist memory $VICTIM`, prepare: startVictim, succeeded: func(s *escapeRun) string { return printsText("opened")(s) + printsText("looked")(s) }, control: controlShell},
	{name: "the memory of the supervisor is read", script: `apart; escapist memory 1; escapist memory $PPID`, succeeded: func(s *escapeRun) string { return printsText("opened")(s) + printsText("looked")(s) }, control: controlNone, noControlReason: "there is no supervisor outside; the attempt on a process outside is the control"},
	{name: "descriptors of the supervisor are taken", script: `apart; for n in 0 3 5 7 9; do escapist fdof 1 $n; escapist fdof $PPID $n; done`, succeeded: printsText("got"), control: controlNone, noControlReason: "there is no supervisor outside"},
	{name: "a process outside is seen", script: `escapist sees`, prepare: startVictim, succeeded: printsText("found"), control: controlShell},
	{
		name: "a daemon survives exec", script: `perl -MPOSIX -e 'exit if fork; setsid; exit if fork; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null"); $SIG{$_} = "IGNORE" for qw(HUP INT TERM QUIT); exec "sleep", $ENV{MARK}'; sleep 0.1`,
		prepare: func(s *escapeRun) []string {
			mark := fmt.Sprintf("30.%d0%d", os.Getpid(), len(s.key))
			s.before = mark
			return []string{"MARK=" + mark}
		},
		succeeded: func(s *escapeRun) string {
			if !s.behindWalls {
				if !waitUntil(func() bool { return len(processesWithMark(s.t, s.before)) > 0 }) {
					return ""
				}
			}
			if left := processesWithMark(s.t, s.before); len(left) > 0 {
				return fmt.Sprintf("the daemon still runs: %q", left)
			}
			return ""
		},
		control: controlShell,
	},
	{
		name: "the limit of processes is exceeded", flags: []string{"--processes", "40", "--best-effort-limits"},
		script: `perl -e 'my $n = 0; for (1 .. 300) { my $p = fork; last unless defined $p; if (!$p) { sleep 20; exit } $n++; push @p, $p } print "started $n\n"; kill 9, @p'`,
		succeeded: func(s *escapeRun) string {
			if os.Geteuid() == 0 && s.behindWalls { // root is exempt from RLIMIT_NPROC; only cgroups would count
				return ""
			}
			return printsText("started 300")(s)
		},
	},
	{
		name: "the file size limit is raised", flags: []string{"--file-size", "1m"}, script: `escapist raise big-$KEY`,
		succeeded: func(s *escapeRun) string {
			defer removeMatches(s, "big-*")
			if fi, err := os.Stat(filepath.Join(s.tree, "big-"+s.key)); err == nil && fi.Size() > 1<<20 {
				return fmt.Sprintf("a file of %d bytes was written", fi.Size())
			}
			return ""
		},
	},
	{name: "the user id is changed", script: `escapist become 1`, succeeded: printsText("became"), control: controlShell, rootOnlyReason: "only root can"},
	{name: "a setuid program is run", script: `perl -e 'print "uid $> of $<\n"'; for p in $(command -v su) $(command -v mount) $(command -v passwd); do test -u $p && grep -i -h nonewprivs /proc/self/status; done`, succeeded: printsText("NoNewPrivs:\t0"), control: controlShell},

	// Files and devices of the whole machine.
	opensForWriting("/proc/sys/kernel/core_pattern"), sysrqAttempt, opensForWriting("/proc/sys/kernel/hostname"), opensForWriting("/proc/sys/vm/drop_caches"),
	opensForWriting("/proc/sys/fs/protected_hardlinks"), opensForWriting("/proc/irq/default_smp_affinity"),
	{name: "/proc/sys is remounted writable", script: `mount -o remount,bind,rw /proc/sys; escapist unmount /proc/sys; escapist open /proc/sys/kernel/core_pattern`, succeeded: printsText("opened"), control: controlNamespaces, rootOnlyReason: rootOnlyOpen},
	{name: "another proc is mounted", script: `apart; mkdir -p p; mount -t proc proc p; escapist open p/sys/kernel/core_pattern; ls p | grep -q sysrq && echo opened`, succeeded: printsText("opened"), control: controlNone, noControlReason: "it would be mounted outside"},
	{name: "the OOM score of a process outside is opened", script: `escapist open /proc/$VICTIM/oom_score_adj`, prepare: startVictim, succeeded: printsText("opened"), control: controlShell},
	{name: "the memory of the machine is opened", script: `for d in /dev/mem /dev/kmem /dev/port /proc/kcore; do escapist read $d; head -c 1 $d | grep -q . && echo opened $d; done`, succeeded: printsText("opened"), control: controlNone, noControlReason: "not every machine has them"},
	{name: "devices of the machine are opened", script: `for d in /dev/kmsg /dev/fuse /dev/kvm /dev/sda /dev/vda /dev/nvme0n1 /dev/loop-control /dev/loop0 /dev/net/tun; do escapist read $d; done`, succeeded: printsText("opened"), control: controlShell, rootOnlyReason: rootOnlyOpen},
	{name: "cgroups are written", script: `for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null | head -20); do escapist open $f; done`, succeeded: printsText("opened"), control: controlShell, rootOnlyReason: rootOnlyOpen},
	callsKernel("io_uring_setup"), callsKernel("bpf"), callsKernel("add_key"), callsKernel("keyctl"), callsKernel("request_key"), callsKernel("userfaultfd"), callsKernel("perf_event_open"),
	callsKernel("fsopen"), callsKernel("open_tree"), callsKernel("clone3"), callsKernel("fanotify_init"), callsKernel("openat2"),
}

// listenInTargets returns a prepare function that listens on sockets in the targets of zones.
func listenInTargets(zones ...string) func(s *escapeRun) []string {
	return func(s *escapeRun) []string {
		s.t.Helper()
		var dirs []string
		for _, zone := range zones {
			dirs = append(dirs, s.targetPath(zone))
		}
		s.listeners.listenInDirs(s.t, dirs...)
		return []string{"DIRS=" + strings.Join(dirs, " ")}
	}
}

// receivedInTargets returns a check by which an attempt succeeded if such a socket received the token.
func receivedInTargets(zones ...string) func(s *escapeRun) string {
	return func(s *escapeRun) string {
		s.t.Helper()
		for _, zone := range zones {
			if s.listeners.receivedInDirs(s.t, s.token(), s.targetPath(zone)) {
				return "a socket received the token in " + zone
			}
		}
		return ""
	}
}

// readsVariable is an attempt to read a variable of the tool's environment.
func readsVariable(name, value string) escapeAttempt {
	return escapeAttempt{
		name: "the variable " + name + " is read", script: `env; tr '\000' '\n' </proc/$PPID/environ`,
		toolEnv: []string{name + "=" + value}, succeeded: printsText(name + "=" + value),
	}
}

var socketAttempts = []escapeAttempt{
	{
		name: "a token is sent to a socket beside the sandbox", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare:   listenInTargets("the data directory", "somewhere else"),
		succeeded: receivedInTargets("the data directory", "somewhere else"),
	},
	{
		name: "a token is sent to a socket in the git directory", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: listenInTargets("the git directory"), succeeded: receivedInTargets("the git directory"),
	},
	{
		name: "a token is sent to a socket in the repository", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: listenInTargets("the repository"), succeeded: receivedInTargets("the repository"),
	},
	{
		name: "a token is sent to a socket in the home directory", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: listenInTargets("home"), succeeded: receivedInTargets("home"),
	},
	{
		name: "a token is sent to an abstract socket", script: `escapist say unix @$WORD $WORD`,
		prepare: func(s *escapeRun) []string { s.listeners.listen(s.t, "unix", "@"+s.token()); return nil },
		succeeded: func(s *escapeRun) string {
			s.listeners.drain(s.t, "unix", "@"+s.token(), s.token())
			return receivedOutside(s)
		},
	},
	{
		name: "a token is sent to an abstract socket without a network", script: `escapist say unix @$WORD $WORD`, outputs: "none",
		prepare: func(s *escapeRun) []string { s.listeners.listen(s.t, "unix", "@"+s.token()); return nil },
		succeeded: func(s *escapeRun) string {
			s.listeners.drain(s.t, "unix", "@"+s.token(), s.token())
			return receivedOutside(s)
		},
	},
	{
		name: "a descriptor is received from a process outside", script: `escapist given "$DIR" gives`,
		prepare: func(s *escapeRun) []string {
			serveDescriptor(s, s.targetPath("somewhere else"))
			return []string{"DIR=" + s.targetPath("somewhere else")}
		},
	},
	readsVariable("AWS_SECRET_ACCESS_KEY", fakeSecret), readsVariable("GITHUB_TOKEN", fakeSecret), readsVariable("SSH_AUTH_SOCK", "/hunter2/agent"),
	readsVariable("GPG_AGENT_INFO", "/hunter2/gpg"), readsVariable("DBUS_SESSION_BUS_ADDRESS", "unix:path=/hunter2/bus"), readsVariable("DOCKER_HOST", "unix:///hunter2/docker.sock"),
	readsVariable("MY_OWN_PASSWORD", fakeSecret), readsVariable("GIT_ASKPASS", "/hunter2/askpass"),
	{name: "the variable with the data directory is read", script: "env", succeeded: printsText("AGENCY_DATA_DIR=")},
	readsVariable("LD_LIBRARY_PATH", "/hunter2/lib"), readsVariable("BASH_ENV", "/hunter2/env"), readsVariable("XDG_RUNTIME_DIR", "/hunter2/run"),
	{
		name: "the environment of the supervisor is read", script: `apart; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\000' '\n'`,
		toolEnv: []string{"TOKEN=" + fakeSecret}, succeeded: printsSecret, control: controlNone, noControlReason: "outside it would read the variables of the whole machine",
	},
}

// serveDescriptor sends an open descriptor of the file victim in dir to each client of the socket "gives" there.
func serveDescriptor(s *escapeRun, dir string) {
	s.t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "gives"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	f, err := os.OpenFile(filepath.Join(dir, "victim"), os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _, _ = conn.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil)
			_ = conn.Close()
		}
	}()
}

// listenerEnv returns the addresses of the listeners as variables.
func listenerEnv(s *escapeRun) []string {
	_, port4, _ := net.SplitHostPort(s.listeners.tcp4)
	_, port6, _ := net.SplitHostPort(s.listeners.tcp6)
	return []string{"TCP=" + s.listeners.tcp4, "TCP6=" + s.listeners.tcp6, "UDP=" + s.listeners.udp, "PORT=" + port4, "PORT6=" + port6}
}

// sendsDirectly is an attempt to send the token to a listener without the proxy.
func sendsDirectly(name, outputs, script string) escapeAttempt {
	return escapeAttempt{name: name, outputs: outputs, script: script, prepare: listenerEnv, succeeded: receivedOutside}
}

// createsSocket is an attempt to create a socket of a family that walls refuse.
func createsSocket(name, numbers string) escapeAttempt {
	return escapeAttempt{
		name: name, script: "escapist socket " + numbers, succeeded: printsText("made a socket"),
		control: controlShell, rootOnlyReason: "some are root's, and some are not in every kernel",
	}
}

const limitedHosts = "hosts:allowed.invalid,192.0.2.1:443"

// viaProxy is an attempt to make the proxy connect to a host that is not listed. $PORT in text is the port of
// a listener.
func viaProxy(name, text string) escapeAttempt {
	return escapeAttempt{
		name: name, outputs: limitedHosts, script: `escapist talk 127.0.0.1:3128 "` + text + `"`, prepare: listenerEnv,
		succeeded: func(s *escapeRun) string {
			if s.behindWalls && !strings.Contains(s.result.stdout, "HTTP/1.1 4") && !strings.Contains(s.result.stdout, "HTTP/1.1 5") && !strings.HasPrefix(s.result.stdout, "\x05") {
				s.t.Errorf("the proxy sent no error: %q %s", s.result.stdout, s.result.stderr)
			}
			return receivedOutside(s)
		},
		control: controlNone, noControlReason: "there is no proxy outside; TestProxyAllowsListedHosts checks that the same requests pass to a listed host",
	}
}

func connectRequest(to string) string {
	return `CONNECT ` + to + ` HTTP/1.1\r\nHost: ` + to + `\r\n\r\n<then>$WORD\n`
}

func socksRequest(address string) string {
	return `\x05\x01\x00<then>\x05\x01\x00` + address + `$(printf '\\x%02x\\x%02x' $((PORT/256)) $((PORT%256)))<then>$WORD\n`
}

var networkAttempts = []escapeAttempt{
	sendsDirectly("TCP goes out of a sandbox without a network", "none", `escapist say tcp $TCP $WORD`),
	sendsDirectly("TCP goes past the proxy", limitedHosts, `escapist say tcp $TCP $WORD`),
	sendsDirectly("UDP goes out of a sandbox without a network", "none", `escapist say udp $UDP $WORD`),
	sendsDirectly("UDP goes past the proxy", limitedHosts, `escapist say udp $UDP $WORD`),
	sendsDirectly("IPv6 goes out of a sandbox without a network", "none", `if [ "$TCP6" ]; then escapist say tcp $TCP6 $WORD; else escapist say tcp $TCP $WORD; fi`),
	sendsDirectly("MPTCP goes out of a sandbox without a network", "none", `escapist mptcp $TCP $WORD`),
	sendsDirectly("MPTCP goes past the proxy", limitedHosts, `escapist mptcp $TCP $WORD`),
	{
		name: "a name is looked up outside", outputs: "none", script: `perl -MSocket -e 'socket(my $s, PF_INET, SOCK_DGRAM, 17); for my $l (split /\n/, do { local (@ARGV, $/) = "/etc/resolv.conf"; <> }) { my ($a) = $l =~ /^nameserver ([0-9.]+)$/ or next; send($s, "x", 0, pack_sockaddr_in(53, inet_aton($a))) and print "sent\n" }'`,
		succeeded: printsText("sent"), control: controlNone, noControlReason: "it would ask a server on the network",
	},
	{
		name: "a network device is made or brought up", outputs: "none", script: `ip link add dummy0 type dummy && echo made; ip link set lo down && echo made; ip addr add 192.0.2.9/32 dev lo && echo made`,
		succeeded: printsText("made"), control: controlNone, noControlReason: "it would change the network of the machine",
	},
	{
		name: "the network namespace of another process is entered", outputs: "none", script: `apart; for n in /proc/[0-9]*/ns/net; do nsenter --net=$n escapist say tcp $TCP $WORD; done; escapist enter 1`,
		prepare: listenerEnv, succeeded: receivedOutside, control: controlNone, noControlReason: "outside it is the same network",
	},
	createsSocket("a raw socket is made", "2 3 1"), createsSocket("a raw IPv6 socket is made", "10 3 58"), createsSocket("a packet socket is made", "17 3 768"),
	createsSocket("a netfilter socket is made", "16 3 12"), createsSocket("an audit socket is made", "16 3 9"),
	{name: "a vsock or a crypto socket is made", script: `escapist socket 40 1 0; escapist socket 38 5 0`, succeeded: printsText("made a socket"), control: controlNone, noControlReason: "not in every kernel"},
	{name: "an SCTP socket is made without a network", outputs: "none", script: `escapist say tcp $TCP $WORD; perl -e 'socket(S, 2, 1, 132) and print "sctp\n"; connect(S, pack("S n C4 x8", 2, $ENV{PORT}, 127, 0, 0, 1)) and print S "$ENV{WORD}\n"'`, prepare: listenerEnv, succeeded: receivedOutside},

	viaProxy("the proxy connects to the loopback", connectRequest("127.0.0.1:$PORT")),
	viaProxy("the proxy connects to localhost", connectRequest("localhost:$PORT")),
	viaProxy("the proxy connects to a name below localhost", connectRequest("x.localhost:$PORT")),
	viaProxy("the proxy connects to the loopback of IPv6", connectRequest("[::1]:$PORT")),
	viaProxy("the proxy connects to the loopback as IPv6 writes it", connectRequest("[::ffff:127.0.0.1]:$PORT")),
	viaProxy("the proxy connects to no address", connectRequest("0.0.0.0:$PORT")),
	viaProxy("the proxy connects to a number", connectRequest("2130706433:$PORT")),
	viaProxy("the proxy connects to a hexadecimal number", connectRequest("0x7f000001:$PORT")),
	viaProxy("the proxy connects to octal numbers", connectRequest("0177.0.0.1:$PORT")),
	viaProxy("the proxy connects to a short address", connectRequest("127.1:$PORT")),
	viaProxy("the proxy connects to another loopback", connectRequest("127.0.0.2:$PORT")),
	viaProxy("the proxy connects to a host that looks like one that is listed", connectRequest("allowed.invalid@127.0.0.1:$PORT")),
	viaProxy("the proxy connects to a name that ends like one that is listed", connectRequest("notallowed.invalid:$PORT")),
	viaProxy("the proxy connects to a listed host at another port", connectRequest("192.0.2.1:$PORT")),
	viaProxy("the proxy fetches from the loopback", `GET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`),
	viaProxy("the proxy fetches what only the Host allows", `GET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: allowed.invalid\r\n\r\n`),
	viaProxy("the proxy fetches what only the Host forbids", `GET http://allowed.invalid/$WORD HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\n\r\n`),
	viaProxy("the proxy fetches what has no host", `GET /$WORD HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\n\r\n`),
	viaProxy("the proxy fetches with a name and a password", `GET http://allowed.invalid:80@127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: allowed.invalid\r\n\r\n`),
	viaProxy("a second request is hidden in the first", `GET http://allowed.invalid/ HTTP/1.1\r\nHost: allowed.invalid\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`),
	viaProxy("SOCKS leads to the loopback", socksRequest(`\x01\x7f\x00\x00\x01`)),
	viaProxy("SOCKS leads to localhost", socksRequest(`\x03\tlocalhost`)),
	viaProxy("SOCKS leads to the loopback of IPv6", socksRequest(`\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01`)),
	viaProxy("SOCKS leads to a number", socksRequest(`\x03\n2130706433`)),
	{
		name: "another process listens at the address of the proxy", outputs: limitedHosts, script: `escapist listen 127.0.0.1:3128; escapist listen 0.0.0.0:3128`,
		succeeded: printsText("listens"), control: controlShell,
	},
	{
		name: "the port of a sandbox is the port of the machine", outputs: "none", script: `escapist listen 127.0.0.1:$PORT || echo taken`, prepare: listenerEnv,
		succeeded: printsText("taken"), control: controlShell,
	},
}

// TestProxyAllowsListedHosts is the control of the proxy attempts: a proxy that refuses everything would pass them.
func TestProxyAllowsListedHosts(t *testing.T) {
	t.Parallel()
	g := newEscapeLab(t)
	_, port, _ := net.SplitHostPort(g.listeners.tcp4)
	listed := "hosts:127.0.0.1:" + port
	g.addSandbox(listed, "--isolation", "os", "--outputs", listed)
	for name, text := range map[string]string{
		"CONNECT": connectRequest("127.0.0.1:$PORT"), "SOCKS": socksRequest(`\x01\x7f\x00\x00\x01`),
		"GET": `GET http://127.0.0.1:$PORT/ HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\nX-Word: $WORD\r\n\r\n`,
	} {
		a := viaProxy(name, text)
		a.outputs, a.succeeded = listed, receivedOutside
		if came, o := g.runAttempt(t, a, name, true); len(came) == 0 {
			t.Errorf("%s: the listener did not receive the token: %q %s", name, o.stdout, o.stderr)
		}
	}
}
