package gitagency

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// installedState is what stands where a file of ours goes.
type installedState struct {
	there   bool
	foreign string // why it is not ours; empty when it is, or when nothing is there
	raw     []byte
	mode    fs.FileMode
	data    []byte // without the mark
	made    int    // how many directories above it were made for it
	owner   string // which installation it belongs to
}

// installedLimit is more than any file of ours holds.
const installedLimit = 1 << 20

func stateOf(path, comment string) (installedState, error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return installedState{}, nil
	case err != nil:
		return installedState{}, err
	case fi.Mode()&fs.ModeSymlink != 0:
		return installedState{there: true, foreign: "it is a symbolic link"}, nil
	case !fi.Mode().IsRegular():
		return installedState{there: true, foreign: "it is not a file"}, nil
	case fi.Size() > installedLimit:
		return installedState{there: true, foreign: notOurs}, nil
	}
	raw, err := durable.ReadFile(path, installedLimit)
	if err != nil {
		return installedState{}, err
	}
	s := readMark(raw, comment)
	s.there, s.raw, s.mode = true, raw, fi.Mode().Perm()
	return s, nil
}

const (
	notOurs = "it was not installed by 'git agency setup'"
	others  = "it belongs to another installation"
	edited  = "it was changed since 'git agency setup' installed it"
)

// marked adds the line by which a file is known to be ours, and unchanged. It is the last line, because
// some readers want the first for themselves.
func marked(data []byte, comment string, made int, owner string) []byte {
	return fmt.Appendf(bytes.Clone(data), "%s Installed by 'git agency setup'; --undo removes it. directories=%d for=%s sha256=%x\n", comment, made, owner, sha256.Sum256(data))
}

var markLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\S+) Installed by 'git agency setup'; --undo removes it\. directories=([0-9]{1,2}) for=([0-9a-f]{16}) sha256=([0-9a-f]{64})$`)
})

// ownerOf names an installation by its prefix. A file in a directory of the user's serves all of them, and
// goes with the one that brought it.
func ownerOf(prefix string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(prefix)))
	return fmt.Sprintf("%x", sum[:8])
}

// readMark takes the mark off the content of a file.
func readMark(raw []byte, comment string) installedState {
	end := bytes.LastIndexByte(bytes.TrimSuffix(raw, []byte("\n")), '\n') + 1
	m := markLine().FindSubmatch(bytes.TrimSuffix(raw[end:], []byte("\n")))
	if m == nil || string(m[1]) != comment {
		return installedState{data: raw, foreign: notOurs}
	}
	data := raw[:end]
	if fmt.Sprintf("%x", sha256.Sum256(data)) != string(m[4]) {
		return installedState{data: data, foreign: edited}
	}
	made, _ := strconv.Atoi(string(m[2])) // two digits are a number
	return installedState{data: data, made: made, owner: string(m[3])}
}

// leftovers lists what a killed writer of a file left beside it.
func leftovers(path string) []string {
	var found []string
	entries, _ := os.ReadDir(filepath.Dir(path)) // where nothing can be read, nothing was written
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), durable.TempPrefix+filepath.Base(path)+"-")
		if _, err := strconv.ParseUint(rest, 10, 64); ours && err == nil {
			found = append(found, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return found
}

// missingDirs lists the directories to make before dir is there, the outermost first, but for those
// that are going to be made anyway.
func missingDirs(dir string, planned []string) ([]string, error) {
	var missing []string
	for ; !slices.Contains(planned, dir); dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		switch {
		case err == nil && !fi.IsDir():
			return nil, &ForeignFileError{Path: dir, Why: "it is not a directory"}
		case err == nil:
			slices.Reverse(missing)
			return missing, nil
		case errors.Is(err, syscall.ENOTDIR): // the file is further up
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	return missing, nil
}

func innermostFirst(dirs map[string]bool) []string {
	var list []string
	for dir := range dirs {
		list = append(list, dir)
	}
	slices.SortFunc(list, func(a, b string) int {
		if d := strings.Count(b, "/") - strings.Count(a, "/"); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return list
}

// removeIfEmpty takes an empty directory away. Not os.Remove: that would also remove a link that
// somebody put in its place.
func removeIfEmpty(dir string) (removed bool, err error) {
	err = syscall.Rmdir(dir)
	for _, fine := range []error{syscall.ENOTEMPTY, syscall.EEXIST, syscall.ENOENT, syscall.ENOTDIR} {
		if errors.Is(err, fine) {
			return false, nil
		}
	}
	if err != nil {
		return false, &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return true, durable.SyncDir(filepath.Dir(dir))
}

func wouldBeEmpty(dir string, gone map[string]bool) (bool, error) {
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		return false, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !gone[filepath.Join(dir, e.Name())] {
			return false, nil
		}
	}
	return true, nil
}
