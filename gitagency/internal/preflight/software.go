package preflight

import (
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/images"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// foundImage is the result of sandbox.FindImage.
type foundImage struct {
	engine images.Engine
	image  images.Image
	err    error
}

// checkSoftware checks that another root file system is there: an image in the container engine, or a directory.
func checkSoftware(_ context.Context, s *subject) result {
	if !s.prims.NamesImage() {
		if err := rootfs.Check(s.prims.Software); err != nil {
			return result{failed: true, reason: s.prims.Software + ": " + err.Error(), remedy: walls.SoftwareRemedy}
		}
		return passed("%s", s.prims.Software)
	}
	if _, _, err := s.softwareRoot(); err == nil && s.req.Existing {
		return passed("image %.12s, which is unpacked", s.prims.SoftwareImage)
	}
	found := s.image()
	engine, image, err := found.engine, found.image, found.err
	var missing *images.MissingError
	var none *images.NoEngineError
	var failed *images.ClientError
	switch {
	case errors.As(err, &missing):
		return result{failed: true, reason: err.Error(), remedy: missing.FetchCommand()}
	case errors.As(err, &none):
		return result{failed: true, reason: err.Error(), remedy: "install podman, or name a directory with an unpacked image: --software <absolute path>"}
	case errors.As(err, &failed):
		return result{failed: true, reason: err.Error(), remedy: "try it by hand: " + failed.Line()}
	case err != nil:
		return failedBy(err)
	case !images.Dir(s.repo.Store.SoftwareDir()).Has(image.ID):
		return passed("image %.12s of %s, which has yet to be unpacked", image.ID, engine.Name)
	}
	return passed("image %.12s of %s, which is unpacked", image.ID, engine.Name)
}

// softwareRoot returns another root file system and the variables of its image.
func (s *subject) softwareRoot() (dir string, env []string, err error) {
	prims := s.pinned()
	if err := sandbox.CheckSoftware(s.repo, prims); err != nil {
		return "", nil, err
	}
	if dir, err = sandbox.SoftwareRoot(s.repo, prims); err != nil || !prims.NamesImage() {
		return dir, nil, err
	}
	env, err = images.Dir(s.repo.Store.SoftwareDir()).Environment(prims.SoftwareImage)
	return dir, env, err
}

// pinned returns the primitives with the id of the image that they name, if the engine has it.
func (s *subject) pinned() store.Primitives {
	prims := s.prims
	if prims.NamesImage() && prims.SoftwareImage == "" {
		if found := s.image(); found.err == nil {
			prims.SoftwareImage = found.image.ID
		}
	}
	return prims
}
