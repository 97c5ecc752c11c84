// Package confine knows the walls around what runs in a sandbox: it says which of them this machine can
// build, plans them, and builds them.
//
// It believes no setting and no version where it can try the thing itself. What is tried is tried in
// processes that end at once, needs no root, and is gone afterwards. The package knows nothing of git,
// of agents or of records, and never decides that a weaker wall will do.
package confine

// State says whether something works here.
type State string

// The states of a feature.
const (
	OK      State = "ok"
	Missing State = "missing"
	Unknown State = "unknown" // it could not be tried
)

// Feature is something of the kernel that walls are built from.
type Feature struct {
	Name   string
	State  State
	Detail string // how it works, or why not and what can be done about it; one line
}

// The names of the features, in the order of Probe.
const (
	UserNamespaces    = "user-namespaces"
	PIDNamespaces     = "pid-namespaces"
	NetworkNamespaces = "network-namespaces"
	MountAPI          = "mount-api"
	Overlay           = "overlay"
	Landlock          = "landlock"
	Seccomp           = "seccomp"
	Joining           = "joining"
	AllWalls          = "walls"
	CgroupsOffered    = "cgroups"
)

// Features are the names of all of them.
func Features() []string {
	return []string{UserNamespaces, PIDNamespaces, NetworkNamespaces, MountAPI, Overlay, Landlock, Seccomp, Joining, AllWalls, CgroupsOffered}
}
