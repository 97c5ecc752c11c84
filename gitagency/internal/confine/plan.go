package confine

import (
	"slices"
	"strconv"
)

// Plan is everything that is built around the commands of one sandbox. It is a value: drawing it touches
// nothing, and whoever builds it decides nothing. All paths are absolute and without symbolic links.
type Plan struct {
	// Hostname is what the machine is called inside.
	Hostname string `json:"hostname"`

	Network Network `json:"network"`

	// Bare walls are those of the network alone: everything else stays as it is outside, and the rest of the
	// plan is empty.
	Bare bool `json:"bare,omitempty"`

	// Private directories are empty at first, writable, and gone with the last command.
	Private []string `json:"private"`

	// Hidden files and directories are there, empty, and cannot be written.
	Hidden []string `json:"hidden"`

	// Sockets are where somebody listened when the plan was drawn. There is an empty file instead: whoever can
	// see a socket can speak to who listens there, be it read-only or not, unless Landlock forbids it. They
	// come and go, so that they are no reason to refuse to join others behind the same walls.
	Sockets []string `json:"sockets,omitempty"`

	// Kept is what stays to be seen below something that is private or hidden, as it is and read-only.
	Kept []string `json:"kept"`

	// Writable is what can be written: the thing itself.
	Writable []string `json:"writable"`

	// Layers can be written too, in a layer of the sandbox's own: the thing itself stays as it is.
	Layers []Layer `json:"layers"`

	// Volatile layers are not written out to the disk when the last command ends, for which the kernel
	// would write out everything that waits for that disk. Whoever wants this takes what matters out of
	// them: when the machine itself fails, they may hold less than was written.
	Volatile bool `json:"volatile,omitempty"`

	// Fixed is what cannot be written, replaced or removed although it lies in something writable.
	Fixed []string `json:"fixed"`

	// LandlockABI is what the ruleset is written for; the kernel must know it.
	LandlockABI int `json:"landlock_abi"`
}

// Layer is a directory under which a layer of the sandbox's own lies.
type Layer struct {
	Path  string `json:"path"`  // the directory that is seen through it, and where it is mounted
	Upper string `json:"upper"` // where what is written goes
	Work  string `json:"work"`  // the kernel's own; on the file system of Upper
}

// Network is what a sandbox reaches of the network.
type Network string

// The networks there are.
const (
	HostNetwork Network = "host"     // all that the machine reaches
	NoNetwork   Network = "loopback" // nothing but itself
	ProxiedOnly Network = "proxy"    // itself, and what the proxy lets through
)

// The names of walls that are not those of features.
const (
	readOnlyRoot  = "read-only-root"
	hiddenSecrets = "hidden-secrets"
)

// Walls names what is enforced, for people and programs. The names are stable.
func (p Plan) Walls() []string {
	walls := []string{"user-namespace", "mount-namespace", "pid-namespace", "ipc-namespace", "uts-namespace", "network:" + string(p.Network)}
	if p.Bare {
		return append(walls, "capabilities-dropped", "no-new-privs")
	}
	walls = append(walls, readOnlyRoot, "private-tmp", "private-dev", "fresh-proc", hiddenSecrets, "git-layer")
	if p.Network != HostNetwork || p.LandlockABI >= scopesABI { // they belong to the network
		walls = append(walls, "abstract-sockets")
	}
	return append(walls, "capabilities-dropped", "no-new-privs", Landlock+":"+strconv.Itoa(p.LandlockABI), Seccomp, "closed-descriptors", "environment")
}

// Weaker says in what the walls of one plan are weaker than those of another; empty when in nothing.
func (p Plan) Weaker(than Plan) string {
	switch {
	case p.Network != than.Network:
		return "the network is that of outputs that were changed"
	case p.LandlockABI < than.LandlockABI:
		return "landlock"
	}
	for _, path := range slices.Concat(than.Hidden, than.Private) {
		if p.Sees(path) {
			return path + " is not hidden"
		}
	}
	for _, path := range p.Writable {
		if !slices.Contains(than.Writable, path) {
			return path + " can be written"
		}
	}
	return ""
}
