// Nosync runs a command in which fsync and its like succeed at once and do nothing.
//
// The tests of git-agency sync thousands of small files. On a file system that is mounted with discard, each sync also waits for the
// device to discard the blocks of the files that other tests removed meanwhile, and the tests take three times as long. No test can
// see the difference: it would take a crash of the machine.
//
// usage: nosync <command> [<argument>…]
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nosync:", err)
		os.Exit(1)
	}
}

// run replaces this process by a command. Where syncs cannot be skipped, it says so and runs the command with them.
func run(argv []string) error {
	if len(argv) == 0 {
		return errors.New("usage: nosync <command> [<argument>…]")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := skipSyncs(); err != nil {
		fmt.Fprintln(os.Stderr, "nosync: the command syncs:", err)
	}
	return syscall.Exec(path, argv, os.Environ())
}
