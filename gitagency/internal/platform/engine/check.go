package engine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// check refuses a job that no script can hold or whose name could not be looked up.
func (j Job) check() error {
	if err := checkName(j.Name); err != nil {
		return err
	}
	switch {
	case len(j.Argv) == 0:
		return fmt.Errorf("job %s has no program", j.Name)
	case j.LogDir != "" && !filepath.IsAbs(j.LogDir):
		return fmt.Errorf("job %s: %s is not an absolute path", j.Name, j.LogDir)
	}
	words := slices.Concat(j.Argv, j.Programs, []string{j.LogDir})
	for _, path := range j.Paths {
		words = append(words, path.Source, path.Target)
	}
	for _, word := range words {
		// sbatch refuses scripts with "\r\n", and a shell does not pass a NUL.
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("job %s: %q has a control character", j.Name, word)
		}
	}
	if slices.Contains(append(slices.Clone(j.Programs), j.Argv[0]), "") {
		return fmt.Errorf("job %s has an empty program name", j.Name)
	}
	return nil
}

// checkName refuses a name that not every engine accepts.
func checkName(name string) error {
	const most = 128 // bytes of a name, which begins file names
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if name == "" || name[0] == '-' || len(name) > most || strings.Trim(name, letters) != "" {
		return fmt.Errorf("%q is not a name of a job", name)
	}
	return nil
}

// check refuses a request that makes no sense.
func (r LogsRequest) check() error {
	if r.Stream != Stdout && r.Stream != Stderr {
		return fmt.Errorf("%q is not a stream of a job", r.Stream)
	}
	if r.Offset < 0 {
		return fmt.Errorf("%d is not a position in a stream", r.Offset)
	}
	return nil
}
