package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCommandRunsWithoutSyncs syncs a file in /proc, which fails unless the kernel skips it.
func TestCommandRunsWithoutSyncs(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "nosync")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat("/proc/version"); err != nil {
		t.Skip("no /proc")
	}
	out, err := exec.Command(program, "sh", "-c", "sync /proc/version; echo synced: $?; exit 3").CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 3 || string(out) != "synced: 0\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
