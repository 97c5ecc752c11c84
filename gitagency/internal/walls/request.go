package walls

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Request describes the walls to plan. The paths of the sandbox and the repository are absolute and without symbolic
// links; all others are looked up.
type Request struct {
	Tree       string // required: worktree of the sandbox
	TreeLayers Layers // directories of which Tree consists, if it is an overlay; the zero value: it is a directory of its own
	GitDir     string // required: common git directory, mounted as an overlay unless there is an OwnGitDir
	GitFile    string // required: the .git of Tree
	OwnGitDir  string // git directory that is mounted, writable, on GitFile, which is a directory; of GitDir only the objects are shown
	MarkerFile string // file in a directory of Tree that identifies it, which no command can change; may be empty
	Mailbox    string // directory that is mounted, writable, on the directory of MarkerFile; required with MarkerFile
	OverlayDir string // required: directory outside of Tree for the upper directories of the sandbox's overlays
	DataDir    string // required: git-agency's data directory, hidden except for Tree

	RecordFiles []string // files in DataDir that are shown, read-only, if they exist when the walls are built

	IntegrationTrees []string // integration worktrees: hidden with a private home, else kept visible below private directories
	KeepVisible      []string // other paths kept visible: alternate object stores, programs

	Home         string
	PrivateHome  bool     // Home holds only what this request names: tools, caches, grants
	Tools        []string // directories with programs and what they need, shown in a private home
	Logins       []string // files and directories with the login of the sandbox's own agent, shown in a private home
	RuntimeDir   string   // XDG_RUNTIME_DIR
	AgentSockets []string // sockets of ssh-agent, gpg-agent, dbus and the like, or their directories
	PathDirs     []string // directories of PATH

	Software      string         // directory with another root file system for the commands; empty for that of the machine
	SoftwareFiles []FilteredFile // files that the commands see there with another content
	SoftwareDir   string         // directory in DataDir in which Software may be
	Program       string         // executable of git-agency, which they see there

	GitConfig []string // files and directories that control git outside of the sandbox; they may be missing

	Outputs string // open, none or hosts:…

	Policy Policy
}

// Layers are the directories of an overlay.
type Layers struct {
	Upper, Work string
	Lowers      []string // the top one first
}

// Policy lists further paths and their visibility. Paths that do not exist are skipped, except those to be made
// writable.
type Policy struct {
	Read         []string // visible; un-hides a secret of exactly that name, or a part of one
	Write        []string // writable directly
	OverlayWrite []string // writable within the sandbox, with an overlay
	Separate     []string // paths of OverlayWrite that have an overlay of their own also in the overlay of another directory
	Copied       []string // paths of OverlayWrite whose overlays have a copy as their lower directory: see CopyOf
	Hide         []string // hidden; overrides all others

	Secrets   []string            // hidden by default
	Filtered  []FilteredFile      // shown with another content by default
	Caches    []string            // overlays where possible, else read-only
	Known     map[string][]string // names in a directory of Caches that are shown, if not all are
	Omitted   map[string][]string // the other names there
	Named     []NamedPath         // the paths of Read, Write, OverlayWrite and Hide as they were configured
	LinkNames []string            // other names, with symbolic links, of paths of Read, Write and OverlayWrite
}

// NamedPath is a path of a policy as it was configured, perhaps with symbolic links.
type NamedPath struct {
	Key  string // configuration key
	Name string // absolute path as configured
	Path string // the same without symbolic links, as in the lists of the policy
}

// FilteredFile is a file that commands see with another content, from which secrets were removed.
type FilteredFile struct {
	Path string `json:"path"`
	Text []byte `json:"text"`
}

// Configuration keys named in refusals.
const (
	ReadKey  = "agency.sandbox.read"
	WriteKey = "agency.sandbox.write"
	HideKey  = "agency.sandbox.hide"
)

// Machine is what this machine offers, as far as it can be known without starting a process.
type Machine struct {
	System string // GOOS
	Arch   string // GOARCH
	Kernel string // kernel release

	LandlockABI   int
	WhyNoLandlock string // reason why LandlockABI is zero
	WhyNoSeccomp  string // reason why there are no seccomp filters; empty when there are

	UID     int
	GID     int
	Files   FileLookup
	Sockets []string // paths of listening sockets; not needed where Landlock restricts them
}

// FileLookup looks up paths.
type FileLookup struct {
	// Lookup resolves a path and says what is there.
	Lookup func(path string) Entry
	// Overlap says how the tree at a path overlaps with another, under any name.
	Overlap func(path, other string) guard.Relation
	// Subdirs lists the directories in a directory.
	Subdirs func(dir string) []Entry
	// Mounts lists the mount points below a directory.
	Mounts func(dir string) []string
	// OtherNames lists the other paths at which mounts show a path, or a part of it.
	OtherNames func(path string) []string
	// WhyNoOverlay returns the reason why the file system of a directory cannot be the lower layer of an overlay; empty if
	// it can. like is a directory whose file system can.
	WhyNoOverlay func(dir, like string) string
	// ReadLink returns the target of a symbolic link; empty if there is none at a path.
	ReadLink func(path string) string
}

// Entry is the result of looking up a path.
type Entry struct {
	Path   string // without symbolic links
	Kind   EntryKind
	Owner  int
	Group  int
	SetGID bool // the set-group-id bit is set
}

// EntryKind is the type of an Entry.
type EntryKind int

// The types that matter.
const (
	Absent EntryKind = iota
	Directory
	File
	Socket
	Device // or any other type that can be neither hidden nor kept
)

// RefusedError reports a wall that cannot be planned, or a setting that would break one.
type RefusedError struct {
	Wall   string // as in Plan.WallNames; empty when a setting is wrong
	Key    string // configuration key, such as agency.sandbox.write; or empty
	Flag   string // flag of 'git agency allow' that recorded the value; empty for a value of the configuration
	Path   string // value of the setting
	Why    string
	Remedy string // what to do; may be empty

	NoOverlay bool // the path could be writable within the sandbox if an overlay could be mounted on it
}

func (e *RefusedError) Error() string {
	what := e.Wall
	switch {
	case e.Flag != "":
		what = fmt.Sprintf("git agency allow %s %q", e.Flag, e.Path)
	case e.Key != "":
		what = fmt.Sprintf("%s %q", e.Key, e.Path)
	}
	if e.Remedy != "" {
		return what + ": " + e.Why + "; " + e.Remedy
	}
	return what + ": " + e.Why
}
