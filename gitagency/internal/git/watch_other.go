//go:build !linux

package git

// dirWatch is never created without inotify.
type watch struct{}

const canWatch = false

func watchDirs(string, []string) *watch  { return nil }
func (w *watch) covers([]string) bool    { return false }
func (w *watch) names() ([]string, bool) { return nil, false }
func (w *watch) close()                  {}
