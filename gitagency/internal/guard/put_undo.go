package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Recover takes back what puts that were killed left half done. It costs a look at one directory when there
// was none. Everything it goes by may have been written by whoever works in the tree, so it does nothing that they
// could not do: it moves and removes files inside, by names that may be used. A put that is under way is waited
// for as long as timeout says (0 is not at all, negative for ever); then the error is a *lock.TimeoutError.
func (t *Tree) Recover(ctx context.Context, timeout time.Duration) error {
	p := &putting{tree: t}
	err := p.openAgency()
	if err == nil {
		var stages []string
		if stages, err = p.stages(); len(stages) > 0 && err == nil {
			if err = p.lock(ctx, timeout); err == nil {
				err = p.recover(ctx)
			}
		}
	}
	return errors.Join(unlessGone(err), p.close()) // without .agency nothing was ever put
}

// takeBack undoes what was placed so far.
func (p *putting) takeBack() error {
	err := errors.Join(p.unmake(p.entries()), p.restore(p.aside, "."))
	p.kept = err != nil
	return err
}

// entries are what a plan says of what is made.
func (p *putting) entries() []madeEntry {
	made := make([]madeEntry, 0, len(p.made))
	for _, n := range p.made {
		made = append(made, madeEntry{Path: n.path, Dir: n.dir, Narrow: n.narrow(), identity: n.identity})
	}
	return made
}

// planFile is plan.json.
type planFile struct {
	Made []madeEntry `json:"made"`
}

// madeEntry is something that was put where nothing of that name was, or in the place of something else.
type madeEntry struct {
	Path   string `json:"path"`
	Dir    bool   `json:"dir,omitempty"`
	Narrow bool   `json:"narrow,omitempty"` // a directory that in the end even its owner may not write in
	identity
}

// identity is how something that was put is known again. Who has written to it since, or put something else in
// its place, keeps what he has.
type identity struct {
	Device   uint64 `json:"dev"`
	Inode    uint64 `json:"ino"`
	Modified int64  `json:"mtime,omitempty"` // in nanoseconds; not of directories, where it says little
}

func identify(fi fs.FileInfo, err error) (identity, error) {
	if err != nil {
		return identity{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, errors.New("this system does not say which file is which")
	}
	id := identity{Device: uint64(st.Dev), Inode: st.Ino}
	if !fi.IsDir() {
		id.Modified = fi.ModTime().UnixNano()
	}
	return id, nil
}

// unmake removes what was made, the last first, as far as it is still that. Directories in which there is
// something else stay.
func (p *putting) unmake(made []madeEntry) error {
	for _, e := range made {
		if e.Narrow {
			// What cannot be opened up cannot be emptied either, and is told then.
			_ = p.ifThere(e, func(in *folder, name string) error { return in.root.Chmod(name, 0o700) })
		}
	}
	var errs []error
	for _, e := range slices.Backward(made) {
		errs = append(errs, p.ifThere(e, func(in *folder, name string) error {
			if err := in.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !(e.Dir && notEmpty(err)) {
				return plainly("remove", e.Path, err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// ifThere does something to what was made, if it is still there.
func (p *putting) ifThere(e madeEntry, do func(in *folder, name string) error) error {
	dir, name := path.Split(e.Path)
	in, err := p.find(path.Clean(dir))
	if err != nil {
		return unlessGone(err) // it never got there, or somebody else has taken it away
	}
	if is, err := identify(in.root.Lstat(name)); err == nil && is == e.identity {
		return errors.Join(do(in, name), in.close())
	}
	return in.close()
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// restore puts back what was replaced in a directory and below it, where nothing else is now. What has no
// directory any more would be gone as well if nothing had ever been put.
func (p *putting) restore(aside *folder, dir string) error {
	entries, err := aside.dir.ReadDir(-1)
	errs := []error{err}
	var at *folder
	for _, e := range entries {
		name := e.Name()
		if refusedComponent(name) != "" {
			continue // nothing of that name was ever replaced
		}
		if e.IsDir() {
			sub, err := aside.enter(name)
			if err == nil {
				err = errors.Join(p.restore(sub, path.Join(dir, name)), sub.close())
			}
			errs = append(errs, err)
			continue
		}
		if at == nil {
			if at, err = p.find(dir); err != nil {
				return errors.Join(append(errs, unlessGone(err))...)
			}
		}
		if _, err := at.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, unlessGone(aside.move(name, at)))
		}
	}
	if at != nil {
		errs = append(errs, at.close())
	}
	return errors.Join(errs...)
}

// unlessGone is an error, unless it says that there is no such directory.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// stages are the names of all stages there are, those of the living too.
func (p *putting) stages() ([]string, error) {
	dir, err := p.agency.root.Open(".") // a handle of its own, as it is read only once
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagePrefix) && e.IsDir() {
			found = append(found, e.Name())
		}
	}
	return found, errors.Join(err, dir.Close())
}

// recover undoes what the killed left, or clears up behind those that were done. The caller has the lock.
func (p *putting) recover(ctx context.Context) error {
	stages, err := p.stages()
	if err != nil {
		return err
	}
	for _, name := range stages {
		if name == p.name {
			continue
		}
		if err := p.recoverStage(ctx, name); err != nil {
			return fmt.Errorf("undo a put that was interrupted (%s): %w", path.Join(p.tree.Path, Dir, name), err)
		}
	}
	return nil
}

func (p *putting) recoverStage(ctx context.Context, name string) (err error) {
	stage, err := p.agency.enter(name)
	if errors.Is(err, fs.ErrPermission) {
		if err := p.agency.root.Chmod(name, 0o700); err != nil {
			return err
		}
		stage, err = p.agency.enter(name)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // its owner has just removed it
		}
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	handle, err := stage.root.Open(".")
	if err != nil {
		return err
	}
	var alive *lock.TimeoutError
	if err := lock.ClearOpen(ctx, handle, 0); errors.As(err, &alive) {
		return nil
	} else if err != nil {
		return err
	}
	defer handle.Close()
	if _, err := stage.root.Lstat(doneName); errors.Is(err, fs.ErrNotExist) {
		if err := p.undoStage(stage); err != nil {
			return err
		}
	}
	return removeAll(p.agency, name)
}

// undoStage takes back what a plan says was made, and puts back what it replaced.
func (p *putting) undoStage(stage *folder) error {
	made, err := readPlan(stage)
	if err != nil {
		return err
	}
	if err := p.unmake(made); err != nil {
		return err
	}
	aside, err := stage.enter(asideName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it did not get that far
	case err != nil:
		return err
	}
	return errors.Join(p.restore(aside, "."), aside.close())
}

// readPlan reads what a killed put was to make; nothing when it was killed before it knew. What does not
// read like a plan, or names what nobody puts, was not written by us, and tells us nothing.
func readPlan(stage *folder) ([]madeEntry, error) {
	const most = 256 << 20
	if fi, err := stage.root.Lstat(planName); err != nil || !fi.Mode().IsRegular() {
		return nil, nil
	}
	f, err := stage.root.OpenFile(planName, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, plainly("read", path.Join(stage.path, planName), err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > most {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, err
	}
	var plan planFile
	if json.Unmarshal(data, &plan) != nil {
		return nil, nil
	}
	for _, e := range plan.Made {
		if clean, err := cleanPath(e.Path); err != nil || clean != e.Path || clean == "." {
			return nil, nil
		}
	}
	return plan.Made, nil
}
