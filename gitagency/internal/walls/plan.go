// Package walls plans the walls around the commands of a sandbox: a request and what the machine offers go in, and a plan
// comes out that lists mounts and restrictions. Package confine builds them.
//
// It must never apply anything, nor look up a file except through the functions that a Machine has: a plan is a value,
// tested as a table.
package walls

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
)

// Plan describes everything that is built around the commands of one sandbox. It is a value: making it has no side
// effects, and building it makes no decisions. All paths are absolute and without symbolic links.
type Plan struct {
	// Hostname is the host name inside.
	Hostname string `json:"hostname"`

	Network Network `json:"network"`

	// Relayed are the addresses on the loopback of the sandbox that lead to the loopback of this machine. They are fixed
	// when the walls are built.
	Relayed []string `json:"relayed,omitempty"`

	// NetworkOnly walls restrict only the network: everything else stays as it is outside, and the rest of the plan is
	// empty.
	NetworkOnly bool `json:"bare,omitempty"`

	// Private directories are empty at first, writable, and gone with the last command.
	Private []string `json:"private"`

	// Home is the private home directory; its Path is empty without one.
	Home PrivateHome `json:"home,omitzero"`

	// Links are symbolic links to create in the private home and other private directories, unless the sandbox has
	// something there.
	Links []Link `json:"links,omitempty"`

	// Hidden files and directories appear empty, and cannot be written.
	Hidden []string `json:"hidden"`

	// Masked directories are covered by a read-only overlay, in which the hidden paths below them stay hidden also when
	// they are replaced or renamed outside: the kernel would remove a mount on the original path. The other
	// directories in them stay mounted unchanged, so that every change outside shows.
	Masked []string `json:"masked,omitempty"`

	// Filtered files have another content than outside, and cannot be written.
	Filtered []FilteredFile `json:"filtered,omitempty"`

	// Sockets are the paths at which a process listened when the plan was made. They are covered by empty files: a
	// process that sees a socket can connect to it, also on a read-only mount, unless Landlock forbids it. Sockets come
	// and go, so a difference here is no reason to refuse to join running walls.
	Sockets rawPaths `json:"socket_paths,omitempty"`

	// Kept paths stay visible below private or hidden ones, unchanged and read-only.
	Kept []string `json:"kept"`

	// Writable paths can be written directly.
	Writable []string `json:"writable"`

	// Overlays are directories that can be written within the sandbox only: the directory itself stays unchanged.
	Overlays []OverlayMount `json:"layers"`

	// Omitted are paths in the lower directories of Overlays for which the upper directories have whiteouts. They are no
	// mounts, and can be many, so the process that builds the walls does not get them; a record beside each upper
	// directory has them.
	Omitted []string `json:"-"`

	// Volatile overlays are not synced when the last command ends, for which the kernel would write back the whole
	// file system. The caller must copy important data out of them: after a crash of the machine they may hold less than
	// was written.
	Volatile bool `json:"volatile,omitempty"`

	// Bound files and directories are mounted at another path, or read-only at their own.
	Bound []BindMount `json:"bound,omitempty"`

	// Fixed paths cannot be written, replaced or removed although they lie below something writable.
	Fixed []string `json:"fixed"`

	// Software is another root file system for the commands; its Dir is empty without one.
	Software Software `json:"software,omitzero"`

	// LandlockABI is the ABI of the ruleset; the kernel must support it.
	LandlockABI int `json:"landlock_abi"`
}

// rawPaths are paths that may not be valid UTF-8, which a JSON string cannot hold.
type rawPaths []string

