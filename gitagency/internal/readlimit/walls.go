package readlimit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Walls say what a program that reads data of an agent can reach: it can read the directories of the system and the paths in
// read, and change those in write. It can open no other file, as far as the kernel has Landlock, and no socket, as far as it
// has seccomp filters; it gets no variable of the environment that it does not need.
type Walls struct {
	read, write []string
	appendTo    []string // files that exist and can be written
}

// NewWalls returns walls around a program that is given a part of env; nil where it does not run behind walls. Paths that
// do not exist are left out.
func NewWalls(program string, env, read, write []string) *Walls {
	if !worksBehindWalls(program) {
		return nil
	}
	return &Walls{read: append(filesOf(program), read...), write: write, appendTo: traceFiles(env)}
}

// MissingWalls says which walls NewWalls cannot build around a program, and why; nothing if it builds all.
func MissingWalls(program string) []string {
	switch {
	case !wallsSupported:
		return []string{"this system has none"}
	case !worksBehindWalls(program):
		return []string{program + " does not run behind them"}
	}
	return missingFeatures()
}

// traceFiles creates and lists the files to which git writes a trace, because the user wants one.
func traceFiles(env []string) (files []string) {
	for _, kv := range env {
		name, file, _ := strings.Cut(kv, "=")
		if !isTraceVariable(name) || !filepath.IsAbs(file) {
			continue
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o666)
		if err != nil {
			continue // git warns about it
		}
		fi, err := f.Stat()
		if errors.Join(err, f.Close()) == nil && fi.Mode().IsRegular() { // there are no rules for pipes
			files = append(files, file)
		}
	}
	return files
}

func isTraceVariable(name string) bool { return strings.HasPrefix(name, "GIT_TRACE") }

// filesOf lists a program and, where it is in a directory bin, the directories of the libraries beside that.
func filesOf(program string) []string {
	files := []string{program}
	if file, err := filepath.EvalSymlinks(program); err == nil && !isBelow(systemDirs, file) {
		files = append(files, file)
		if bin := filepath.Dir(file); filepath.Base(bin) == "bin" {
			for _, name := range []string{"lib", "lib64", "libexec"} {
				files = append(files, filepath.Join(filepath.Dir(bin), name))
			}
		}
	}
	return files
}

func isBelow(dirs []string, file string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
}

// worksBehindWalls reports whether a program that was found on PATH runs with nothing but the directories of the system. A
// program in another place, or a script, may need any file or variable; whether it does is tried once.
var worksBehindWalls = func() func(program string) bool {
	var mu sync.Mutex
	known := map[string]bool{}
	return func(program string) bool {
		mu.Lock()
		defer mu.Unlock()
		works, tried := known[program]
		if !tried {
			works = wallsSupported && (isSystemProgram(program) || canRunBehindWalls(program))
			known[program] = works
		}
		return works
	}
}()

// isSystemProgram reports whether a program is an executable, not a script, in a directory of the system.
func isSystemProgram(program string) bool {
	file, err := filepath.EvalSymlinks(program)
	if err != nil || !isBelow(systemDirs, file) {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.Read(magic)
	return err == nil && string(magic) == "\x7fELF"
}

// canRunBehindWalls tries a program that knows the argument "version".
func canRunBehindWalls(program string) bool {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	walls := &Walls{read: filesOf(program)}
	res, err := proc.Run(ctx, proc.Command{Argv: []string{program, "version"}, Dir: "/", Env: walls.Environment(os.Environ(), "/"), Restrict: walls.restrict})
	return err == nil && res.ExitCode == 0
}

// keptVariables are the variables of the environment that a program behind walls gets, besides those for a trace.
var keptVariables = []string{"PATH", "LD_LIBRARY_PATH", "LC_ALL", "TZ", "GIT_EXEC_PATH", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"}

// Environment returns the part of an environment that a git behind walls gets. It has no file of the user's to read: its
// home is a directory without configuration.
func (w *Walls) Environment(env []string, home string) []string {
	var kept []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(keptVariables, name) || isTraceVariable(name) {
			kept = append(kept, kv)
		}
	}
	return append(kept, "HOME="+home, "XDG_CONFIG_HOME="+home, "GIT_CONFIG_NOSYSTEM=1")
}
