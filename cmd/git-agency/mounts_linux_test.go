package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiscardRefusesMountInSandbox checks that discard refuses a sandbox with a mount below it: removing the sandbox would
// remove the files of the mounted directory.
func TestDiscardRefusesMountInSandbox(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.agency("start", "wt")
	cache := filepath.Join(l.dir, "cache")
	l.write(filepath.Join(cache, "precious"), "p\n")
	point := filepath.Join(l.agency("path", id), "build")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(cache, point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	o := l.try(nil, "git-agency", "discard", id)
	if o.code != 5 || !strings.Contains(o.stderr, "something is mounted at "+point) {
		t.Errorf("exited with %d: %s", o.code, o.stderr)
	}
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	l.agency("discard", id)
	if l.read(filepath.Join(cache, "precious")) != "p\n" {
		t.Error("the file in the mounted directory is gone")
	}
}

// newMountNamespace returns process attributes for new user and mount namespaces, in which a test may mount.
func newMountNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}