// MarshalJSON encodes the paths in base64.
func (p rawPaths) MarshalJSON() ([]byte, error) {
	all := make([][]byte, len(p))
	for i, path := range p {
		all[i] = []byte(path)
	}
	return json.Marshal(all)
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (p *rawPaths) UnmarshalJSON(data []byte) error {
	var all [][]byte
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*p = make(rawPaths, len(all))
	for i, path := range all {
		(*p)[i] = string(path)
	}
	return nil
}

// OverlayMount is an overlay mount on a directory.
type OverlayMount struct {
	Path   string   `json:"path"`            // mount point; the lower directory too if Lowers is empty
	Lowers []string `json:"lower,omitempty"` // lower directories, the top one first
	Upper  string   `json:"upper"`           // upper directory, which receives the writes
	Work   string   `json:"work"`            // work directory of the kernel; on the file system of Upper
}

// PrivateHome is a home directory of the sandbox's own. It begins empty, is writable, and is kept between commands.
type PrivateHome struct {
	Path string `json:"path"` // home directory of the user, on which Dir is mounted
	Dir  string `json:"dir"`  // directory with the content; in Request.OverlayDir
}

// BindMount is a file or directory that is mounted at a path, where the original has an entry of the same type.
type BindMount struct {
	Path     string `json:"path"`
	Source   string `json:"source"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Network is the part of the network that a sandbox can reach.
type Network string

// The networks.
const (
	HostNetwork Network = "host"     // everything that the machine reaches
	NoNetwork   Network = "loopback" // only its own loopback
	ProxiedOnly Network = "proxy"    // its own loopback, and the proxy
)

// Names of walls that others know; the first three are also names of features of the machine.
const (
	UserNamespaces = "user-namespaces"
	Landlock       = "landlock"
	Seccomp        = "seccomp"
	OtherRoot      = "other-root"
)

// Names of walls that are not names of features.
const (
	readOnlyRoot  = "read-only-root"
	hiddenSecrets = "hidden-secrets"
	gitLayer      = "git-layer"
	privateHome   = "private-home"
)

// WallNames names the enforced walls, for people and programs. The names are stable.
func (p Plan) WallNames() []string {
	walls := []string{"user-namespace", "mount-namespace", "pid-namespace", "ipc-namespace", "uts-namespace", "network:" + string(p.Network)}
	if p.NetworkOnly {
		return append(walls, "capabilities-dropped", "no-new-privs")
	}
	walls = append(walls, readOnlyRoot, "private-tmp", "private-dev", "fresh-proc", hiddenSecrets, gitLayer)
	if p.Home.Path != "" {
		walls = append(walls, privateHome)
	}
	if p.Software.Dir != "" {
		walls = append(walls, OtherRoot)
	}
	if p.Network != HostNetwork || p.LandlockABI >= landlock.ScopesABI { // abstract sockets belong to the network namespace
		walls = append(walls, "abstract-sockets")
	}
	return append(walls, "capabilities-dropped", "no-new-privs", Landlock+":"+strconv.Itoa(p.LandlockABI), Seccomp, "closed-descriptors", "environment")
}

// WeakerThan says in which respect the walls of p are weaker than those of another plan; empty when in none.
func (p Plan) WeakerThan(than Plan) string {
	switch {
	case p.Network != than.Network:
		return "--outputs was changed"
	case than.Software.Dir != "" && p.Software.Dir != than.Software.Dir:
		return "--software was changed"
	case p.LandlockABI < than.LandlockABI:
		return "landlock"
	}
	for _, path := range p.Software.Shown {
		if than.Software.Dir != "" && !than.Software.shows(path) {
			return path + " is visible"
		}
	}
	p, than = p.OnMachine(), than.OnMachine()
	if than.Home.Path != "" && p.IsVisible(than.Home.Path) {
		return than.Home.Path + " is visible"
	}
	for _, path := range slices.Concat(than.Hidden, than.Private) {
		if p.IsVisible(path) {
			return path + " is visible"
		}
	}
	for _, path := range p.Kept { // elsewhere, they depend on PATH
		if than.Home.Path != "" && guard.IsOrContains(than.Home.Path, path) && !than.IsVisible(path) {
			return path + " is visible"
		}
	}
	for _, f := range than.Filtered {
		if s := p.VisibilityOf(f.Path); s != Filtered && s != Hidden && s != Private {
			return f.Path + " shows its secrets"
		}
	}
	for _, address := range p.Relayed {
		if !slices.Contains(than.Relayed, address) {
			return address + " is relayed to this machine"
		}
	}
	for _, path := range p.Writable {
		if !slices.Contains(than.Writable, path) {
			return path + " is writable"
		}
	}
	return ""
}

// Lacks says what a path is in another plan and not in p: "readable" or "writable"; empty if there is nothing.
func (p Plan) Lacks(other Plan, path string) string {
	switch {
	case other.IsWritable(path) && !p.IsWritable(path), other.VisibilityOf(path) == Writable && p.VisibilityOf(path) != Writable:
		return "writable"
	case other.IsVisible(path) && !p.IsVisible(path):
		return "readable"
	}
	return ""
}
