package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSandboxEscapeFromOtherRoot makes the attempts of the other tests, which show that the attempts work without walls, from
// another root file system. The programs of an attempt that do not exist on this machine are missing there, too.
func TestSandboxEscapeFromOtherRoot(t *testing.T) {
	t.Parallel()
	attempts := slices.Concat(fileAttempts, processAttempts, socketAttempts, rootAttempts)
	outputs := map[string]bool{"open": true}
	for i, a := range attempts {
		if attempts[i].control = controlNone; a.noControlReason == "" {
			attempts[i].noControlReason = "a test without another root has it, or there is none without another root"
		}
		outputs[a.outputs] = true
	}
	g := newEscapeLab(t)
	root := filepath.Join(g.dir, "root")
	programs := []string{filepath.Join(g.bin, "escapist")}
	for name := range strings.FieldsSeq(`bash cat chmod chown cp cut dd dirname echo env find git grep head id kill ln ls mkdir mkfifo mknod mount mv nsenter ps pwd python3
		readlink rm rmdir sed setsid sh sleep sort stat tail tar tee timeout touch truncate umount unshare wc`) {
		if _, err := exec.LookPath(name); err == nil {
			programs = append(programs, name)
		}
	}
	if err := makeRootfs(root, programs...); err != nil {
		t.Fatal(err)
	}
	for o := range outputs {
		if o != "" {
			g.addSandbox(o, "--software", root, "--outputs", o)
		}
	}
	g.runAll(attempts)
}

func TestSandboxEscapeFromOtherRootUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestSandboxEscapeFromOtherRoot")
}

// rootAttempts look for the machine from another root file system.
var rootAttempts = []escapeAttempt{
	{name: "the parents of the root are read", script: `cd / && cat ../../../..$LAB/home/.netrc; cat ..$REPO/.git/config`, succeeded: printsSecret},
	{name: "the root of process 1 is read", script: `for p in /proc/[0-9]*; do ls $p/root/ $p/cwd/; cat $p/root$LAB/home/.netrc; done`, succeeded: printsSecret},
	{name: "the source of the root file system is changed", script: `echo owned >/usr/bin/sh; rm -f /usr/bin/cat; echo owned >$LAB/root/usr/bin/sh; mount -o remount,bind,rw /usr; mv /etc /etc2`, succeeded: func(s *escapeRun) string {
		for _, name := range []string{"usr/bin/cat", "usr/bin/sh", "etc"} {
			if fi, err := os.Stat(filepath.Join(s.dir, "root", name)); err != nil || fi.Size() == int64(len(ownedText)) {
				return name + " of the root file system was changed"
			}
		}
		return ""
	}},
	{name: "the directories of the sandbox are moved away", script: `cd /; mv home home2; mv tmp tmp2; mv $LAB x; rm -rf $LAB/data; mv $LAB/data $LAB/data2; ls $LAB`, succeeded: printsText("secret")},
}
