package procfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Identity returns a text that identifies a process together with its id, also after a restart of the machine: the boot
// and the time of its start. It is empty if the process is gone, and where there is no /proc.
func Identity(pid int) string {
	s, ok := ReadStat(pid)
	if !ok || s.IsDead() {
		return ""
	}
	return BootID() + ":" + strconv.FormatInt(s.Started.Milliseconds(), 10)
}

// IsAlive reports whether the process with this id is still the one that had this identity. Where there is no /proc, any
// process with the id counts.
func IsAlive(pid int, identity string) bool {
	if pid <= 0 {
		return false
	}
	if BootID() == "" {
		err := syscall.Kill(pid, 0)
		return err == nil || errors.Is(err, syscall.EPERM)
	}
	return identity != "" && Identity(pid) == identity
}

// BootID identifies this boot of the machine; empty where there is no /proc.
func BootID() string { return readBootID() }

var readBootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-")
	return id
})
