package runs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
)

// openState opens the directory where the agent keeps its state in this sandbox, and creates it first with the user's login
// and settings. Commands of the sandbox can write the directory around it, so nothing is reached by its path: a symbolic
// link there must not lead out.
func (a *attempt) openState(spec runner.Spec) (*os.Root, error) {
	if err := os.MkdirAll(a.sandbox.AgentStateDir(), 0o700); err != nil {
		return nil, err
	}
	all, err := os.OpenRoot(a.sandbox.AgentStateDir())
	if err != nil {
		return nil, err
	}
	defer all.Close()
	state, err := all.OpenRoot(spec.Name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := seedState(all, spec, a.repo.Opts.Env); err != nil {
			return nil, err
		}
		state, err = all.OpenRoot(spec.Name)
	}
	return state, err
}

// hasSession reports whether a file that matches a pattern is in a state directory. The record cannot tell: a run that was
// killed, or was interactive, has a session of which no stream told.
func hasSession(state *os.Root, pattern string) bool {
	found, err := fs.Glob(state.FS(), pattern)
	return err == nil && len(found) > 0
}

// writeStateFiles writes the files that the agent needs for this run.
func writeStateFiles(state *os.Root, spec runner.Spec, launch runner.Launch) error {
	if spec.Files == nil {
		return nil
	}
	for _, f := range spec.Files(launch) {
		existing, err := readBeneath(state, f.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		content, err := f.Merge(existing)
		if err == nil {
			err = writeBeneath(state, f.Name, content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxSeed bounds each file that a state directory begins with or that is merged in it.
const maxSeed = 8 << 20

// seedState creates the state directory of an agent, all of it or nothing.
func seedState(all *os.Root, spec runner.Spec, env []string) error {
	temp := durable.TempPrefix + spec.Name
	if err := errors.Join(all.RemoveAll(temp), all.Mkdir(temp, 0o700)); err != nil {
		return err
	}
	for _, seed := range spec.Seeds {
		path := spec.SeedPath(env, seed)
		if path == "" {
			continue
		}
		if err := copySeed(path, all, filepath.Join(temp, seed.To)); err != nil {
			return errors.Join(err, all.RemoveAll(temp))
		}
	}
	if err := all.Rename(temp, spec.Name); err != nil {
		return errors.Join(err, all.RemoveAll(temp))
	}
	return nil
}

// copySeed copies a file, or the files of a directory. It leaves out files that do not exist, are not regular or are too
// large.
func copySeed(from string, root *os.Root, to string) error {
	fi, err := os.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 && isDirectory(filepath.Join(from, e.Name())) {
				continue // it may lead back
			}
			if err := copySeed(filepath.Join(from, e.Name()), root, filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return nil
	case !fi.Mode().IsRegular() || fi.Size() > maxSeed:
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeBeneath(root, to, text)
}

func isDirectory(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// readBeneath reads a file in a directory that an agent can write.
func readBeneath(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")})
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSeed+1))
	if err == nil && len(text) > maxSeed {
		err = &fault.InvalidError{What: "file", Value: name, Want: "a smaller file"}
	}
	return text, err
}

// writeBeneath replaces a file in a directory that an agent can write.
func writeBeneath(root *os.Root, name string, content []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	temp := name + ".new"
	if err := root.RemoveAll(temp); err != nil {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	return err
}
