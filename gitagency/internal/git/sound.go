package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
)

// UnsoundError is a tree object that no git would have made, in a state that somebody wants to have on disk.
type UnsoundError struct {
	Path string // from the top
	Why  string
}

func (e *UnsoundError) Error() string {
	return fmt.Sprintf("its tree is not sound: %q: %s", e.Path, e.Why)
}

// sound refuses a tree in which a name leads out of it, is or can be taken for .git, or is there twice: anybody can make
// such objects, and a ref to them that looks like a state somebody has frozen. Git refuses most of it too, but of what is there twice
// it takes one, and who looked at the other was deceived. What a tree shares with one that is known to be sound is not
// looked at; that may be empty.
func (r *Repo) sound(ctx context.Context, tree, known string) error {
	t, err := r.ask(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	found, err := t.info(tree+"^{tree}", known+"^{tree}")
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return &UnsoundError{Path: ".", Why: "it is not there"}
	}
	return t.sound(found[0].OID, found[1].OID, "")
}

func (t *teller) sound(tree, known, at string) error {
	if tree == known {
		return nil
	}
	data, err := t.contents(tree, "tree")
	if err != nil {
		return err
	}
	if data == nil {
		return &UnsoundError{Path: at, Why: "there is no such tree"}
	}
	size := len(tree) / 2
	like := map[string]string{} // directories of the same name
	if known != "" {
		other, err := t.contents(known, "tree")
		if err != nil {
			return err
		}
		for e, rest, ok := nextInTree(other, size); ok; e, rest, ok = nextInTree(rest, size) {
			if e.isTree {
				like[e.name] = hex.EncodeToString([]byte(e.oid))
			}
		}
	}
	seen := map[string]bool{}
	below := map[string]string{}
	for len(data) > 0 {
		e, rest, ok := nextInTree(data, size)
		name := path.Join(at, e.name)
		switch why := refusedName([]byte(e.name), 0, false); {
		case !ok:
			return &UnsoundError{Path: at, Why: "nobody can read it"}
		case why != "":
			return &UnsoundError{Path: at + "/" + e.name, Why: why}
		case path.Base(e.name) != e.name:
			return &UnsoundError{Path: at + "/" + e.name, Why: "a slash in a name"}
		case seen[e.name]:
			return &UnsoundError{Path: name, Why: "twice there"}
		}
		seen[e.name] = true
		if e.isTree {
			below[e.name] = hex.EncodeToString([]byte(e.oid))
		}
		data = rest
	}
	for name, oid := range below {
		if err := t.sound(oid, like[name], path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}
