package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/terminal"
	"golang.org/x/sys/unix"
)

// openTerminal opens the slave of a new pseudo-terminal, whose output is not read.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { must(t, master.Close()) })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.FormatUint(uint64(number), 10), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { must(t, slave.Close()) })
	return slave
}

// TestTaskWithholdsTerminals checks which streams of a task are the terminals given to it.
func TestTaskWithholdsTerminals(t *testing.T) {
	t.Parallel()
	one, other := openTerminal(t), openTerminal(t)
	dir, err := os.Open(t.TempDir())
	must(t, err)
	defer dir.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(t, err)
	defer null.Close()
	for name, c := range map[string]struct {
		stdout, stderr *os.File
		same           bool // stdout and stderr are the same file
	}{
		"one terminal":      {one, one, true},
		"two terminals":     {one, other, false},
		"stderr is no such": {one, null, false},
		"stdout is no such": {null, one, false},
		"neither is":        {null, null, true},
	} {
		t.Run(name, func(t *testing.T) {
			report := filepath.Join(t.TempDir(), "report")
			_, err := Task{
				Argv: []string{"sh", "-c", `out=$(readlink /proc/$$/fd/1) err=$(readlink /proc/$$/fd/2); echo "$out $err" >"$0"`, report}, Dir: dir, Env: os.Environ(),
				Stdout: c.stdout, Stderr: c.stderr,
			}.Run(t.Context())
			must(t, err)
			data, err := os.ReadFile(report)
			must(t, err)
			files := strings.Fields(string(data))
			if len(files) != 2 || (files[0] == files[1]) != c.same {
				t.Fatalf("stdout and stderr are %q", files)
			}
			for i, given := range []*os.File{c.stdout, c.stderr} {
				if terminal.Is(given) == (files[i] == given.Name()) || terminal.Is(given) != strings.HasPrefix(files[i], "/dev/pts/") {
					t.Errorf("stream %d is %s, given was %s", i+1, files[i], given.Name())
				}
			}
		})
	}
	if _, err := (Task{Argv: []string{"true"}, Dir: dir, Stdin: one}).Run(t.Context()); err == nil {
		t.Error("a terminal was passed as standard input")
	}
}
