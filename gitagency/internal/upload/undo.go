package upload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Recover takes back what puts that were killed left half done. It costs a look at one directory when there
// was none. Everything it goes by may have been written by whoever works in the tree, so it does nothing that they
// could not do: it moves and removes files inside, by names that may be used. What is not shaped like a stage was
// forged, and is removed or ignored; nobody can forge something that makes this fail. A put that is under way is
// waited for as long as timeout says (0 is not at all, negative for ever); then the error is a *lock.TimeoutError.
// When files cannot be put back it is a *LeftError.
func Recover(ctx context.Context, tree *guard.Tree, timeout time.Duration) error {
	p := &putting{tree: tree}
	if err := p.openAgency(); err != nil {
		return errors.Join(unlessGone(err), p.close()) // without .agency nothing was ever put
	}
	stages, err := p.stages()
	if len(stages) > 0 && err == nil {
		if err = p.lock(ctx, timeout); err == nil {
			err = p.recover(ctx)
		}
	}
	return errors.Join(err, p.close())
}

// Quiesce is Recover after which nobody moves anything until release is called, which is never nil: what is in the
// tree meanwhile holds every put wholly or not at all. That is so with a *LeftError too, but for what it says.
func Quiesce(ctx context.Context, tree *guard.Tree, timeout time.Duration) (release func() error, err error) {
	p := &putting{tree: tree}
	if err := p.openAgency(); err != nil {
		return p.close, unlessGone(err) // without .agency nobody can put
	}
	if err := p.lock(ctx, timeout); err != nil {
		return p.close, err
	}
	return p.close, p.recover(ctx)
}

// LeftError is a put that was killed and cannot be undone, not all of it.
type LeftError struct {
	Stage string // where it left what it was about
	Files int    // how many it had replaced, and are still there
	Err   error  // why
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("a put that was interrupted cannot be undone, and what it replaced is still in %s (files: %d): %v", e.Stage, e.Files, e.Err)
}

func (e *LeftError) Unwrap() error { return e.Err }

// Interrupted is a put that was killed and not undone yet.
type Interrupted struct {
	Stage    string // its path
	Replaced bool   // it holds files that it had replaced
}

// Find lists what Recover would deal with. It changes nothing, and waits for nobody: while somebody puts, there is
// nothing to be said.
func Find(ctx context.Context, tree *guard.Tree) (found []Interrupted, err error) {
	p := &putting{tree: tree}
	defer func() { err = errors.Join(err, p.close()) }()
	if p.top, err = tree.Top(); err != nil {
		return nil, err
	}
	if p.agency, err = p.top.Enter(guard.Dir); err != nil {
		return nil, unlessGone(err)
	}
	stages, err := p.stages()
	if len(stages) == 0 || err != nil {
		return nil, err
	}
	var alive *lock.TimeoutError
	if err := p.lock(ctx, 0); errors.As(err, &alive) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range stages {
		there := Interrupted{Stage: path.Join(tree.Path, guard.Dir, name)}
		stage, err := p.agency.Enter(name)
		if errors.Is(err, fs.ErrPermission) { // it takes changing something to look into it
			there.Replaced = !strings.HasPrefix(name, gonePrefix)
			found = append(found, there)
			continue
		}
		if err != nil {
			errs = append(errs, unlessGone(err))
			continue
		}
		dead, err := isDead(ctx, stage)
		if err == nil && dead {
			there.Replaced = !strings.HasPrefix(name, gonePrefix) && replaced(ctx, stage) > 0
			found = append(found, there)
		}
		errs = append(errs, err, stage.Close())
	}
	return found, errors.Join(errs...)
}

// isDead reports whether the owner of a stage is gone.
func isDead(ctx context.Context, stage *guard.Folder) (bool, error) {
	handle, err := stage.Handle()
	if err != nil {
		return false, err
	}
	var alive *lock.TimeoutError
	if err := lock.ClearOpen(ctx, handle, 0); errors.As(err, &alive) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, handle.Close()
}

