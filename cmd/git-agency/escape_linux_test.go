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

// What agents may try, and what must come of it: nothing. The tables are what SECURITY in the manual
// promises; whoever finds another way out adds a line.

func TestNobodyGetsOutToFiles(t *testing.T) { escapeTest(t, fileAttempts) }

func TestNobodyGetsOutToFilesAsAnOrdinaryUser(t *testing.T) {
	ordinary(t, "TestNobodyGetsOutToFiles")
}

func TestNobodyGetsOutToProcessesAndDevices(t *testing.T) { escapeTest(t, processAttempts) }

func TestNobodyGetsOutToProcessesAndDevicesAsAnOrdinaryUser(t *testing.T) {
	ordinary(t, "TestNobodyGetsOutToProcessesAndDevices")
}

func TestNobodyGetsOutToTheNetwork(t *testing.T) { escapeTest(t, networkAttempts) }

func TestNobodyGetsOutToTheNetworkAsAnOrdinaryUser(t *testing.T) {
	ordinary(t, "TestNobodyGetsOutToTheNetwork")
}

func TestNobodyGetsOutBySocketsAndVariables(t *testing.T) { escapeTest(t, socketAttempts) }

func TestNobodyGetsOutBySocketsAndVariablesAsAnOrdinaryUser(t *testing.T) {
	ordinary(t, "TestNobodyGetsOutBySocketsAndVariables")
}

// ordinary makes the attempts of a test again as an ordinary user.
func ordinary(t *testing.T, test string) {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("they were made as an ordinary user already")
	}
	skipRerunIfShort(t)
	rerunAsNobody(t, test)
}

func escapeTest(t *testing.T, attempts []attempt) {
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
	newGround(t, list...).face(attempts)
}

// face makes all attempts.
func (g *ground) face(attempts []attempt) {
	g.t.Helper()
	names := map[string]bool{}
	for i, a := range attempts {
		if names[a.name] {
			g.t.Errorf("two attempts are called %q", a.name)
		}
		names[a.name] = true
		g.t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			came, o := g.make(t, a, fmt.Sprintf("%d-walls", i), true)
			for _, what := range came {
				t.Errorf("behind walls %s\n%s%s", what, o.stdout, o.stderr)
			}
			switch {
			case a.control == noControl && a.why == "":
				t.Error("it is not said why there is no control")
			case a.control == noControl:
				return
			case a.root != "" && os.Geteuid() != 0:
				return
			}
			if came, o := g.make(t, a, fmt.Sprintf("%d-without", i), false); len(came) == 0 {
				t.Errorf("nothing came of it without walls either: the attempt is none, or nobody looks\n%s%s", o.stdout, o.stderr)
			}
		})
	}
}

const (
	onlyRootGives = "only root can give files away"
	onlyRootMakes = "only root can make devices"
	onlyRootOpens = "only root can open it"
)

