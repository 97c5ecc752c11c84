// Package confine owns the walls around the commands of a sandbox: it finds out which of them this machine can build, and
// builds those that package walls plans.
//
// It relies on no setting and no version where it can try the feature itself. Trials run in short-lived processes, need
// no root, and leave nothing behind. The package must never know about git, agents or records, and never accepts a
// weaker wall than requested.
package confine

import "github.com/git-agency/git-agency/gitagency/internal/walls"

// State says whether a feature works here.
type State string

// The states of a feature.
const (
	OK      State = "ok"
	Missing State = "missing"
	Unknown State = "unknown" // it could not be tried
)

// Feature is a kernel feature that the walls need.
type Feature struct {
	Name   string
	State  State
	Detail string // how it works, or why not and what to do about it; one line
}

// The names of the features, in the order of Probe.
const (
	UserNamespaces    = walls.UserNamespaces
	PIDNamespaces     = "pid-namespaces"
	NetworkNamespaces = "network-namespaces"
	MountAPI          = "mount-api"
	Overlay           = "overlay"
	Landlock          = walls.Landlock
	Seccomp           = walls.Seccomp
	JoiningNamespaces = "joining"
	AllWalls          = "walls"
	CgroupDelegation  = "cgroups"
)

// FeatureNames returns the names of all features.
func FeatureNames() []string {
	return []string{UserNamespaces, PIDNamespaces, NetworkNamespaces, MountAPI, Overlay, Landlock, Seccomp, JoiningNamespaces, AllWalls, CgroupDelegation}
}
