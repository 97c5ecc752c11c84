package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerImage is an image for the containers.
const containerImage = "localhost/tools:1"

// containerComparisons measures runs in containers, if podman is installed. Its storage is in the directory of the bench, and its
// containers have the programs of this machine; see scripts/podman.sh.
func (b *bench) containerComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	if _, err := exec.LookPath("podman"); err != nil {
		fmt.Println("runs in containers are not measured: there is no podman")
		return nil, true, nil
	}
	script, err := filepath.Abs("scripts/podman.sh")
	if err != nil {
		return nil, false, err
	}
	storage, _, err := b.run(ctx, command{argv: []string{script, "storage", filepath.Join(b.root, "podman")}, dir: b.root})
	if err != nil {
		return nil, false, err
	}
	b.env = append(b.env, strings.Fields(storage)...)
	if _, _, err := b.run(ctx, command{argv: []string{script, "image", containerImage}, dir: b.root}); err != nil {
		return nil, false, err
	}
	out, _, err := b.run(ctx, command{argv: []string{script, "options"}, dir: b.root})
	options := strings.Fields(out)
	if _, _, tryErr := b.run(ctx, command{argv: slices.Concat([]string{"podman", "run", "--rm"}, options, []string{containerImage, "true"}), dir: b.root}); tryErr != nil {
		fmt.Printf("runs in containers are not measured: %v\n", tryErr)
		return nil, true, err
	}
	small, err := b.newRepository(ctx, "containers-200", 200)
	if err != nil {
		return nil, false, err
	}
	if err := small.useContainers(ctx, options); err != nil {
		return nil, false, err
	}
	return []comparison{
		{
			title: "submit a run to podman", rounds: 10, promise: promise{extra: submitExtra}, baseName: "start and podman run",
			base: sum(small.startSandbox, small.podmanRun(options)), tool: small.submitContainer,
		},
	}, true, nil
}

// useContainers configures the repository for runs in containers.
func (r *repository) useContainers(ctx context.Context, options []string) error {
	_, _, err := r.b.git(ctx, r.dir, "config", "agency.platform.podman.image", containerImage)
	for _, option := range options {
		_, _, addErr := r.b.git(ctx, r.dir, "config", "--add", "agency.platform.podman.args", option)
		err = errors.Join(err, addErr)
	}
	return err
}

// podmanRun returns a timedRun that starts a container, and removes it untimed.
func (r *repository) podmanRun(options []string) timedRun {
	argv := slices.Concat([]string{"podman", "run", "--detach"}, options, []string{containerImage, "true"})
	return func(ctx context.Context) (time.Duration, error) {
		out, took, err := r.b.run(ctx, command{argv: argv, dir: "/"})
		if err == nil {
			_, _, err = r.b.run(ctx, command{argv: []string{"podman", "rm", "--force", strings.TrimSpace(out)}, dir: "/"})
		}
		return took, err
	}
}

// submitContainer submits a run in a container, and waits for its end and discards it untimed.
func (r *repository) submitContainer(ctx context.Context) (time.Duration, error) {
	id, took, err := r.b.agency(ctx, r.dir, "run", worktreeName, "--platform", "podman", "--detach", "--", "/bin/true")
	id = strings.TrimSpace(id)
	for _, end := range []string{"wait", "discard"} {
		if err == nil {
			_, _, err = r.b.agency(ctx, r.dir, end, id)
		}
	}
	return took, err
}