// Rescue moves what killed puts had replaced, and Recover could not put back, to the top of the tree, each to a
// directory named after its put, and says how many files and which directories that is. It is for a tree that is
// about to go, of which everything but .agency is kept.
func Rescue(ctx context.Context, tree *guard.Tree) (files int, dirs []string, err error) {
	p := &putting{tree: tree}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.openAgency(); err != nil {
		return 0, nil, unlessGone(err)
	}
	stages, err := p.stages()
	errs := []error{err}
	for _, name := range stages {
		if strings.HasPrefix(name, gonePrefix) {
			continue
		}
		errs = append(errs, p.inDeadStage(ctx, name, func(stage *guard.Folder) error {
			n := replaced(ctx, stage)
			if n == 0 {
				return nil
			}
			dir := "replaced-by-" + name
			if err := p.top.Writable(func() error { return stage.MoveAs(asideName, p.top, dir) }); err != nil {
				return err
			}
			files, dirs = files+n, append(dirs, dir)
			return nil
		}))
	}
	return files, dirs, errors.Join(errs...)
}

// takeBack undoes what was placed so far.
func (p *putting) takeBack(ctx context.Context) error {
	err := errors.Join(p.unmake(ctx, p.entries()), p.restore(ctx, p.aside))
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

// largestPlan is more than some hundred thousand files need. Whoever works in the tree can write plans as well, and
// shall not keep those busy who read them.
const largestPlan = 32 << 20

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

func identify(fi guard.Info) identity {
	id := identity{Device: fi.Device, Inode: fi.Inode}
	if !fi.Mode.IsDir() {
		id.Modified = fi.Modified.UnixNano()
	}
	return id
}

// unmake removes what was made, the last first, as far as it is still that. Directories in which there is
// something else stay.
func (p *putting) unmake(ctx context.Context, made []madeEntry) error {
	for _, e := range made {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.Narrow {
			// What cannot be opened up cannot be emptied either, and is told then.
			_ = p.ifThere(e, func(in *guard.Folder, name string) error { return in.Widen(name) })
		}
	}
	var errs []error
	for _, e := range slices.Backward(made) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.ifThere(e, func(in *guard.Folder, name string) error {
			err := in.Writable(func() error { return in.Remove(name) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !(e.Dir && notEmpty(err)) {
				return about("remove", e.Path, err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// ifThere does something to what was made, if it is still there.
func (p *putting) ifThere(e madeEntry, do func(in *guard.Folder, name string) error) error {
	dir, name := path.Split(e.Path)
	in, err := p.at(path.Clean(dir))
	if err != nil {
		return unlessGone(err) // it never got there, or somebody else has taken it away
	}
	if fi, err := in.Lstat(name); err == nil && identify(fi) == e.identity {
		return do(in, name)
	}
	return nil
}

// at is find that keeps what it opened until the next: one entry after the other is in the same directory.
func (p *putting) at(dir string) (*guard.Folder, error) {
	if p.last != nil && p.lastDir == dir {
		return p.last, nil
	}
	next, err := p.find(dir)
	if err != nil {
		return nil, err
	}
	if p.last != nil {
		err = p.last.Close()
	}
	p.last, p.lastDir = next, dir
	return next, err
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// restore puts back what was replaced, where nothing else is now. What has no directory any more would be gone as
// well if nothing had ever been put.
func (p *putting) restore(ctx context.Context, aside *guard.Folder) error {
	return eachAside(ctx, aside, (*guard.Folder).FindForce, func(in *guard.Folder, dir, name string) error {
		at, err := p.at(dir)
		if err != nil {
			return unlessGone(err)
		}
		if _, err = at.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			err = at.Writable(func() error { return in.Writable(func() error { return in.Move(name, at) }) })
		}
		return unlessGone(err)
	})
}

// eachAside visits everything that was replaced. What nobody could have put, by its name or its depth, was not.
// However deep it goes, one directory is open at a time.
func eachAside(ctx context.Context, aside *guard.Folder, find func(*guard.Folder, string) (*guard.Folder, error), visit func(in *guard.Folder, dir, name string) error) error {
	var errs []error
	c := cursor{top: aside, find: find}
	stack := []string{"."}
	for len(stack) > 0 {
		dir := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		in, err := c.to(dir)
		if err != nil {
			errs = append(errs, unlessGone(err))
			continue
		}
		names, err := in.Names()
		errs = append(errs, err)
		for _, name := range names {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, c.close())
			}
			fi, err := in.Lstat(name)
			switch there := path.Join(dir, name); {
			case err != nil:
				errs = append(errs, unlessGone(err))
			case refusal(name) != "" || refusal(there) != "":
			case fi.Mode.IsDir():
				stack = append(stack, there)
			default:
				errs = append(errs, visit(in, dir, name))
			}
		}
	}
	return errors.Join(append(errs, c.close())...)
}

// unlessGone is an error, unless it says that there is no such directory.
func unlessGone(err error) error {
	var confined *guard.ConfinementError // something else is in its place
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.As(err, &confined) {
		return nil
	}
	return err
}

// stages are the names of all stages there are, those of the living and those that are gone too.
func (p *putting) stages() ([]string, error) {
	names, err := p.agency.Names()
	var found []string
	for _, name := range names {
		if !strings.HasPrefix(name, stagePrefix) && !strings.HasPrefix(name, gonePrefix) {
			continue
		}
		if fi, err := p.agency.Lstat(name); err == nil && fi.Mode.IsDir() {
			found = append(found, name)
		}
	}
	return found, err
}

// recover undoes what the killed left, or clears up behind those that were done. The caller has the lock. One
// stage that cannot be dealt with does not keep it from the others.
func (p *putting) recover(ctx context.Context) error {
	stages, err := p.stages()
	errs := []error{err}
	for _, name := range stages {
		if name == p.name {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.inDeadStage(ctx, name, func(stage *guard.Folder) error { return p.recoverStage(ctx, stage, name) }))
	}
	return errors.Join(errs...)
}

// inDeadStage does something with a stage, unless its owner lives.
func (p *putting) inDeadStage(ctx context.Context, name string, do func(stage *guard.Folder) error) (err error) {
	stage, err := p.agency.Force(name)
	if err != nil {
		return unlessGone(err) // its owner has just removed it
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	handle, err := stage.Handle()
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
	return do(stage)
}

func (p *putting) recoverStage(ctx context.Context, stage *guard.Folder, name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		err := p.undoStage(ctx, stage)
		if cause := context.Cause(ctx); cause != nil {
			return cause // whoever comes next goes on
		}
		if err != nil {
			return &LeftError{Stage: path.Join(p.tree.Path, stage.Path), Files: replaced(ctx, stage), Err: err}
		}
	}
	return p.remove(name)
}

// undoStage takes back what a plan says was made, and puts back what it replaced.
func (p *putting) undoStage(ctx context.Context, stage *guard.Folder) error {
	made, err := readPlan(ctx, stage)
	if err != nil {
		return err
	}
	err = p.unmake(ctx, made)
	aside, enterErr := stage.Force(asideName)
	if enterErr != nil { // it did not get that far
		return errors.Join(err, unlessGone(enterErr))
	}
	return errors.Join(err, p.restore(ctx, aside), aside.Close())
}

// replaced counts the files that a stage holds, of those that were replaced.
func replaced(ctx context.Context, stage *guard.Folder) (n int) {
	aside, err := stage.Enter(asideName)
	if err != nil {
		return 0
	}
	defer aside.Close()
	_ = eachAside(ctx, aside, (*guard.Folder).Find, func(*guard.Folder, string, string) error { n++; return nil }) // as far as one can see
	return n
}

// readPlan reads what a killed put was to make; nothing when it was killed before it knew. What does not
// read like a plan, or names what nobody puts, was not written by us, and tells us nothing; nor does what we
// cannot read.
func readPlan(ctx context.Context, stage *guard.Folder) ([]madeEntry, error) {
	f, err := stage.Read(planName)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // that is a socket
			err = nil
		}
		return nil, unlessGone(err)
	}
	defer f.Close()
	made, err := decodePlan(ctx, io.LimitReader(f, largestPlan))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var failed *fs.PathError
	if errors.As(err, &failed) { // it could not be read
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	return made, nil
}

// decodePlan reads a plan entry by entry, so that what is no plan costs no more than what it is up to there.
func decodePlan(ctx context.Context, from io.Reader) (made []madeEntry, err error) {
	forged := errors.New("no plan")
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	for _, want := range []json.Token{json.Delim('{'), "made", json.Delim('[')} {
		if token, err := decoder.Token(); err != nil {
			return nil, err
		} else if token != want {
			return nil, forged
		}
	}
	for decoder.More() {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		var e madeEntry
		if err := decoder.Decode(&e); err != nil {
			return nil, err
		}
		if clean, err := guard.CleanPath(e.Path); err != nil || clean != e.Path || clean == "." {
			return nil, forged
		}
		made = append(made, e)
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} { // or it was longer than any may be
		if token, err := decoder.Token(); err != nil {
			return nil, err
		} else if token != want {
			return nil, forged
		}
	}
	return made, nil
}
