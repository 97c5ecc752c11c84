package setup

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
)

// fileState is the present state of a path to install at.
type fileState struct {
	exists        bool
	foreignReason string // reason why the file is not ours; empty if it is, or if there is none
	raw           []byte
	mode          fs.FileMode
	data          []byte // content without the footer
	madeDirs      int    // number of directories above it that were made for it
	owner         string // id of the installation it belongs to
}

// maxInstalledSize is larger than any file that we install.
const maxInstalledSize = 1 << 20

// readFileState reads the file at a path to install at. comment is the comment prefix of its kind.
func readFileState(path, comment string) (fileState, error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return fileState{}, nil
	case err != nil:
		return fileState{}, err
	case fi.Mode()&fs.ModeSymlink != 0:
		return fileState{exists: true, foreignReason: "it is a symbolic link"}, nil
	case !fi.Mode().IsRegular():
		return fileState{exists: true, foreignReason: "it is not a file"}, nil
	case fi.Size() > maxInstalledSize:
		return fileState{exists: true, foreignReason: reasonNotInstalled}, nil
	}
	raw, err := readFile(path, maxInstalledSize)
	if err != nil {
		return fileState{}, err
	}
	s := parseFooter(raw, comment)
	s.exists, s.raw, s.mode = true, raw, fi.Mode().Perm()
	return s, nil
}

const (
	reasonNotInstalled      = "it was not installed by 'git agency setup'"
	reasonOtherInstallation = "it belongs to another installation"
	reasonEdited            = "it was changed since 'git agency setup' installed it"
)

// withFooter appends the line that identifies a file as ours and has the checksum of its content. It is the last
// line, because some programs require a special first line.
func withFooter(data []byte, comment string, made int, owner string) []byte {
	return fmt.Appendf(bytes.Clone(data), "%s Installed by 'git agency setup'; --undo removes it. directories=%d for=%s sha256=%x\n", comment, made, owner, sha256.Sum256(data))
}

var footerPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\S+) Installed by 'git agency setup'; --undo removes it\. directories=([0-9]{1,2}) for=([0-9a-f]{16}) sha256=([0-9a-f]{64})$`)
})

// installationID derives the id of an installation from its prefix. A file in one of the user's own directories
// serves all installations, and is removed with the one that wrote it first.
func installationID(prefix string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(prefix)))
	return fmt.Sprintf("%x", sum[:8])
}

// parseFooter splits the footer from the content of a file.
func parseFooter(raw []byte, comment string) fileState {
	end := bytes.LastIndexByte(bytes.TrimSuffix(raw, []byte("\n")), '\n') + 1
	m := footerPattern().FindSubmatch(bytes.TrimSuffix(raw[end:], []byte("\n")))
	if m == nil || string(m[1]) != comment {
		return fileState{data: raw, foreignReason: reasonNotInstalled}
	}
	data := raw[:end]
	if fmt.Sprintf("%x", sha256.Sum256(data)) != string(m[4]) {
		return fileState{data: data, foreignReason: reasonEdited}
	}
	made, _ := strconv.Atoi(string(m[2])) // the pattern allows only one or two digits
	return fileState{data: data, madeDirs: made, owner: string(m[3])}
}

// leftoverTemps lists the temporary files that a killed writer left beside a file.
func leftoverTemps(path string) []string {
	var found []string
	entries, _ := os.ReadDir(filepath.Dir(path)) // in a directory that cannot be read nothing was written
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), tempPrefix+filepath.Base(path)+"-")
		if _, err := strconv.ParseUint(rest, 10, 64); ours && err == nil {
			found = append(found, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return found
}

// missingDirs lists the directories to make for dir, outermost first, without those that are planned already.
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
		case errors.Is(err, syscall.ENOTDIR): // a file stands further up in the path
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	return missing, nil
}

func sortInnermostFirst(dirs map[string]bool) []string {
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

// removeEmptyDir removes a directory if it is empty. It uses rmdir, as os.Remove would also remove a symbolic link
// that replaced the directory.
func removeEmptyDir(dir string) (removed bool, err error) {
	err = syscall.Rmdir(dir)
	for _, fine := range []error{syscall.ENOTEMPTY, syscall.EEXIST, syscall.ENOENT, syscall.ENOTDIR} {
		if errors.Is(err, fine) {
			return false, nil
		}
	}
	if err != nil {
		return false, &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return true, syncDir(filepath.Dir(dir))
}

// wouldBeEmpty reports whether a directory has no entries but those in gone.
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
