package walls

import (
	"cmp"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Reason says why a path appears in a sandbox as it does. The values are stable.
type Reason string

// The reasons.
const (
	ReasonDefault      Reason = "default"          // nothing names the path
	ReasonSandbox      Reason = "sandbox"          // the tree of the sandbox
	ReasonFixed        Reason = "fixed"            // identifies the sandbox
	ReasonMailbox      Reason = "mailbox"          // Request.Mailbox
	ReasonRecord       Reason = "record"           // Request.RecordFiles
	ReasonGitDir       Reason = "git-directory"    // the git directory
	ReasonRepository   Reason = "repository"       // the git directory whose objects a clone borrows
	ReasonDataDir      Reason = "data-directory"   // records and other sandboxes
	ReasonTemporary    Reason = "temporary"        // processes leave files and sockets there for each other
	ReasonHome         Reason = "home"             // the private home
	ReasonIntegration  Reason = "integration-tree" // an integration worktree
	ReasonHide         Reason = "hide"             // Policy.Hide
	ReasonRead         Reason = "read"             // Policy.Read
	ReasonWrite        Reason = "write"            // Policy.Write
	ReasonPrivateWrite Reason = "private-write"    // Policy.OverlayWrite
	ReasonSecret       Reason = "secret"           // Policy.Secrets
	ReasonCredentials  Reason = "credentials"      // Policy.Filtered
	ReasonAgentSocket  Reason = "agent-socket"     // Request.AgentSockets
	ReasonListener     Reason = "listener"         // a process outside listens there
	ReasonTool         Reason = "tool"             // Request.Tools
	ReasonLogin        Reason = "login"            // Request.Logins
	ReasonCache        Reason = "cache"            // Policy.Caches
	ReasonOtherCache   Reason = "other-cache"      // Policy.Omitted
	ReasonNeeded       Reason = "needed"           // directories of PATH, alternate object stores and the like
	ReasonMask         Reason = "mask"             // contains hidden paths
	ReasonKernel       Reason = "kernel"           // file systems of the kernel
	ReasonSoftware     Reason = "software"         // another root file system
)

// Cause is the reason for the visibility of a path, and the path of the request that it comes from.
type Cause struct {
	Reason Reason
	Named  string // path as the request names it; empty where the request has none
}

// Explained is a path of a plan, with its visibility and the cause.
type Explained struct {
	Path string
	Visibility
	Cause
}

// Explain makes a plan, as MakePlan does, and says for each of its paths why it is there. The paths are sorted.
func Explain(r Request, m Machine) (Plan, []Explained, error) {
	plan, d, err := makePlan(r, m)
	if err != nil {
		return Plan{}, nil, err
	}
	lines := []Explained{
		{"/", ReadOnly, Cause{Reason: ReasonDefault}},
		{"/dev", Replaced, Cause{ReasonKernel, "/dev"}},
		{"/dev/shm", Private, Cause{ReasonTemporary, "/dev/shm"}},
		{"/proc", Replaced, Cause{ReasonKernel, "/proc"}},
	}
	if plan.Software.Dir != "" {
		lines = append(plan.Software.explain(), lines[1:]...)
	}
	plan.forEachPath(func(path string, s Visibility) {
		if plan.Software.Dir != "" && !plan.Software.shows(path) {
			return
		}
		if slices.Contains(r.RecordFiles, path) && d.lookup(path).Kind == Absent {
			return
		}
		if r.OwnGitDir != "" && path == r.GitFile {
			s = Overlaid // unlike other private directories it does not begin empty
		}
		lines = append(lines, Explained{path, s, d.causeOf(path, s)})
	})
	for path, m := range d.marks { // grants below something that has the same effect
		if s := plan.VisibilityOf(path); m.isGrant() && !slices.ContainsFunc(lines, func(l Explained) bool { return l.Path == path }) && hasGrantedAccess(m.visibility, s) {
			lines = append(lines, Explained{path, s, m.cause})
		}
	}
	for _, path := range plan.Fixed {
		lines = append(lines, Explained{path, FixedReadOnly, Cause{Reason: ReasonFixed}})
	}
	for _, path := range plan.Sockets {
		lines = append(lines, Explained{path, Hidden, Cause{Reason: ReasonListener}})
	}
	slices.SortStableFunc(lines, func(a, b Explained) int { return strings.Compare(a.Path, b.Path) })
	return plan, lines, nil
}

// explain returns the paths at which the commands see another root file system, or what is added to it.
func (s Software) explain() []Explained {
	lines := []Explained{{"/", Replaced, Cause{ReasonSoftware, s.Dir}}, {"/sys", ReadOnly, Cause{ReasonKernel, "/sys"}}}
	for _, f := range s.Files {
		lines = append(lines, Explained{f.Path, Replaced, Cause{ReasonSoftware, f.Path}})
	}
	for _, b := range s.Bound {
		lines = append(lines, Explained{b.Path, ReadOnly, Cause{ReasonSoftware, b.Path}})
	}
	return lines
}

// causeOf returns the cause of a path in the plan.
func (d *planner) causeOf(path string, s Visibility) Cause {
	switch {
	case s == MaskedAround:
		return Cause{Reason: ReasonMask}
	case s == FixedReadOnly:
		return Cause{Reason: ReasonFixed}
	case d.MarkerFile != "" && path == d.mailboxPath():
		return Cause{Reason: ReasonMailbox}
	case d.OwnGitDir != "" && path == d.GitFile:
		return Cause{Reason: ReasonGitDir}
	}
	if _, marked := d.marks[path]; !marked && s == Hidden {
		return Cause{Reason: ReasonOtherCache}
	}
	cause := d.marks[path].cause
	cause.Reason = cmp.Or(cause.Reason, ReasonDefault)
	return cause
}

// isGrant reports whether the user grants a path.
func (m pathMark) isGrant() bool {
	return m.cause.Reason == ReasonRead || m.cause.Reason == ReasonWrite || m.cause.Reason == ReasonPrivateWrite
}

// hasGrantedAccess reports whether a path with a visibility is what a grant asks for.
func hasGrantedAccess(asked, s Visibility) bool {
	switch asked {
	case Writable:
		return s == Writable
	case Overlaid:
		return s == Overlaid
	}
	return s != Hidden && s != Private
}

// CoverOf returns the path of an explanation that decides about a path: the longest that contains it.
func CoverOf(lines []Explained, path string) (cover Explained) {
	for _, l := range lines {
		if guard.IsOrContains(l.Path, path) && len(l.Path) > len(cover.Path) {
			cover = l
		}
	}
	return cover
}