var fileAttempts = []attempt{
	// By their names.
	{name: "a file is written", script: `echo owned >$T/victim`},
	{name: "a file is appended to", script: `echo owned >>$T/victim`},
	{name: "a file is truncated", script: `: >$T/victim`},
	{name: "a file is written through memory", script: `escapist mmap %/victim`},
	{name: "a file is created", script: `echo owned >$T/new`},
	{name: "a directory is created", script: `mkdir $T/new`},
	{name: "a file gets another name", script: `mv $T/victim $T/moved`},
	{name: "a file takes the place of another", script: `echo owned >mine-$KEY; mv -f mine-$KEY $T/victim`},
	{name: "two files change places", script: `escapist exchange %/victim %/dir/inner`},
	{name: "a file is removed", script: `rm -f $T/victim`},
	{name: "a directory is removed with all that is in it", script: `rm -rf $T/dir`},
	{name: "a file that has a newline in its name is made", script: `touch "$T/new
line"`},
	{name: "the permissions of a file are changed", script: `chmod 0777 $T/victim`},
	{name: "the permissions of a file that is open to be read are changed", script: `escapist fchmod %/victim`},
	{name: "a file is changed through a descriptor that only names it", script: `escapist path %/victim`},
	{name: "a file is given away", script: `chown 1:1 $T/victim`, control: plainShell, root: onlyRootGives},
	{name: "the times of a file are changed", script: `touch -d 2001-01-01 $T/victim`},
	{name: "an attribute is put on a file", script: `escapist setxattr %/victim user.owned 00`},
	{name: "a file without a name is given one", script: `escapist tmpfile %/ named`},

	// Through links.
	{name: "a link in the sandbox leads to a file", script: `ln -s $T/victim link; echo owned >link; rm link`},
	{name: "a link in the sandbox leads to a directory", script: `ln -s $T link; echo owned >link/victim; rm link`},
	{name: "a file gets a name in the sandbox too", script: `ln $T/victim hard || cp -l $T/victim hard; chmod 600 hard; echo owned >hard; rm -f hard`},
	{name: "the way leads up from the sandbox", script: `echo owned >../../../../../../../../../../../../../../../..$T/victim`},

	// Through /proc.
	{name: "the root is that of the process", script: `echo owned >/proc/self/root$T/victim`},
	{name: "the root is that of any process", script: `for p in /proc/[0-9]*/root /proc/[0-9]*/task/*/root; do echo owned >$p$T/victim; done`},
	{name: "the way begins where any process is", script: `for p in /proc/[0-9]*/cwd; do echo owned >$p/../../../../../../../../../../../../../../../..$T/victim; done`},
	{
		// The files are ours: as root, without walls, those of all others are there too, and must not be touched.
		name: "the way begins at what any process has open", script: `escapist reopen $KEY`,
		files:   func(s *side) []string { return []string{s.at("home", "victim"), s.at("somewhere else")} },
		control: plainShell,
	},
	{
		name: "what the tool has open is inherited", script: `escapist inherited 3 200`,
		files: func(s *side) []string {
			return []string{s.at("home", "victim"), s.at("the integration tree"), s.at("the git directory")}
		},
		control: plainShell,
	},

	// By other mounts and other views.
	{name: "it is mounted into the sandbox", script: `mkdir -p mnt; escapist bind $T mnt; echo owned >mnt/victim`, control: ownNamespaces},
	{name: "everything is mounted writable again", script: `escapist remount; echo owned >$T/victim`, control: ownNamespaces},
	{name: "a namespace of its own makes the agent root", script: `unshare -Ur sh -c "echo owned >$T/victim"`},
	{name: "mounts in a namespace of its own are writable", script: `unshare -Urm sh -c "mount -o remount,bind,rw / ; escapist remount; echo owned >$T/victim"`, control: plainShell},
	{name: "the root is changed to another", script: `escapist chroot /proc/1/root $T/victim || escapist chroot / $T/victim`, control: ownNamespaces},
	{name: "the root is exchanged", script: `mkdir -p root; escapist pivot root`, worked: says("pivoted"), control: ownNamespaces},
	{name: "the namespaces of process 1 are entered", script: `apart; escapist enter 1; escapist enter $PPID`, worked: says("entered"), control: noControl, why: "outside it is the machine's own process 1"},
	{
		name: "a handle names the file", script: `escapist handle / $HANDLE || escapist handle . $HANDLE || escapist handle $LAB $HANDLE`,
		prepare: func(s *side) []string { return handleOf(s.t, s.at("the repository", "victim")) },
		control: plainShell, root: "only root can open what a handle names",
	},

	// The tree itself, and what holds it.
	{
		name: "another directory takes the place of the sandbox", script: `cd .. && mv tree moved && mkdir tree && cp -r moved/. tree; escapist exchange "$TREE" "$WT"`,
		prepare: func(s *side) []string { return []string{"INODE=" + inode(s.t, s.tree)} },
		worked:  func(s *side) string { return treeMoved(s) },
		control: noControl, why: "it would leave no sandbox for the others",
	},
	{
		name: "the .git of the sandbox is replaced", script: `echo gitdir: /nowhere >x; mv -f x .git; rm -f .git; mv .git .tig; ln -sf x .git; echo y >>.git; chmod 777 .git; escapist exchange x .git; touch -d 2001-01-01 .git`,
		prepare: func(s *side) []string { s.before = fingerprint(s.t, filepath.Join(s.tree, ".git")); return nil },
		worked: func(s *side) string {
			name := filepath.Join(s.tree, ".git")
			now := fingerprint(s.t, name)
			if now == s.before {
				return ""
			}
			if err := os.RemoveAll(name); err != nil {
				s.t.Fatal(err)
			}
			s.write(name, "gitdir: "+filepath.Join(s.repo, ".git", "worktrees", s.id)+"\n")
			return "it is another:\n" + diff(s.before, now)
		},
		control: plainShell,
	},
	{
		name: "something is mounted over the .git of the sandbox", script: `rm -f x; echo over >x; escapist bind x .git; cat .git`,
		worked:  says("over\n"),
		control: ownNamespaces,
	},

	// What is left in the tree.
	{
		name: "a program is left that makes root of everybody", script: `cp /bin/sh suid; chmod 4755 suid; chmod u+s suid; install -m 4755 /bin/sh suid2; cp -p "$(command -v su)" suid3; perl -e 'chmod 04755, "suid"; sysopen(F, "suid4", 0101, 04755)'; umask 0; cp -a /usr/bin/passwd suid5`,
		worked: func(s *side) string {
			defer removeNew(s, "suid*")
			return find(s, func(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeSetuid != 0 })
		},
	},
	{
		name: "a program is left that has capabilities", script: `cp /bin/true cap; escapist setxattr cap security.capability 0100000200200000000000000000000000000000`,
		worked: func(s *side) string {
			defer removeNew(s, "cap")
			if n, err := unix.Lgetxattr(filepath.Join(s.tree, "cap"), "security.capability", nil); err == nil && n > 0 {
				return "it has"
			}
			return ""
		},
		control: plainShell, root: onlyRootGives,
	},
	{
		name: "a device is left", script: `mknod null c 1 3; mknod -m 666 block b 7 0`,
		worked: func(s *side) string {
			defer removeNew(s, "null", "block")
			return find(s, func(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeDevice != 0 })
		},
		control: plainShell, root: onlyRootMakes,
	},

	// What cannot be seen.
	{name: "secrets of the home are read", script: `cd "$HOMEDIR" && cat .ssh/id_ed25519 .netrc .aws/credentials .git-credentials .gnupg/* .config/gh/* .docker/config.json .kube/config .npmrc .pypirc .bash_history .config/gcloud/*`, worked: leaks},
	{name: "secrets are searched for", script: `grep -rsh hunter2 "$HOMEDIR" "$LAB" "$DATA" "$OTHER"`, worked: leaks},
	{name: "secrets are read past what hides them", script: `escapist unmount "$LAB"; escapist unmount /tmp; grep -rsh hunter2 "$HOMEDIR/.ssh" "$OTHER"`, worked: leaks, control: ownNamespaces},
	{name: "secrets are read through the root of any process", script: `for p in /proc/[0-9]*/root /proc/[0-9]*/cwd; do cat "$p$HOMEDIR/.ssh/id_ed25519" "$p$OTHER/secret"; done`, worked: leaks},
	{name: "a secret is read by making it the place to be", script: `cd "$HOMEDIR/.ssh" && cat id_ed25519; exec 9<"$HOMEDIR/.ssh" && cat <&9; cat /proc/self/fd/9/id_ed25519`, worked: leaks},
	{name: "another sandbox is read", script: `cat "$OTHER/secret"`, worked: leaks},
	{
		name: "the layer below is written", script: `mkdir -p "$UPPER" && echo owned >"$UPPER/planted"; find "$LAB" -name upper 2>/dev/null`,
		prepare: func(s *side) []string {
			upper := filepath.Join(filepath.Dir(s.tree), "walls", "git", "upper")
			return []string{"UPPER=" + upper}
		},
		worked: func(s *side) string {
			upper := filepath.Join(filepath.Dir(s.tree), "walls", "git", "upper")
			if exists(filepath.Join(upper, "planted")) || strings.Contains(s.out.stdout, upper) {
				return "the layer can be reached"
			}
			return ""
		},
	},
}

