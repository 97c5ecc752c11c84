package proc

// Process is a running process.
type Process struct {
	PID       int
	Parent    int      // pid of its parent
	Args      []string // empty when unreadable for us
	Env       []string // initial environment; empty when unreadable for us
	UID       uint32   // owner
	CwdHidden bool     // its current directory is unreadable for us
}
