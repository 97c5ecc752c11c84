//go:build !linux

package git

// watch is only there where the kernel tells what comes and goes.
type watch struct{}

const canWatch = false

func watchDirs(string, []string) *watch  { return nil }
func (w *watch) covers([]string) bool    { return false }
func (w *watch) names() ([]string, bool) { return nil, false }
func (w *watch) close()                  {}
