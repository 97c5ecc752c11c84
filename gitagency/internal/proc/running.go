package proc

// Process is a program that runs now.
type Process struct {
	PID    int
	Args   []string // empty when they are not ours to know
	Env    []string // that it was started with; empty when that is not ours to know
	UID    uint32   // whose it is
	Hidden bool     // where it stands is not ours to know
}
