package confine

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Request is what is asked for. The paths of the sandbox and of the repository are absolute and without
// symbolic links; all others are looked up.
type Request struct {
	Tree    string // required: the sandbox
	GitDir  string // required: the common git dir, which is seen through a layer
	GitFile string // required: the tree's .git file
	Markers string // a directory in the tree that says what the tree is; may be empty
	Layers  string // required: a directory of the sandbox's own, outside of the tree, where layers are kept
	DataDir string // required: hidden but for the tree

	Integration []string // the trees of integration worktrees: they stay to be seen where something private would hide them
	Keep        []string // what else has to: object stores that are borrowed from, programs

	Home         string
	RuntimeDir   string   // XDG_RUNTIME_DIR
	AgentSockets []string // of ssh-agent, gpg-agent, dbus and their like: sockets, or directories of them
	Path         []string // the directories of PATH

	Outputs string // open, none or hosts:…

	Policy Policy
}

// Policy is what can be seen and written besides. What is not there is left out, but for what was asked
// for to be written.
type Policy struct {
	Read    []string // stays to be seen; un-hides a secret of exactly that name, or part of one
	Write   []string // can be written: the thing itself
	Private []string // can be written, in a layer of the sandbox's own
	Hide    []string // is empty; wins over all of these

	Secrets []string // hidden by default
	Caches  []string // get a layer where they can have one, and else are merely read
}

// The keys that refusals name.
const (
	ReadKey  = "agency.sandbox.read"
	WriteKey = "agency.sandbox.write"
	HideKey  = "agency.sandbox.hide"
)

// Machine is what this machine offers, as far as it can be known without starting anything.
type Machine struct {
	System string // as in GOOS
	Arch   string // as in GOARCH
	Kernel string // its release

	LandlockABI int
	NoLandlock  string // why the ABI is zero
	NoSeccomp   string // why there are no filters; empty when there are

	UID     int
	Files   Files
	Sockets []string // paths at which somebody listens; need not be known where Landlock keeps sockets apart
}

// Files is how paths are looked up.
type Files struct {
	// Look says where a path leads and what is there.
	Look func(path string) Entry
	// Touch says how the tree at a path touches another, by any spelling.
	Touch func(path, other string) guard.Relation
	// Mounts lists what is mounted below a directory.
	Mounts func(dir string) []string
}

// Entry is what is at the end of a path.
type Entry struct {
	Path  string // without symbolic links
	Kind  Kind
	Owner int
}

// Kind is what an Entry is.
type Kind int

// The kinds that make a difference.
const (
	Absent Kind = iota
	Directory
	File
	Socket
	Device // and whatever else can neither be hidden nor kept
)

// RefusedError is a wall that cannot be drawn, or a setting that would break one.
type RefusedError struct {
	Wall   string // as in Plan.Walls; empty when a setting is wrong
	Key    string // the setting, such as agency.sandbox.write; empty when it is not about one
	Path   string // the value of the setting
	Why    string
	Remedy string // what can be done; may be empty
}

func (e *RefusedError) Error() string {
	what := e.Wall
	if e.Key != "" {
		what = fmt.Sprintf("%s %q", e.Key, e.Path)
	}
	if e.Remedy != "" {
		return what + ": " + e.Why + "; " + e.Remedy
	}
	return what + ": " + e.Why
}

const (
	// OldestABI is the first Landlock that lets files be renamed from one directory to another.
	OldestABI = 2
	// NewestABI is the last one that rulesets are written for.
	NewestABI = 9
	// scopesABI is the first one that keeps abstract sockets apart.
	scopesABI = 6
	// socketsABI is the first one that keeps those apart that have a path.
	socketsABI = 9
)
