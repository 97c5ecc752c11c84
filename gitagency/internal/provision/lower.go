package provision

import (
	"io/fs"
	"path"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
)

// lowerFiles are the files in the lower directories of a sandbox that is an overlay. It is safe for concurrent use; nil has none.
type lowerFiles struct {
	mutex sync.Mutex
	dir   *beneath.Dir
}

// openLower opens the lower directories of a destination; nil if it is no overlay.
func openLower(to Destination) (*lowerFiles, error) {
	if to.Overlay == nil {
		return nil, nil
	}
	dir, err := beneath.OpenLayers(to.Tree, to.Overlay.Lowers...)
	if err != nil {
		return nil, err
	}
	return &lowerFiles{dir: dir}, nil
}

func (l *lowerFiles) close() error {
	if l == nil {
		return nil
	}
	return l.dir.Close()
}

// lookup returns the type of a file, and whether it exists.
func (l *lowerFiles) lookup(name string) (kind fs.FileMode, there bool) {
	if l == nil {
		return 0, false
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	kind, err := l.dir.Kind(name)
	return kind, err == nil
}

// coversParent reports whether something else than a directory is in the place of a parent directory of a file.
func (l *lowerFiles) coversParent(name string) bool {
	for dir := path.Dir(name); l != nil && dir != "."; dir = path.Dir(dir) {
		if kind, there := l.lookup(dir); there && !kind.IsDir() {
			return true
		}
	}
	return false
}
