//go:build platforms

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// podmanScriptVariable holds the text of scripts/podman.sh for a test that runs as another user, elsewhere.
const podmanScriptVariable = "TEST_PODMAN_SCRIPT"

// podmanScript returns the text of scripts/podman.sh.
func podmanScript(t *testing.T) string {
	t.Helper()
	if text := os.Getenv(podmanScriptVariable); text != "" {
		return text
	}
	text, err := os.ReadFile("../../scripts/podman.sh")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// podmanLab is a lab with a podman that has storage of its own.
type podmanLab struct {
	*lab
	variables []string // with which podman finds its storage
}

// newPodmanLab returns a lab with an integration worktree "wt". podman needs neither a registry nor a daemon.
func newPodmanLab(t *testing.T) podmanLab {
	t.Helper()
	if os.Getenv("TEST_RERUN") == "" {
		if out, err := exec.Command("../../scripts/podman.sh", "install").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l := podmanLab{lab: newLab(t)}
	l.variables = strings.Fields(l.script("storage", filepath.Join(l.dir, "storage")))
	l.env = append(append(l.env, "PATH="+l.bin+":"+systemPath), l.variables...)
	t.Cleanup(func() { l.podman("system", "reset", "--force") }) // its directories can be written by podman alone
	l.agency("worktree", "create", "wt")
	return l
}

// script runs scripts/podman.sh, and returns what it printed.
func (l podmanLab) script(args ...string) string {
	l.t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", podmanScript(l.t), "podman.sh"}, args...)...)
	cmd.Env = l.env
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s: %v", args, err)
	}
	return string(out)
}

// podman runs podman, and returns what it printed.
func (l podmanLab) podman(args ...string) string {
	l.t.Helper()
	cmd := exec.Command("podman", args...)
	cmd.Dir, cmd.Env = l.repo, l.env
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("podman %s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// requireNoContainers checks that no container is left.
func (l podmanLab) requireNoContainers() {
	l.t.Helper()
	if left := l.podman("ps", "--all", "--quiet"); left != "" {
		l.t.Errorf("containers are left: %s", left)
	}
}

// TestRealPodmanImage makes an image with podman, and runs commands with its software.
func TestRealPodmanImage(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
	}
	l := newPodmanLab(t)
	root := filepath.Join(l.dir, "root")
	if err := makeRootfs(root, "sh", "cat", "git", "ls"); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(root, "etc", "marker"), "of the image\n")
	archive := filepath.Join(l.dir, "image.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.podman("import", "--quiet", "--change", "ENV PATH=/usr/bin:/opt/bin", "--change", "ENV COLOUR=blue", archive, "localhost/tools:1")

	if o := l.try(nil, "git", "agency", "start", "wt", "--software", "example.com/none:1"); o.code != 1 || !strings.Contains(o.stderr, "podman pull example.com/none:1") {
		t.Errorf("an image that is missing: %+v", o)
	}
	if o := l.try(nil, "git", "agency", "preflight", "wt", "--software", "example.com/none:1", "--", "sh"); o.code != 6 || !strings.Contains(o.stdout+o.stderr, "podman pull example.com/none:1") {
		t.Errorf("preflight of an image that is missing: %+v", o)
	}
	id := l.agency("start", "wt", "--software", "localhost/tools:1", "--outputs", "none")
	if got := l.agency("exec", id, "--", "sh", "-c", "cat /etc/marker; echo $COLOUR $PATH; echo work >work; git add work; git commit -qm work"); !strings.HasPrefix(got, "of the image\nblue /usr/bin:/opt/bin") {
		t.Errorf("the command printed %q", got)
	}
	l.requireNoContainers()
	l.podman("rmi", "localhost/tools:1")
	l.agency("exec", id, "--", "cat", "/etc/marker") // it was unpacked
	l.agency("land", id)
	l.agency("prune", "--expire", "now")
	if _, err := os.Stat(filepath.Join(l.data, "software")); err == nil {
		t.Error("the unpacked image is left")
	}
}

// TestRealPodmanImageUnprivileged makes the image without root.
func TestRealPodmanImageUnprivileged(t *testing.T) { rerunUnprivileged(t, "TestRealPodmanImage") }
