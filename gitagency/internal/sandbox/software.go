package sandbox

import (
	"cmp"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// fillSoftware completes a request for walls with another root file system.
func (s *Sandbox) fillSoftware(req *walls.Request, policy *settings.Policy, dir string) error {
	if err := rootfs.Check(dir); err != nil {
		return &walls.RefusedError{
			Wall: walls.OtherRoot, Key: "--software", Path: dir, Why: err.Error(),
			Remedy: "unpack an image there, as in: podman export $(podman create <image>) | tar -x -C <directory>",
		}
	}
	env := s.Repo.Opts.Env
	policy.ForOtherRoot(env)
	req.Software = dir
	if program, err := os.Executable(); err == nil {
		req.Program = program
	}
	user := rootfs.User{UID: os.Geteuid(), GID: os.Getegid(), Name: cmp.Or(proc.Getenv(env, "USER"), proc.Getenv(env, "LOGNAME")), Home: proc.Getenv(env, "HOME")}
	for _, f := range rootfs.NameUser(dir, user) {
		req.SoftwareFiles = append(req.SoftwareFiles, walls.FilteredFile{Path: f.Path, Text: []byte(f.Text)})
	}
	return nil
}

// explainSoftware returns the refusal of another root file system as that of the primitive; nil for any other error.
func explainSoftware(err error) error {
	var refused *walls.RefusedError
	if !errors.As(err, &refused) || refused.Wall != walls.OtherRoot {
		return nil
	}
	return &fault.UnsupportedError{Primitive: "software", Value: refused.Path, Why: refused.Why + "; " + refused.Remedy}
}

// commandRoot returns the root directory of the commands; empty for that of the machine.
func (w Walls) commandRoot() string {
	if w.applied.Software.Dir == "" {
		return ""
	}
	return w.applied.Software.Mount
}

// withoutLostSoftware returns the primitives for walls behind which only git-agency's own processes run, which need no other root
// file system: one that was removed must not keep work from being imported.
func withoutLostSoftware(prims store.Primitives) store.Primitives {
	if rootfs.IsOther(prims.Software) && rootfs.Check(prims.Software) != nil {
		prims.Software = settings.SoftwareHost
	}
	return prims
}
