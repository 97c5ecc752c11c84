//go:build platforms

package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The tests of this file need a real podman, which scripts/podman.sh installs.

const podmanScript = "../../../../scripts/podman.sh"

// podmanLab is a podman with storage of its own and an image.
type podmanLab struct{ env, options []string }

// realPodmanLab returns a lab for all tests.
var realPodmanLab = sync.OnceValues(func() (lab podmanLab, err error) {
	dir, err := os.MkdirTemp("", "podman-*")
	if err != nil {
		return lab, err
	}
	lab.env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir}
	run := func(argv ...string) (string, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stderr = lab.env, os.Stderr
		out, err := cmd.Output()
		return string(out), err
	}
	afterTests = append(afterTests, func() {
		_, _ = run("podman", "system", "reset", "--force") // its directories can be removed by podman alone
		_ = os.RemoveAll(dir)                              // of the user's temporary directory
	})
	if _, err := run(podmanScript, "install"); err != nil {
		return lab, err
	}
	storage, err := run(podmanScript, "storage", filepath.Join(dir, "storage"))
	if err != nil {
		return lab, err
	}
	lab.env = append(lab.env, strings.Fields(storage)...)
	if _, err := run(podmanScript, "image", "localhost/tools:1"); err != nil {
		return lab, err
	}
	options, err := run(podmanScript, "options")
	lab.options = strings.Fields(options)
	return lab, err
})

func realPodman(t *testing.T) site {
	t.Helper()
	lab, err := realPodmanLab()
	must(t, err)
	return podmanSite(lab.env, "localhost/tools:1", lab.options...)
}

func TestRealPodmanConforms(t *testing.T) {
	t.Parallel()
	testDriver(t, realPodman, conformance)
}

func TestRealPodman(t *testing.T) {
	t.Parallel()
	testDriver(t, realPodman, podmanTests)
}
