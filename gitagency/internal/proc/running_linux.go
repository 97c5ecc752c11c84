package proc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Running lists the programs that run now and go by a name that is asked for, not counting this one. ok
// says whether that can be told at all. A program that ends meanwhile may be listed or not.
func Running(named func(name string) bool) (processes []Process, ok bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || !named(strings.TrimSuffix(string(name), "\n")) {
			continue
		}
		p := Process{PID: pid, Args: words(dir, "cmdline"), Env: words(dir, "environ")}
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err != nil || ended(string(stat)) {
			continue
		}
		if fi, err := os.Stat(dir); err == nil {
			p.UID = fi.Sys().(*syscall.Stat_t).Uid
		}
		switch p.Dir, err = os.Readlink(filepath.Join(dir, "cwd")); {
		case errors.Is(err, fs.ErrPermission):
			p.Dir = ""
		case err != nil:
			continue // it has ended
		}
		processes = append(processes, p)
	}
	return processes, len(entries) > 0
}

// ended reads the state in "pid (name) state …", where a name may hold anything: a zombie changes nothing
// any more.
func ended(stat string) bool {
	after := strings.TrimSpace(stat[strings.LastIndexByte(stat, ')')+1:])
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

func words(dir, name string) []string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
