package proc

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Look finds a program: an absolute path is checked, a name is looked up on the PATH of the given
// environment. It is an executable file, and nothing is run to find out. Elements of PATH that are
// empty or relative are passed over: what they mean depends on where one stands, and one may stand in
// a tree that an agent wrote.
func Look(env []string, program string) (string, error) {
	switch {
	case program == "":
		return "", errors.New("no program named")
	case filepath.IsAbs(program):
		if err := executable(program); err != nil {
			return "", err
		}
		return program, nil
	case strings.Contains(program, "/"):
		return "", fmt.Errorf("%s is neither a name nor an absolute path", program)
	}
	for path := range onPath(env, program) {
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", program)
}

// onPath yields where a program could be, in the order of PATH.
func onPath(env []string, program string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, dir := range filepath.SplitList(Variable(env, "PATH")) {
			if filepath.IsAbs(dir) && !yield(filepath.Join(dir, program)) {
				return
			}
		}
	}
}

// executable says why a path is not a program that we may run.
func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	// With a slash in it nothing is looked up: this asks the kernel whether we may.
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// Variable finds a variable in a given environment; the last of several wins, as it does for a program
// that is started with them.
func Variable(env []string, name string) string {
	value, _ := LookupVariable(env, name)
	return value
}

// LookupVariable tells one that is empty from one that is not there.
func LookupVariable(env []string, name string) (value string, set bool) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
