package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/images"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// runsOnPlatform reports whether another machine would execute the run. It makes the checks of that machine itself.
func (s *subject) runsOnPlatform() bool { return !s.prims.IsLocal() }

// platformChecks are the checks of a run on another platform.
func platformChecks() []check {
	return []check{
		{"base", checkBase},
		{"mode", checkMode},
		{"platform", checkPlatform},
		{"hub", checkHub},
		{"identity", checkIdentity},
	}
}

// checkMode checks that no terminal is needed: none reaches another machine.
func checkMode(_ context.Context, s *subject) result {
	if !s.req.Headless {
		return result{failed: true, reason: "an interactive agent cannot be run on " + s.prims.Platform, remedy: "give it a task, with -p or --task-file"}
	}
	return passed("without a terminal")
}

// checkPlatform checks that the client of the engine is installed, and that the engine answers.
func checkPlatform(ctx context.Context, s *subject) result {
	p, err := s.repo.Settings.Platform(s.prims.Platform)
	if err != nil {
		return failedBy(err)
	}
	p = p.WithImageOf(s.prims)
	p.Brief = !s.req.Version
	driver, err := engine.Open(p.Config)
	if err != nil {
		return failedBy(err)
	}
	caps, err := driver.Probe(ctx)
	if err != nil {
		res := failedBy(err)
		var unreachable *engine.UnreachableError
		switch {
		case errors.As(err, &unreachable) && unreachable.Missing && p.SSH == "":
			res.remedy = fmt.Sprintf("install it, or name a machine that has it: git config agency.platform.%s.ssh <host>", p.Name)
		case errors.As(err, &unreachable):
			res.remedy = "try it by hand: " + quote.ShellLine(unreachable.Argv)
		}
		return res
	}
	if caps.Problem != "" {
		return result{failed: true, reason: caps.Problem, remedy: platformRemedy(p, caps)}
	}
	return passed("%s", strings.Join(append([]string{strings.TrimSpace(s.prims.Platform + " " + caps.Version)}, caps.Notes...), "; "))
}

// platformRemedy returns what the user can do where an engine would refuse every job.
func platformRemedy(p settings.Platform, caps engine.Capabilities) string {
	switch {
	case caps.MissingImage != "":
		missing := &images.MissingError{Engine: p.ContainerClient(), Reference: caps.MissingImage}
		if p.SSH != "" {
			return quote.ShellLine([]string{"ssh", p.SSH}) + " " + missing.FetchCommand()
		}
		return missing.FetchCommand()
	case p.HasOwnRoot():
		return fmt.Sprintf("git config agency.platform.%s.image <name>, or --software <name>", p.Name)
	}
	return fmt.Sprintf("git config agency.platform.%s.partition <name>", p.Name)
}

// checkHub checks that the hub exists and answers from here. Whether a node reaches it shows there.
func checkHub(ctx context.Context, s *subject) result {
	remedy := "git config " + settings.HubKey + " <path, ssh URL or remote>"
	name, err := s.repo.Settings.Hub()
	if err != nil {
		return result{failed: true, reason: err.Error(), remedy: remedy}
	}
	h, err := hub.Open(ctx, s.repo.Git, name, s.repo.Git.ObjectFormat().ZeroID())
	if err == nil {
		_, err = h.Refs(ctx, "none")
	}
	if err == nil {
		if err := h.CheckFullHistory(ctx); err != nil {
			return result{failed: true, reason: err.Error()}
		}
	}
	if err != nil {
		return result{failed: true, reason: err.Error(), remedy: remedy}
	}
	p, err := s.repo.Settings.Platform(s.prims.Platform)
	switch {
	case err != nil || !h.IsRepository(): // checkPlatform reports the error
		return passed("%s", h.URL)
	case p.HasOwnRoot() && p.SSH == "":
		return passed("the repository itself: %s is mounted in the container", h.Dir())
	case p.HasOwnRoot():
		return passed("the repository itself: %s must see %s", p.SSH, h.URL)
	}
	return passed("the repository itself: the nodes must see %s", h.URL)
}

// withoutChecks returns the checks without those of some names.
func withoutChecks(checks []check, names ...string) []check {
	return slices.DeleteFunc(checks, func(c check) bool { return slices.Contains(names, c.name) })
}
