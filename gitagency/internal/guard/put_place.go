package guard

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// place moves everything from the stage to where it belongs.
func (p *putting) place(ctx context.Context, tx *undo.Tx) error {
	err := p.placeIn(ctx, tx, p.batch.top, p.top, p.fresh, func() (*folder, error) { return p.aside, nil })
	if err != nil {
		return err
	}
	// A directory that its owner may not write in could not have been moved.
	for i := len(p.made) - 1; i >= 0; i-- {
		if n := p.made[i]; n.narrow() {
			if err := p.chmod(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *putting) chmod(n *node) error {
	at, err := p.top.find(n.path)
	if err != nil {
		return err
	}
	return errors.Join(at.dir.Chmod(n.perm()), at.close())
}

// placeIn moves the children of a node. aside opens the directory for what they replace, when there is need of one.
func (p *putting) placeIn(ctx context.Context, tx *undo.Tx, n *node, at, fresh *folder, aside func() (*folder, error)) error {
	for _, name := range n.names {
		child := n.children[name]
		fi, err := at.root.Lstat(name)
		there := err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return plainly("look at", child.path, err)
		}
		if there && child.dir {
			if err := p.placeBelow(ctx, tx, child, at, fresh, aside); err != nil {
				return err
			}
			continue
		}
		if err := tx.Step(ctx, "place "+child.path, func() error {
			if there {
				if err := wantFile(child.path, fi); err != nil {
					return err
				}
				old, err := aside()
				if err != nil {
					return err
				}
				if err := at.move(name, old); err != nil {
					return plainly("replace", child.path, err)
				}
			}
			return fresh.move(name, at)
		}); err != nil {
			return err
		}
	}
	return nil
}

// placeBelow is placeIn for a directory that is there already.
func (p *putting) placeBelow(ctx context.Context, tx *undo.Tx, n *node, at, fresh *folder, aside func() (*folder, error)) (err error) {
	var opened []*folder
	defer func() {
		for _, f := range opened {
			err = errors.Join(err, f.close())
		}
	}()
	to, err := at.enter(n.name)
	if err != nil {
		return err
	}
	if !p.hold(to) {
		opened = append(opened, to)
	}
	from, err := fresh.enter(n.name)
	if err != nil {
		return err
	}
	opened = append(opened, from)
	var old *folder
	return p.placeIn(ctx, tx, n, to, from, func() (*folder, error) {
		if old != nil {
			return old, nil
		}
		above, err := aside()
		if err != nil {
			return nil, err
		}
		if old, err = above.make(n.name); err == nil {
			opened = append(opened, old)
		}
		return old, err
	})
}

// hold keeps a folder until the end, unless there are very many already.
func (p *putting) hold(f *folder) bool {
	const most = 400 // with two descriptors each, of often only 1024
	if len(p.held) >= most {
		return false
	}
	if p.held == nil {
		p.held = map[string]*folder{}
	}
	p.held[f.path] = f
	return true
}

// find opens a directory of the tree, if need be from where it was when something was moved there.
func (p *putting) find(dir string) (*folder, error) {
	for up := dir; up != "."; up = path.Dir(up) {
		if held := p.held[up]; held != nil {
			if up == dir {
				return held.find(".")
			}
			return held.find(strings.TrimPrefix(dir, up+"/"))
		}
	}
	return p.top.find(dir)
}
