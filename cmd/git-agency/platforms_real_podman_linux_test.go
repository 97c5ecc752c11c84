//go:build platforms

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealPodmanImage makes an image with podman, and runs commands with its software. It uses its own storage, and neither registry
// nor daemon.
func TestRealPodmanImage(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		if out, err := exec.Command(filepath.Join("..", "..", "scripts", "podman.sh"), "install").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l := newLab(t)
	podman := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("podman", args...)
		cmd.Dir, cmd.Env = l.repo, l.env
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("podman %s: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	storage, runtime := filepath.Join(l.dir, "storage"), filepath.Join(l.dir, "runtime")
	for _, dir := range []string{storage, runtime} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l.write(filepath.Join(l.dir, "storage.conf"), "[storage]\ndriver = \"vfs\"\ngraphroot = \""+storage+"/g\"\nrunroot = \""+storage+"/r\"\n[storage.options.vfs]\nignore_chown_errors = \"true\"\n")
	l.env = append(l.env, "PATH="+l.bin+":"+systemPath, "CONTAINERS_STORAGE_CONF="+filepath.Join(l.dir, "storage.conf"), "XDG_RUNTIME_DIR="+runtime)
	t.Cleanup(func() { podman("system", "reset", "--force") }) // its directories can be written by podman alone

	root := filepath.Join(l.dir, "root")
	if err := makeRootfs(root, "sh", "cat", "git", "ls"); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(root, "etc", "marker"), "of the image\n")
	archive := filepath.Join(l.dir, "image.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	podman("import", "--quiet", "--change", "ENV PATH=/usr/bin:/opt/bin", "--change", "ENV COLOUR=blue", archive, "localhost/tools:1")

	l.agency("worktree", "create", "wt")
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
	if left := podman("ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	podman("rmi", "localhost/tools:1")
	l.agency("exec", id, "--", "cat", "/etc/marker") // it was unpacked
	l.agency("land", id)
	l.agency("prune", "--expire", "now")
	if _, err := os.Stat(filepath.Join(l.data, "software")); err == nil {
		t.Error("the unpacked image is left")
	}
}

// TestRealPodmanImageUnprivileged makes the image without root.
func TestRealPodmanImageUnprivileged(t *testing.T) { rerunUnprivileged(t, "TestRealPodmanImage") }
