package git

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Feature is an ability that only newer versions of git have.
type Feature struct {
	Name  string
	Since Version
}

// Features lists features to report to the user, oldest first. No operation depends on one of them.
var Features = []Feature{
	{"merge-tree --merge-base", Version{Major: 2, Minor: 40}},
	{"replay", Version{Major: 2, Minor: 44}},
}

// Offers reports whether this version of git has a feature.
func (v Version) Offers(f Feature) bool { return v.AtLeast(f.Since) }

// Version is a version of git.
type Version struct{ Major, Minor, Patch int }

// MinimumVersion is the oldest git this package works with: the first with merge-tree --write-tree.
var MinimumVersion = Version{Major: 2, Minor: 38}

// AtLeast reports whether v is w or newer.
func (v Version) AtLeast(w Version) bool {
	if v.Major != w.Major {
		return v.Major > w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor > w.Minor
	}
	return v.Patch >= w.Patch
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// TooOldError reports a git older than Minimum.
type TooOldError struct{ Have Version }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("git %s is too old; git-agency needs %d.%d or newer", e.Have, MinimumVersion.Major, MinimumVersion.Minor)
}

func readVersion(ctx context.Context, run Runner) (Version, error) {
	out, err := run.Output(ctx, "version")
	if err != nil {
		return Version{}, err
	}
	return parseVersion(string(out))
}

// parseVersion reads "git version 2.39.5", also with the suffixes of vendors ("2.39.5 (Apple Git-154)",
// "2.46.0.windows.1", "2.50.GIT").
func parseVersion(s string) (Version, error) {
	rest, ok := strings.CutPrefix(s, "git version ")
	if !ok {
		return Version{}, fmt.Errorf("git version answered %q", s)
	}
	var v Version
	word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	parts := strings.Split(word, ".")
	for i, field := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if i >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			if i < 2 {
				return Version{}, fmt.Errorf("git version answered %q", s)
			}
			break
		}
		*field = n
	}
	return v, nil
}
