package proc

import (
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"golang.org/x/sys/unix"
)

// RunningTasks maps the label of every supervisor that has a task to the time when its oldest task began. It reads /proc
// and no record, so that a task counts as long as its processes exist, also if its git-agency process was killed.
// Namespaces without a program do not count: commands that only read git state open them too.
func RunningTasks() map[string]time.Time {
	running, inits := map[string]time.Time{}, map[int]string{}
	boot := bootTime()
	note := func(label string, s procfs.Stat) {
		began := boot.Add(s.Started)
		if oldest, known := running[label]; !known || began.Before(oldest) {
			running[label] = began
		}
	}
	all, _ := procfs.PIDs()
	for _, pid := range all {
		args := procfs.ReadNULList(pid, "cmdline")
		switch {
		case len(args) < 2 || args[0] != supervisorName || !hasOpen(pid, args[1]):
		case len(args) > 2 && args[2] == roleInit:
			inits[pid] = args[1]
		case len(args) == 2:
			if s, there := procfs.ReadStat(pid); there && !s.IsDead() {
				note(args[1], s)
			}
		}
	}
	if len(inits) == 0 {
		return running
	}
	for _, pid := range all {
		if s, there := procfs.ReadStat(pid); there && !s.IsDead() && inits[s.Parent] != "" {
			note(inits[s.Parent], s)
		}
	}
	return running
}

// bootTime returns the time when the machine was started.
func bootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano())).Round(0)
}
