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

// LookPath finds a program: it checks an absolute path, and looks up a name on the PATH of env. It returns an executable
// file without running anything. Empty and relative elements of PATH are skipped: they depend on the current directory,
// which may be a tree that an agent wrote.
func LookPath(env []string, program string) (string, error) {
	switch {
	case program == "":
		return "", errors.New("no program given")
	case filepath.IsAbs(program):
		if err := checkExecutable(program); err != nil {
			return "", err
		}
		return program, nil
	case strings.Contains(program, "/"):
		return "", fmt.Errorf("%s is neither a name nor an absolute path", program)
	}
	for path := range pathCandidates(env, program) {
		if checkExecutable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", program)
}

// pathCandidates yields the paths at which a program could be, in the order of PATH.
func pathCandidates(env []string, program string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, dir := range filepath.SplitList(Getenv(env, "PATH")) {
			if filepath.IsAbs(dir) && !yield(filepath.Join(dir, program)) {
				return
			}
		}
	}
}

// checkExecutable returns an error that says why path is not a program that we may execute.
func checkExecutable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	// exec.LookPath does not search for a name with a slash; it asks the kernel whether we may execute the file.
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// Getenv returns a variable of env; the last of several entries counts, as it does for a program started with env.
func Getenv(env []string, name string) string {
	value, _ := LookupEnv(env, name)
	return value
}

// LookupEnv is Getenv that tells an empty variable from an unset one.
func LookupEnv(env []string, name string) (value string, set bool) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