func inode(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Dev, " ", st.Ino)
}

func treeMoved(s *side) string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.tree))
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if e.Name() == "moved" {
			return "there is another directory beside it"
		}
	}
	return ""
}

// find looks for a file in the tree.
func find(s *side, bad func(fs.FileInfo) bool) string {
	s.t.Helper()
	what := ""
	err := filepath.WalkDir(s.tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && bad(fi) {
			what = fmt.Sprintf("there is %s, %s", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
	return what
}

func removeNew(s *side, patterns ...string) {
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

// victim is a process outside.
func victim(s *side) []string {
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

// died reports an attempt that worked if the process is no more, or is about to be: it may not have run since.
func died(s *side) string {
	status, err := os.ReadFile("/proc/" + s.before + "/status")
	if err != nil || deadly.Match(status) {
		return "the process is dead"
	}
	return ""
}

var deadly = regexp.MustCompile(`(?m)^(State:\t[ZX]|S(ig|hd)Pnd:\t[0-9a-f]*[13579bdf][0-9a-f]{2}$)`) // SIGKILL is the ninth bit

// opens is an attempt to open what belongs to the whole machine.
func opens(path string) attempt {
	return attempt{
		name: path + " is opened to be written", script: "escapist open " + path,
		worked: says("opened"), control: plainShell, root: onlyRootOpens,
	}
}

// asks is an attempt to get an answer from a part of the kernel that is nobody's here.
func asks(call string) attempt {
	return attempt{
		name: call + " is asked of the kernel", script: "escapist asks " + call,
		worked: says("answered"), control: plainShell, root: "some kernels give no answer to an ordinary user",
	}
}

var sysrq = attempt{
	name: "the machine is told to do something at once", script: "escapist open /proc/sysrq-trigger",
	worked: says("opened"), control: noControl, why: "not every machine has it",
}

var processAttempts = []attempt{
	{name: "a process outside is killed", script: `escapist kill $VICTIM; kill -9 $VICTIM`, prepare: victim, worked: died, control: plainShell},
	{
		name: "everything that can be killed is killed", script: `apart; perl -e 'kill 9, -1'`,
		prepare: victim, worked: died, control: noControl, why: "outside it would end the machine",
	},
	{
		name: "the supervisor is killed", script: `apart; kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; escapist kill 1; ls -d /proc/1 >/dev/null && echo it lives`,
		worked: func(s *side) string {
			if !strings.Contains(s.out.stdout, "it lives") {
				return "it is dead: " + s.out.stderr
			}
			return ""
		}, control: noControl, why: "outside it would be the machine's own process 1",
	},
	{name: "a process outside is debugged", script: `escapist ptrace $VICTIM`, prepare: victim, worked: says("seized"), control: plainShell},
	{name: "the supervisor is debugged", script: `apart; escapist ptrace 1`, worked: says("seized"), control: noControl, why: "outside it would be the machine's own process 1; that the helper can is seen with another process"},
	{name: "the memory of a process outside is read", script: `escapist memory $VICTIM`, prepare: victim, worked: func(s *side) string { return says("opened")(s) + says("looked")(s) }, control: plainShell},
	{name: "the memory of the supervisor is read", script: `apart; escapist memory 1; escapist memory $PPID`, worked: func(s *side) string { return says("opened")(s) + says("looked")(s) }, control: noControl, why: "there is no supervisor outside; that the helper can is seen with another process"},
	{name: "what the supervisor has open is taken", script: `apart; for n in 0 3 5 7 9; do escapist fdof 1 $n; escapist fdof $PPID $n; done`, worked: says("got"), control: noControl, why: "there is no supervisor outside"},
	{name: "a process outside is seen", script: `escapist sees`, prepare: victim, worked: says("found"), control: plainShell},
	{
		name: "a process stays behind", script: `perl -MPOSIX -e 'exit if fork; setsid; exit if fork; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null"); $SIG{$_} = "IGNORE" for qw(HUP INT TERM QUIT); exec "sleep", $ENV{MARK}'; sleep 0.1`,
		prepare: func(s *side) []string {
			mark := fmt.Sprintf("30.%d0%d", os.Getpid(), len(s.key))
			s.before = mark
			return []string{"MARK=" + mark}
		},
		worked: func(s *side) string {
			if !s.walls {
				if !waitUntil(func() bool { return len(marked(s.t, s.before)) > 0 }) {
					return ""
				}
			}
			if left := marked(s.t, s.before); len(left) > 0 {
				return fmt.Sprintf("still there: %q", left)
			}
			return ""
		},
		control: plainShell,
	},
	{
		name: "more processes are started than are allowed", flags: []string{"--processes", "40", "--best-effort-limits"},
		script: `perl -e 'my $n = 0; for (1 .. 300) { my $p = fork; last unless defined $p; if (!$p) { sleep 20; exit } $n++; push @p, $p } print "started $n\n"; kill 9, @p'`,
		worked: func(s *side) string {
			if os.Geteuid() == 0 && s.walls { // there the kernel counts nothing unless there are cgroups
				return ""
			}
			return says("started 300")(s)
		},
	},
	{
		name: "the greatest size of a file is raised", flags: []string{"--file-size", "1m"}, script: `escapist raise big-$KEY`,
		worked: func(s *side) string {
			defer removeNew(s, "big-*")
			if fi, err := os.Stat(filepath.Join(s.tree, "big-"+s.key)); err == nil && fi.Size() > 1<<20 {
				return fmt.Sprintf("it has %d bytes", fi.Size())
			}
			return ""
		},
	},
	{name: "another user is become", script: `escapist become 1`, worked: says("became"), control: plainShell, root: "only root can"},
	{name: "a program that makes root of everybody is run", script: `perl -e 'print "uid $> of $<\n"'; for p in $(command -v su) $(command -v mount) $(command -v passwd); do test -u $p && grep -i -h nonewprivs /proc/self/status; done`, worked: says("NoNewPrivs:\t0"), control: plainShell},

	// The machine.
	opens("/proc/sys/kernel/core_pattern"), sysrq, opens("/proc/sys/kernel/hostname"), opens("/proc/sys/vm/drop_caches"),
	opens("/proc/sys/fs/protected_hardlinks"), opens("/proc/irq/default_smp_affinity"),
	{name: "the machine's settings are made writable again", script: `mount -o remount,bind,rw /proc/sys; escapist unmount /proc/sys; escapist open /proc/sys/kernel/core_pattern`, worked: says("opened"), control: ownNamespaces, root: onlyRootOpens},
	{name: "another proc is mounted", script: `apart; mkdir -p p; mount -t proc proc p; escapist open p/sys/kernel/core_pattern; ls p | grep -q sysrq && echo opened`, worked: says("opened"), control: noControl, why: "it would be mounted outside"},
	{name: "what waits for memory outside is set", script: `escapist open /proc/$VICTIM/oom_score_adj`, prepare: victim, worked: says("opened"), control: plainShell},
	{name: "the memory of the machine is opened", script: `for d in /dev/mem /dev/kmem /dev/port /proc/kcore; do escapist read $d; head -c 1 $d | grep -q . && echo opened $d; done`, worked: says("opened"), control: noControl, why: "not every machine has them"},
	{name: "devices of the machine are opened", script: `for d in /dev/kmsg /dev/fuse /dev/kvm /dev/sda /dev/vda /dev/nvme0n1 /dev/loop-control /dev/loop0 /dev/net/tun; do escapist read $d; done`, worked: says("opened"), control: plainShell, root: onlyRootOpens},
	{name: "cgroups are written", script: `for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null | head -20); do escapist open $f; done`, worked: says("opened"), control: plainShell, root: onlyRootOpens},
	asks("io_uring_setup"), asks("bpf"), asks("add_key"), asks("keyctl"), asks("request_key"), asks("userfaultfd"), asks("perf_event_open"),
	asks("fsopen"), asks("open_tree"), asks("clone3"), asks("fanotify_init"), asks("openat2"),
}

// inTargets listens at sockets in targets.
func inTargets(zones ...string) func(s *side) []string {
	return func(s *side) []string {
		s.t.Helper()
		var dirs []string
		for _, zone := range zones {
			dirs = append(dirs, s.at(zone))
		}
		s.ears.listenIn(s.t, dirs...)
		return []string{"DIRS=" + strings.Join(dirs, " ")}
	}
}

func heardInTargets(zones ...string) func(s *side) string {
	return func(s *side) string {
		s.t.Helper()
		for _, zone := range zones {
			if s.ears.heardIn(s.t, s.word(), s.at(zone)) {
				return "somebody heard it in " + zone
			}
		}
		return ""
	}
}

// variable is an attempt to learn what the tool was told.
func variable(name, value string) attempt {
	return attempt{
		name: "the variable " + name + " is read", script: `env; tr '\000' '\n' </proc/$PPID/environ`,
		toolEnv: []string{name + "=" + value}, worked: says(name + "=" + value),
	}
}

var socketAttempts = []attempt{
	{
		name: "a socket beside the sandbox is spoken to", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: inTargets("the data directory", "somewhere else"),
		worked:  heardInTargets("the data directory", "somewhere else"),
	},
	{
		name: "a socket in the git directory is spoken to", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: inTargets("the git directory"), worked: heardInTargets("the git directory"),
	},
	{
		name: "a socket in the integration tree is spoken to", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: inTargets("the repository"), worked: heardInTargets("the repository"),
	},
	{
		name: "a socket in the home is spoken to", script: `for d in $DIRS; do escapist near $d sock $WORD; escapist datagram $d dgram $WORD; done`,
		prepare: inTargets("home"), worked: heardInTargets("home"),
	},
	{
		name: "an abstract socket is spoken to", script: `escapist say unix @$WORD $WORD`,
		prepare: func(s *side) []string { s.ears.listen(s.t, "unix", "@"+s.word()); return nil },
		worked: func(s *side) string {
			s.ears.listened(s.t, "unix", "@"+s.word(), s.word())
			return heard(s)
		},
	},
	{
		name: "an abstract socket is spoken to from a sandbox without a network", script: `escapist say unix @$WORD $WORD`, outputs: "none",
		prepare: func(s *side) []string { s.ears.listen(s.t, "unix", "@"+s.word()); return nil },
		worked: func(s *side) string {
			s.ears.listened(s.t, "unix", "@"+s.word(), s.word())
			return heard(s)
		},
	},
	{
		name: "somebody gives away a file that is open", script: `escapist given "$DIR" gives`,
		prepare: func(s *side) []string {
			giveAway(s, s.at("somewhere else"))
			return []string{"DIR=" + s.at("somewhere else")}
		},
	},
	variable("AWS_SECRET_ACCESS_KEY", secret), variable("GITHUB_TOKEN", secret), variable("SSH_AUTH_SOCK", "/hunter2/agent"),
	variable("GPG_AGENT_INFO", "/hunter2/gpg"), variable("DBUS_SESSION_BUS_ADDRESS", "unix:path=/hunter2/bus"), variable("DOCKER_HOST", "unix:///hunter2/docker.sock"),
	variable("MY_OWN_PASSWORD", secret), variable("GIT_ASKPASS", "/hunter2/askpass"),
	{name: "the data directory is told", script: "env", worked: says("AGENCY_DATA_DIR=")},
	variable("LD_LIBRARY_PATH", "/hunter2/lib"), variable("BASH_ENV", "/hunter2/env"), variable("XDG_RUNTIME_DIR", "/hunter2/run"),
	{
		name: "the environment of the supervisor is read", script: `apart; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\000' '\n'`,
		toolEnv: []string{"TOKEN=" + secret}, worked: leaks, control: noControl, why: "outside it would read the variables of the whole machine",
	},
}

// giveAway gives whoever asks a file of a directory, open.
func giveAway(s *side, dir string) {
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

// toEars are the addresses of those who listen outside.
func toEars(s *side) []string {
	_, port4, _ := net.SplitHostPort(s.ears.tcp4)
	_, port6, _ := net.SplitHostPort(s.ears.tcp6)
	return []string{"TCP=" + s.ears.tcp4, "TCP6=" + s.ears.tcp6, "UDP=" + s.ears.udp, "PORT=" + port4, "PORT6=" + port6}
}

// direct is an attempt to speak to somebody outside, without a proxy.
func direct(name, outputs, script string) attempt {
	return attempt{name: name, outputs: outputs, script: script, prepare: toEars, worked: heard}
}

// family is an attempt to make a socket of a kind that nobody needs.
func family(name, numbers string) attempt {
	return attempt{
		name: name, script: "escapist socket " + numbers, worked: says("made a socket"),
		control: plainShell, root: "some are root's, and some are not in every kernel",
	}
}

const someHosts = "hosts:allowed.invalid,192.0.2.1:443"

// proxied is an attempt to talk the proxy into something. $PORT stands for the port of somebody outside.
func proxied(name, text string) attempt {
	return attempt{
		name: name, outputs: someHosts, script: `escapist talk 127.0.0.1:3128 "` + text + `"`, prepare: toEars,
		worked: func(s *side) string {
			if s.walls && !strings.Contains(s.out.stdout, "HTTP/1.1 4") && !strings.Contains(s.out.stdout, "HTTP/1.1 5") && !strings.HasPrefix(s.out.stdout, "\x05") {
				s.t.Errorf("the proxy said nothing: %q %s", s.out.stdout, s.out.stderr)
			}
			return heard(s)
		},
		control: noControl, why: "there is no proxy outside; TestTheProxyLetsThroughWhatIsListed sees that the same words get through when they may",
	}
}

func connect(to string) string {
	return `CONNECT ` + to + ` HTTP/1.1\r\nHost: ` + to + `\r\n\r\n<then>$WORD\n`
}

func socks(address string) string {
	return `\x05\x01\x00<then>\x05\x01\x00` + address + `$(printf '\\x%02x\\x%02x' $((PORT/256)) $((PORT%256)))<then>$WORD\n`
}

var networkAttempts = []attempt{
	direct("TCP goes out of a sandbox without a network", "none", `escapist say tcp $TCP $WORD`),
	direct("TCP goes past the proxy", someHosts, `escapist say tcp $TCP $WORD`),
	direct("UDP goes out of a sandbox without a network", "none", `escapist say udp $UDP $WORD`),
	direct("UDP goes past the proxy", someHosts, `escapist say udp $UDP $WORD`),
	direct("IPv6 goes out of a sandbox without a network", "none", `if [ "$TCP6" ]; then escapist say tcp $TCP6 $WORD; else escapist say tcp $TCP $WORD; fi`),
	direct("MPTCP goes out of a sandbox without a network", "none", `escapist mptcp $TCP $WORD`),
	direct("MPTCP goes past the proxy", someHosts, `escapist mptcp $TCP $WORD`),
	{
		name: "a name is looked up outside", outputs: "none", script: `perl -MSocket -e 'socket(my $s, PF_INET, SOCK_DGRAM, 17); for my $l (split /\n/, do { local (@ARGV, $/) = "/etc/resolv.conf"; <> }) { my ($a) = $l =~ /^nameserver ([0-9.]+)$/ or next; send($s, "x", 0, pack_sockaddr_in(53, inet_aton($a))) and print "sent\n" }'`,
		worked: says("sent"), control: noControl, why: "it would ask a server on the network",
	},
	{
		name: "a network device is made or brought up", outputs: "none", script: `ip link add dummy0 type dummy && echo made; ip link set lo down && echo made; ip addr add 192.0.2.9/32 dev lo && echo made`,
		worked: says("made"), control: noControl, why: "it would change the network of the machine",
	},
	{
		name: "the network of somebody else is entered", outputs: "none", script: `apart; for n in /proc/[0-9]*/ns/net; do nsenter --net=$n escapist say tcp $TCP $WORD; done; escapist enter 1`,
		prepare: toEars, worked: heard, control: noControl, why: "outside it is the same network",
	},
	family("a raw socket is made", "2 3 1"), family("a raw IPv6 socket is made", "10 3 58"), family("a packet socket is made", "17 3 768"),
	family("a netfilter socket is made", "16 3 12"), family("an audit socket is made", "16 3 9"),
	{name: "a vsock or a crypto socket is made", script: `escapist socket 40 1 0; escapist socket 38 5 0`, worked: says("made a socket"), control: noControl, why: "not in every kernel"},
	{name: "an SCTP socket is made without a network", outputs: "none", script: `escapist say tcp $TCP $WORD; perl -e 'socket(S, 2, 1, 132) and print "sctp\n"; connect(S, pack("S n C4 x8", 2, $ENV{PORT}, 127, 0, 0, 1)) and print S "$ENV{WORD}\n"'`, prepare: toEars, worked: heard},

	proxied("the proxy connects to the loopback", connect("127.0.0.1:$PORT")),
	proxied("the proxy connects to localhost", connect("localhost:$PORT")),
	proxied("the proxy connects to a name below localhost", connect("x.localhost:$PORT")),
	proxied("the proxy connects to the loopback of IPv6", connect("[::1]:$PORT")),
	proxied("the proxy connects to the loopback as IPv6 writes it", connect("[::ffff:127.0.0.1]:$PORT")),
	proxied("the proxy connects to no address", connect("0.0.0.0:$PORT")),
	proxied("the proxy connects to a number", connect("2130706433:$PORT")),
	proxied("the proxy connects to a hexadecimal number", connect("0x7f000001:$PORT")),
	proxied("the proxy connects to octal numbers", connect("0177.0.0.1:$PORT")),
	proxied("the proxy connects to a short address", connect("127.1:$PORT")),
	proxied("the proxy connects to another loopback", connect("127.0.0.2:$PORT")),
	proxied("the proxy connects to a host that looks like one that is listed", connect("allowed.invalid@127.0.0.1:$PORT")),
	proxied("the proxy connects to a name that ends like one that is listed", connect("notallowed.invalid:$PORT")),
	proxied("the proxy connects to a listed host at another port", connect("192.0.2.1:$PORT")),
	proxied("the proxy fetches from the loopback", `GET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`),
	proxied("the proxy fetches what only the Host allows", `GET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: allowed.invalid\r\n\r\n`),
	proxied("the proxy fetches what only the Host forbids", `GET http://allowed.invalid/$WORD HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\n\r\n`),
	proxied("the proxy fetches what has no host", `GET /$WORD HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\n\r\n`),
	proxied("the proxy fetches with a name and a password", `GET http://allowed.invalid:80@127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: allowed.invalid\r\n\r\n`),
	proxied("a second request is hidden in the first", `GET http://allowed.invalid/ HTTP/1.1\r\nHost: allowed.invalid\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://127.0.0.1:$PORT/$WORD HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`),
	proxied("SOCKS leads to the loopback", socks(`\x01\x7f\x00\x00\x01`)),
	proxied("SOCKS leads to localhost", socks(`\x03\tlocalhost`)),
	proxied("SOCKS leads to the loopback of IPv6", socks(`\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01`)),
	proxied("SOCKS leads to a number", socks(`\x03\n2130706433`)),
	{
		name: "somebody else takes the place of the proxy", outputs: someHosts, script: `escapist listen 127.0.0.1:3128; escapist listen 0.0.0.0:3128`,
		worked: says("listens"), control: plainShell,
	},
	{
		name: "the port of a sandbox is the port of the machine", outputs: "none", script: `escapist listen 127.0.0.1:$PORT || echo taken`, prepare: toEars,
		worked: says("taken"), control: plainShell,
	},
}

// The proxy that refuses everything would pass all of the attempts.
func TestTheProxyLetsThroughWhatIsListed(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	_, port, _ := net.SplitHostPort(g.ears.tcp4)
	listed := "hosts:127.0.0.1:" + port
	g.add(listed, "--isolation", "os", "--outputs", listed)
	for name, text := range map[string]string{
		"CONNECT": connect("127.0.0.1:$PORT"), "SOCKS": socks(`\x01\x7f\x00\x00\x01`),
		"GET": `GET http://127.0.0.1:$PORT/ HTTP/1.1\r\nHost: 127.0.0.1:$PORT\r\nX-Word: $WORD\r\n\r\n`,
	} {
		a := proxied(name, text)
		a.outputs, a.worked = listed, heard
		if came, o := g.make(t, a, name, true); len(came) == 0 {
			t.Errorf("%s: not heard: %q %s", name, o.stdout, o.stderr)
		}
	}
}
