package upload

import (
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// cursor opens directories one after the other and keeps only the last one open. It starts from there when the next
// one lies below, so that a descent costs one open per level and never more than two descriptors.
type cursor struct {
	top         *guard.DirHandle
	openPath    func(from *guard.DirHandle, path string) (*guard.DirHandle, error)
	current     *guard.DirHandle
	currentPath string // path of current, from the top
}

// open opens a directory, which stays open until the next call.
func (c *cursor) open(dir string) (*guard.DirHandle, error) {
	from, way := c.top, dir
	switch {
	case c.current != nil && dir == c.currentPath:
		return c.current, nil
	case c.current != nil && c.currentPath != "." && strings.HasPrefix(dir, c.currentPath+"/"):
		from, way = c.current, dir[len(c.currentPath)+1:]
	}
	next, err := c.openPath(from, way)
	if err != nil {
		return nil, err
	}
	if err := c.close(); err != nil {
		return nil, err
	}
	c.current, c.currentPath = next, dir
	return next, nil
}

func (c *cursor) close() error {
	at := c.current
	c.current = nil
	if at == nil {
		return nil
	}
	return at.Close()
}
