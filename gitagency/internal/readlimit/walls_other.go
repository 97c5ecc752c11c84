//go:build !linux

package readlimit

const wallsSupported = false

var systemDirs []string

func missingFeatures() []string { return nil }

// restrict does nothing: NewWalls returns no walls here.
func (w *Walls) restrict() error { return nil }
