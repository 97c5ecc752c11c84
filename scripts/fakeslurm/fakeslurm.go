// Package fakeslurm is a simulated Slurm for tests: programs that take the place of sbatch, squeue, sacct, scancel, srun,
// scontrol and sinfo, and slurmlab, by which a test makes nodes and jobs fail.
//
// The state of the cluster is in the directory that the variable SLURM_CONF names, one per test. Jobs run as processes of
// this machine in the background, each below a slurmstepd that records how it ends; KillAll ends them all. An option that
// the package does not know makes a command fail, so that the commands of a driver are checked as well.
//
// A test binary registers Programs in its TestMain, as commands of testscript or by itself. The package needs Linux.
package fakeslurm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DirVariable names the state directory. It is the variable by which the commands of Slurm find the configuration of their
// cluster, so that a driver that cleans the environment leaves it there.
const DirVariable = "SLURM_CONF"

// Files of the state directory that a test may write.
const (
	// EnvironmentFile has variables that every job gets on its node besides those that it was submitted with, a line NAME=value for
	// each. A prolog of tasks may set such variables. Those of sbatch win.
	EnvironmentFile = "environment"

	// KillWaitFile holds the seconds between SIGTERM and SIGKILL of jobs that are submitted; 30 without it.
	KillWaitFile = "kill-wait"
)

// program is a command of Slurm.
type program func(c *cluster, args []string, out io.Writer) error

var programs = map[string]program{
	"sbatch": sbatch, "squeue": squeue, "sacct": sacct, "scancel": scancel, "srun": srun, "scontrol": scontrol, "sinfo": sinfo, "slurmlab": slurmlab,
	stepd: slurmstepd,
}

// Programs returns the main function of each program, by its name. They end the process.
func Programs() map[string]func() {
	mains := map[string]func(){}
	for name := range programs {
		mains[name] = func() { os.Exit(Main(name, os.Args[1:])) }
	}
	return mains
}

// Main runs a program and returns its exit code.
func Main(name string, args []string) int {
	run, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "fakeslurm: there is no program %s\n", name)
		return 2
	}
	c, err := openCluster(os.Getenv(DirVariable))
	if err == nil {
		err = run(c, args, os.Stdout)
	}
	if err == nil {
		return 0
	}
	var exited *exitError
	if errors.As(err, &exited) {
		return exited.code
	}
	fmt.Fprintf(os.Stderr, "%s\n", err)
	return 1
}

// exitError is the exit code of a program that ran for a command, and has said why it failed.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprint("exit code ", e.code) }

// refuse returns an error with words of Slurm, which look as they like.
func refuse(words string) error { return errors.New(words) }

// Install makes a directory with links to this test binary by the names of the programs, for tests that do not use testscript, and
// returns it.
func Install(dir string) (bin string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	for name := range programs {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// options are the parsed arguments of a program.
type options map[string]string

// parseOptions parses "--name" and "--name=value". known lists the names, with "=" after those that have a value. Arguments
// after the options are returned too; a first word that is no option begins them.
func parseOptions(program string, args []string, known ...string) (options, []string, error) {
	o := options{}
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			return o, args[i:], nil
		}
		name, value, hasValue := strings.Cut(arg, "=")
		want := name
		if hasValue {
			want += "="
		}
		if !slices.Contains(known, want) {
			return nil, nil, fmt.Errorf("%s: the simulated Slurm does not know the option %s", program, arg)
		}
		o[name] = value
	}
	return o, nil, nil
}

func (o options) has(name string) bool { _, ok := o[name]; return ok }
