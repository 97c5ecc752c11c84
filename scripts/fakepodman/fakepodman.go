// Package fakepodman is a simulated podman for tests. Its containers are processes of this machine in the background, with the files of
// this machine: a program that a bind mount shows to the container is run from where it really is, and a volume is a directory.
//
// The state is in the directory that the variable FAKEPODMAN_DIR names, one per test; KillAll ends all containers. What the package does
// not know makes a command fail, so that the commands of a driver are checked as well.
//
// A test binary registers Programs in its TestMain, as commands of testscript or by itself. The package needs Linux.
package fakepodman

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/scripts/shellscript"
)

// DirVariable names the state directory.
const DirVariable = "FAKEPODMAN_DIR"

// EnvironmentFile of the state directory has the variables that containers get, a line NAME=value for each. A test writes it.
const EnvironmentFile = "environment"

// HiddenFile of the state directory names a directory that the containers' machine does not have. A test writes it.
const HiddenFile = "hidden"

// Image is the only image.
const Image = "localhost/tools:1"

// Name is the program that takes the place of podman.
const Name = "fakepodman"

// conmon is the program that supervises one container.
const conmon = "fakepodman-conmon"

// Programs returns the main function of each program, by its name. They end the process.
func Programs() map[string]func() {
	mains := map[string]func(){}
	for name, run := range map[string]func(*service, []string) error{Name: podman, conmon: supervise} {
		mains[name] = func() { os.Exit(runMain(run)) }
	}
	return mains
}

// Install makes a directory with the program podman, which runs this test binary, and returns it.
func Install(dir string) (bin string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	script := "#!/bin/sh\nexec " + Name + ` "$@"` + "\n"
	return bin, errors.Join(os.Symlink(self, filepath.Join(bin, Name)), shellscript.Write(filepath.Join(bin, "podman"), script))
}

func runMain(run func(*service, []string) error) (exit int) {
	s, err := open(os.Getenv(DirVariable))
	if err == nil {
		err = run(s, os.Args[1:])
	}
	var failed *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		fmt.Fprintf(os.Stderr, "Error: %s\n", failed.message)
		return failed.code
	}
	fmt.Fprintf(os.Stderr, "Error: %v\n", err)
	return 125
}

// exitError is a failure with an exit code other than 125.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

// podman runs a command of the client.
func podman(s *service, args []string) error {
	if len(args) == 0 {
		return errors.New("no command")
	}
	command := args[0]
	if command == "container" || command == "image" {
		command += " " + args[1]
		args = args[1:]
	}
	known := map[string][]string{
		"run": {
			"--detach", "--name=", "--pull=", "--workdir=", "--log-driver=", "--security-opt=", "--mount=", "--entrypoint=", "--hostname=", "--network=",
			"--label=", "--env=", "--stop-signal=", "--stop-timeout=", "--http-proxy=",
		},
		"container inspect": {"--format="}, "image inspect": {"--format="}, "version": {"--format="}, "kill": {"--signal="},
		"logs": {"--follow="}, "stop": {"-t="}, "rm": {"--force", "--volumes"},
	}[command]
	if known == nil {
		return fmt.Errorf("the simulated podman does not know the command %s", command)
	}
	o, words, err := parseOptions(args[1:], known)
	if err != nil {
		return err
	}
	switch command {
	case "run":
		return s.run(o, words)
	case "container inspect":
		return s.inspect(o.last("--format"), words)
	case "image inspect":
		if len(words) != 1 || words[0] != Image {
			return fmt.Errorf("inspecting object: %s: image not known", strings.Join(words, " "))
		}
		fmt.Println(strings.Repeat("1d", 32))
		return nil
	case "version":
		fmt.Println("4.3.1")
		return nil
	}
	if len(words) != 1 {
		return fmt.Errorf("%s needs one container", command)
	}
	switch command {
	case "kill":
		return s.kill(words[0], o.last("--signal"))
	case "logs":
		return s.logs(words[0], o.last("--follow") == "true", os.Stdout, os.Stderr)
	case "stop":
		return s.stop(words[0], o.last("-t"))
	}
	return s.remove(words[0], o.has("--force"))
}

// options are the parsed options of a command, in the order in which they were given.
type options []struct{ name, value string }

func (o options) has(name string) bool {
	return slices.ContainsFunc(o, func(opt struct{ name, value string }) bool { return opt.name == name })
}

func (o options) all(name string) (values []string) {
	for _, opt := range o {
		if opt.name == name {
			values = append(values, opt.value)
		}
	}
	return values
}

func (o options) last(name string) string {
	values := o.all(name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// parseOptions parses the options before the first word of a command line. known lists the names, with "=" after those that have a value.
func parseOptions(args, known []string) (o options, words []string, err error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, hasValue := strings.Cut(args[0], "=")
		args = args[1:]
		switch {
		case slices.Contains(known, name) && !hasValue:
		case slices.Contains(known, name+"=") && hasValue:
		case slices.Contains(known, name+"=") && len(args) > 0:
			value, args = args[0], args[1:]
		default:
			return nil, nil, fmt.Errorf("unknown flag: %s", name)
		}
		o = append(o, struct{ name, value string }{name, value})
	}
	return o, args, nil
}

// copyFrom copies a file from a position on, and returns the position of its end.
func copyFrom(path string, offset int64, to io.Writer) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return offset, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	n, err := io.Copy(to, f)
	return offset + n, err
}
