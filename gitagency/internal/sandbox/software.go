package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/images"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// UseImage unpacks the image that the software of a sandbox names, if it names one and that is not unpacked, and sets its id. It
// is kept from being pruned until the result is closed.
func UseImage(ctx context.Context, r *core.Repository, prims *store.Primitives) (io.Closer, error) {
	if !prims.NamesImage() {
		return io.NopCloser(nil), nil
	}
	dir := images.Dir(r.Store.SoftwareDir())
	if id := prims.SoftwareImage; id != "" {
		held, err := dir.Hold(ctx, id)
		if err == nil {
			return held, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	engine, image, err := FindImage(ctx, r, *prims)
	if err != nil {
		return nil, explainImage(*prims, err)
	}
	held, err := dir.Use(ctx, engine, image)
	if err != nil {
		return nil, explainImage(*prims, err)
	}
	prims.SoftwareImage = image.ID
	return held, nil
}

// FindImage finds the image that the software of a sandbox names in the user's container engine. One that was pinned is found by its
// id.
func FindImage(ctx context.Context, r *core.Repository, prims store.Primitives) (engine images.Engine, image images.Image, err error) {
	name, err := r.Settings.ContainerEngine()
	if err != nil {
		return engine, image, err
	}
	if engine, err = images.FindEngine(r.Opts.Env, name); err == nil {
		image, err = engine.Inspect(ctx, cmp.Or(prims.SoftwareImage, prims.Software))
	}
	return engine, image, err
}

// explainImage returns an error of FindImage as that of the primitive, with what to type.
func explainImage(prims store.Primitives, err error) error {
	var missing *images.MissingError
	var none *images.NoEngineError
	var failed *images.ClientError
	why := ""
	switch {
	case errors.As(err, &missing) && prims.SoftwareImage != "":
		named := images.MissingError{Engine: missing.Engine, Reference: prims.Software}
		why = fmt.Sprintf("%s no longer has the image %.12s, with which the sandbox was started; to fetch it, unless another one has the name now: %s", missing.Engine, prims.SoftwareImage, named.FetchCommand())
	case errors.As(err, &missing):
		why = err.Error() + "; to fetch it: " + missing.FetchCommand()
	case errors.As(err, &none):
		why = err.Error() + "; a directory with an unpacked image needs none: --software <absolute path>"
	case errors.As(err, &failed):
		why = err.Error() + "; to try it by hand: " + failed.Line()
	default:
		return err
	}
	return &fault.UnsupportedError{Primitive: "software", Value: prims.Software, Why: why}
}

// SoftwareRoot returns the directory with the root file system of commands; empty for that of the machine. The error is about
// an image that is not unpacked.
func SoftwareRoot(r *core.Repository, prims store.Primitives) (string, error) {
	switch {
	case !prims.HasOtherRoot():
		return "", nil
	case !prims.NamesImage():
		return prims.Software, nil
	case prims.SoftwareImage == "":
		return "", errors.New("the image is not unpacked on this machine")
	}
	dir := images.Dir(r.Store.SoftwareDir())
	if !dir.Has(prims.SoftwareImage) {
		return "", fmt.Errorf("the image %.12s is not unpacked any more", prims.SoftwareImage)
	}
	return dir.Root(prims.SoftwareImage), nil
}

// CheckSoftware refuses another root file system that is not there, or is none.
func CheckSoftware(r *core.Repository, prims store.Primitives) error {
	dir, err := SoftwareRoot(r, prims)
	if err == nil && dir != "" {
		err = rootfs.Check(dir)
	}
	if err != nil {
		return &fault.UnsupportedError{Primitive: "software", Value: prims.Software, Why: err.Error()}
	}
	return nil
}

// fillSoftware completes a request for walls with another root file system, and returns the variables of its image.
func (s *Sandbox) fillSoftware(req *walls.Request, policy *settings.Policy, prims store.Primitives) (env []string, err error) {
	if !prims.HasOtherRoot() {
		return nil, nil
	}
	refuse := func(err error, remedy string) ([]string, error) {
		if s.ID != Placeholder(s.Repo).ID && !prims.NamesImage() { // the software of a sandbox cannot be changed
			remedy = "put it back, or take the work, which needs no software: git agency land " + s.ID
		}
		return nil, &walls.RefusedError{Wall: walls.OtherRoot, Key: walls.SoftwareFlag, Path: prims.Software, Why: err.Error(), Remedy: remedy}
	}
	dir, err := SoftwareRoot(s.Repo, prims)
	if err != nil {
		return refuse(err, "the next command unpacks it, if podman or docker has it")
	}
	if err := rootfs.Check(dir); err != nil {
		return refuse(err, walls.SoftwareRemedy)
	}
	if prims.NamesImage() {
		if env, err = images.Dir(s.Repo.Store.SoftwareDir()).Environment(prims.SoftwareImage); err != nil {
			return nil, err
		}
	}
	caller := s.Repo.Opts.Env
	policy.ForOtherRoot(caller)
	req.Software, req.SoftwareDir = dir, s.Repo.Store.SoftwareDir()
	if req.Program, err = os.Executable(); err != nil {
		return nil, err
	}
	user := rootfs.User{UID: os.Geteuid(), GID: os.Getegid(), Name: cmp.Or(proc.Getenv(caller, "USER"), proc.Getenv(caller, "LOGNAME")), Home: proc.Getenv(caller, "HOME")}
	for _, f := range rootfs.NameUser(dir, user) {
		req.SoftwareFiles = append(req.SoftwareFiles, walls.FilteredFile{Path: f.Path, Text: []byte(f.Text)})
	}
	return env, nil
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

// RestoredSoftware is the software of an ended sandbox that is to be restored.
type RestoredSoftware struct {
	io.Closer                  // lets its image be pruned if no record names it
	Prims     store.Primitives // as they are recorded
	Checked   store.Primitives // those of walls that can be built now
}

// UseRestored is UseImage for a sandbox that is to be restored. What it has kept is worth having also without its software: then no command
// can be run in it, and a warning says why.
func UseRestored(ctx context.Context, r *core.Repository, prims store.Primitives) (*RestoredSoftware, error) {
	s := &RestoredSoftware{Closer: io.NopCloser(nil), Prims: prims}
	held, err := UseImage(ctx, r, &s.Prims)
	if err == nil {
		s.Closer, err = held, CheckSoftware(r, s.Prims)
	}
	s.Checked = s.Prims
	if err != nil && context.Cause(ctx) == nil {
		r.Warn("no command can be run in the restored sandbox until its software is there again: %v", err)
		s.Checked, err = onMachine(prims), nil
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// onMachine returns primitives with the software of the machine.
func onMachine(prims store.Primitives) store.Primitives {
	prims.Software, prims.SoftwareImage = store.SoftwareHost, ""
	return prims
}

// ownPrimitives returns the primitives for walls behind which only git-agency's own processes run. They need no other root file system,
// but use one that is there, so that commands can join.
func (s *Sandbox) ownPrimitives(prims store.Primitives) store.Primitives {
	if CheckSoftware(s.Repo, prims) != nil {
		return onMachine(prims)
	}
	return prims
}

// enterForOwn enters the namespaces of the sandbox for git-agency's own processes. A root file system that was changed, so that walls cannot be
// built with it any more, must not keep work from being imported.
func (s *Sandbox) enterForOwn(ctx context.Context, h *Handle) (*nsSession, error) {
	h.Prims = s.ownPrimitives(h.Prims)
	in, err := s.enterNamespace(ctx, h)
	if err == nil || !h.Prims.HasOtherRoot() || context.Cause(ctx) != nil || fault.Is[*fault.BusyError](err) {
		return in, err
	}
	h.Prims = onMachine(h.Prims)
	in, again := s.enterNamespace(ctx, h)
	if again != nil {
		return nil, errors.Join(err, again)
	}
	return in, nil
}

// pinImage records the image that the software of a sandbox names, if it was not known when the sandbox was made: that of a run on another
// machine is on that machine.
func (s *Sandbox) pinImage(prims store.Primitives) error {
	if !prims.NamesImage() {
		return nil
	}
	return s.Repo.Store.UpdateInvocationMetaIf(s.Repo.ID, s.ID, func(m *store.InvocationMeta) bool {
		isNew := m.Primitives.SoftwareImage == ""
		m.Primitives.SoftwareImage = cmp.Or(m.Primitives.SoftwareImage, prims.SoftwareImage)
		return isNew
	})
}
