package procfs

import (
	"os"
	"os/exec"
	"testing"
)

func TestIdentityTellsProcessesApart(t *testing.T) {
	t.Parallel()
	if BootID() == "" {
		t.Skip("no /proc")
	}
	mine := Identity(os.Getpid())
	if mine == "" || !IsAlive(os.Getpid(), mine) {
		t.Errorf("this process has the identity %q", mine)
	}
	for name, other := range map[string]string{"another start": mine + "0", "another boot": "00000000" + mine[8:], "unknown": ""} {
		if IsAlive(os.Getpid(), other) {
			t.Errorf("%s counts as this process", name)
		}
	}
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid, identity := child.Process.Pid, Identity(child.Process.Pid)
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if IsAlive(pid, identity) || Identity(pid) != "" {
		t.Error("a process that has ended counts as alive")
	}
}
