//go:build !linux

package status

// dirWatch is never created without inotify.
type dirWatch struct{}

const hasInotify = false

func watchDirs(string, []string) *dirWatch { return nil }

func (w *dirWatch) covers([]string) bool { return false }

func (w *dirWatch) changedNames() ([]string, bool) { return nil, false }

func (w *dirWatch) close() {}
