package readlimit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
	"golang.org/x/sys/unix"
)

const wallsSupported = true

// systemDirs are the directories with programs and libraries.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"}

// systemFiles are other files that a program reads when it starts: the lists of libraries, the number of processors, the
// rules of git and the settings of OpenSSL.
var systemFiles = []string{
	"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path", "/etc/localtime", "/etc/gitattributes",
	"/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies",
	"/sys/devices/system/cpu", "/dev/urandom",
}

// restrict restricts the calling thread, as far as the kernel can.
func (w *Walls) restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if abi, err := landlock.ABI(); err == nil { // ABI 1 suffices: git renames files within a directory
		if err := w.enforceRules(min(abi, landlock.NewestABI)); err != nil {
			return err
		}
	}
	if seccomp.Available() != nil {
		return nil
	}
	return seccomp.InstallWithoutSockets()
}

// missingFeatures says which features of the kernel are missing for restrict.
func missingFeatures() []string {
	_, landlockErr := landlock.ABI()
	return describeMissing(landlockErr, seccomp.Available())
}

// describeMissing describes the features whose errors are not nil.
func describeMissing(landlockErr, seccompErr error) (missing []string) {
	if landlockErr != nil {
		missing = append(missing, fmt.Sprintf("without Landlock (%v) it can open all your files", landlockErr))
	}
	if seccompErr != nil {
		missing = append(missing, fmt.Sprintf("without seccomp (%v) it can open sockets", seccompErr))
	}
	return missing
}

func (w *Walls) enforceRules(abi int) (err error) {
	rules, err := landlock.NewRuleset(abi)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	for _, path := range slices.Concat(systemDirs, systemFiles, w.read) {
		if err := allow(rules, path, landlock.Read); err != nil {
			return err
		}
	}
	for _, path := range w.write {
		if err := allow(rules, path, landlock.Change); err != nil {
			return err
		}
	}
	for _, path := range w.appendTo {
		if err := allow(rules, path, landlock.WriteFile); err != nil {
			return err
		}
	}
	if err := allow(rules, "/dev/null", landlock.UseDevice); err != nil {
		return err
	}
	return rules.Enforce()
}

// allow allows rights at a path and below it, if it exists.
func allow(rules *landlock.Ruleset, path string, rights landlock.Rights) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // the program cannot open it either
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := errors.Join(rules.Allow(fd, rights), unix.Close(fd)); err != nil {
		return fmt.Errorf("landlock rule for %s: %w", path, err)
	}
	return nil
}
