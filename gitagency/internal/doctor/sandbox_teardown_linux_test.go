package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// rerunAsNobody also runs the test as the user nobody if this process is root: root ignores the permissions that the
// test is about.
func rerunAsNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A separate process makes the copy: a child that another test forks could inherit our descriptor for writing, and
	// exec would fail with ETXTBSY.
	if out, err := exec.CommandContext(t.Context(), "cp", exe, filepath.Join(dir, "test")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	exe = filepath.Join(dir, "test")
	tmp := filepath.Join(dir, "tmp")
	for _, err := range []error{
		os.Chmod(exe, 0o755), os.Mkdir(tmp, 0o755), os.Chown(tmp, nobody, nobody), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Exec and Teardown work whatever an agent leaves in .agency, where uploads are staged, and so do snapshots unless a
// directory is unreadable. Teardown keeps files from the stage in the trash.
func TestTeardownWithHostileAgencyDirectory(t *testing.T) {
	t.Parallel()
	rerunAsNobody(t)
	first := sandboxtest.New(t, core.Options{}).Sandbox
	for name, script := range map[string]string{
		"a stage with a FIFO":     `mkdir put-x; mkfifo put-x/old`,
		"a FIFO":                  `cd ..; rm -r .agency; mkfifo .agency`,
		"a file":                  `cd ..; rm -r .agency; echo x >.agency`,
		"mode 000":                `mkdir put-x; chmod 000 .`,
		"a stage of mode 000":     `mkdir put-x; chmod 000 put-x`,
		"mode 000 in a stage":     `mkdir -p put-x/old/d; chmod 000 put-x/old/d`,
		"a plan of mode 000":      `mkdir put-x; echo {} >put-x/plan.json; chmod 000 put-x/plan.json`,
		"a read-only directory":   `mkdir -p put-x/old/d ../d; echo x >put-x/old/d/f; chmod 555 ../d`,
		"an unreadable directory": `mkdir -p put-x/old/d ../d; echo x >put-x/old/d/f; chmod 000 ../d`,
	} {
		inv, err := creation.Start(t.Context(), first.Repo, creation.Request{Worktree: "wt"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sandbox.Open(first.Repo, inv.ID)
		if err != nil {
			t.Fatal(err)
		}
		s.Repo.Opts.Warn = func(m string) {
			if name != "an unreadable directory" {
				t.Errorf("%s: warned: %s", name, m)
			}
		}
		agency := filepath.Join(s.WorkDir(), ".agency")
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+agency+" && "+script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		if !strings.HasPrefix(script, "cd ..") { // without its marker it is not accepted as a sandbox
			if res, err := s.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"true"}}); err != nil || res.ExitCode != 0 {
				t.Errorf("%s: exec: %+v, %v", name, res, err)
			}
			if _, err := s.TakeSnapshot(t.Context(), snapshots.TakeRequest{}); err != nil && name != "an unreadable directory" {
				t.Errorf("%s: snapshot: %v", name, err)
			}
		}
		if err := Teardown(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(s.WorkDir()); !os.IsNotExist(err) {
			t.Errorf("%s: the sandbox is still there: %v", name, err)
		}
		if !strings.Contains(name, "directory") {
			continue
		}
		list := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", filepath.Dir(first.Repo.CommonDir), "ls-tree", "-r", "--name-only", core.TrashRef(s.ID))
		if out, err := list.Output(); err != nil || !strings.Contains(string(out), "d/f\n") {
			t.Errorf("%s: the trash holds %q, %v", name, out, err)
		}
	}
}
