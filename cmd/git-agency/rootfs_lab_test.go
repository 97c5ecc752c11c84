package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// makeRootfs makes a root file system with programs of this machine, under their names, and the libraries that they need.
func makeRootfs(dir string, programs ...string) error {
	for _, name := range []string{"etc", "home", "proc", "tmp", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, name := range programs {
		program, err := exec.LookPath(name)
		if err == nil {
			program, err = filepath.EvalSymlinks(program)
		}
		if err != nil {
			return err
		}
		if err := copyInto(program, filepath.Join(dir, "usr/bin", filepath.Base(name))); err != nil {
			return err
		}
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			continue // it is linked statically, or a script
		}
		for word := range strings.FieldsSeq(string(out)) {
			if !filepath.IsAbs(word) {
				continue
			}
			if err := copyInto(word, filepath.Join(dir, word)); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyInto copies an executable file, unless it is there already.
func copyInto(from, to string) (err error) {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// cmdRootfs makes a root file system: rootfs <dir> <program>…
func cmdRootfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rootfs <dir> <program>…")
	}
	ts.Check(makeRootfs(ts.MkAbs(args[0]), args[1:]...))
}
