package upload

import (
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// cursor opens directories one after the other and keeps only the last one open. It starts from there when the next
// one lies below, so that a descent costs one open per level and never more than two descriptors.
type cursor struct {
	top  *guard.Folder
	find func(from *guard.Folder, path string) (*guard.Folder, error)
	at   *guard.Folder
	dir  string // path of current, from the top
}

// open opens a directory, which stays open until the next call.
func (c *cursor) to(dir string) (*guard.Folder, error) {
	from, way := c.top, dir
	switch {
	case c.at != nil && dir == c.dir:
		return c.at, nil
	case c.at != nil && c.dir != "." && strings.HasPrefix(dir, c.dir+"/"):
		from, way = c.at, dir[len(c.dir)+1:]
	}
	next, err := c.find(from, way)
	if err != nil {
		return nil, err
	}
	if err := c.close(); err != nil {
		return nil, err
	}
	c.at, c.dir = next, dir
	return next, nil
}

func (c *cursor) close() error {
	at := c.at
	c.at = nil
	if at == nil {
		return nil
	}
	return at.Close()
}
