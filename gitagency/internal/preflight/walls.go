package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// checkWalls checks that this machine can build the sandbox with its isolation and outputs: it builds walls around nothing.
func checkWalls(ctx context.Context, s *subject) result {
	if s.primsErr != nil {
		return unsupportedBy(s.primsErr)
	}
	if !sandbox.NeedsWalls(s.prims) {
		return passed("none are set up: isolation %s, outputs %s", s.prims.Isolation, s.prims.Outputs)
	}
	if err := sandbox.TryWalls(ctx, s.repo, s.prims); err != nil {
		res := failedBy(err)
		res.remedy = "'git agency doctor' lists what this machine lacks"
		return res
	}
	if _, err := s.plan(); err != nil && !isPathError(err) {
		return failedBy(err)
	}
	return passed("isolation %s, outputs %s", s.prims.Isolation, s.prims.Outputs)
}

// unsupportedBy returns the result for a value of a primitive that cannot be built, with the values that can.
func unsupportedBy(err error) result {
	res := failedBy(err)
	var unsupported *fault.UnsupportedError
	if errors.As(err, &unsupported) {
		res.remedy = "choose another one: --" + unsupported.Primitive + " " + strings.Join(settings.PrimitiveValues(unsupported.Primitive), ", ")
	}
	return res
}

// isPathError reports whether walls cannot be planned because of a setting of theirs, which checkPaths reports.
func isPathError(err error) bool {
	var invalid *fault.InvalidError
	return errors.As(err, &invalid) && invalid.ConfigKey != ""
}

// checkPaths checks the settings agency.sandbox.* and agency.copy: start refuses some paths and patterns. A path that does
// not exist is ignored, and only mentioned, because the same configuration may be used on machines that lack it.
func checkPaths(_ context.Context, s *subject) result {
	if _, err := s.repo.Settings.CopyPatterns(); err != nil {
		return failedBy(err)
	}
	plan, err := s.plan()
	if isPathError(err) {
		return failedBy(err)
	}
	if err != nil {
		return passed("not checked, since the walls cannot be planned")
	}
	reasons := []string{fmt.Sprintf("the walls accept all settings of paths (%d)", len(plan.Policy.Named))}
	for _, skipped := range plan.Policy.Skipped {
		reasons = append(reasons, "ignoring "+skipped.Error())
	}
	return passed("%s", strings.Join(reasons, "; "))
}
