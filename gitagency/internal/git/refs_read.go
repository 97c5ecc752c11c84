package git

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// mostPacked is how many bytes of packed refs are read.
const mostPacked = 64 << 20

// refsAtOnce reads refs from their files, which takes less time than to start a git. Whatever is out of the ordinary
// is left to git: ok is false.
func (r *Repo) refsAtOnce(prefixes []string) (_ map[string]string, ok bool) {
	if v, set := r.Config.Last(formatVersion); !set || v.Value != "0" {
		return nil, false // another version may keep them elsewhere
	}
	refs := map[string]string{}
	for _, prefix := range prefixes {
		if !strings.HasSuffix(prefix, "/") || !validRef(prefix+"x") || !r.looseBelow(refs, prefix, 0) {
			return nil, false
		}
	}
	// What is being packed is there before its file goes; so this comes last.
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), mostPacked)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	for _, prefix := range prefixes {
		if !packedBelow(refs, packed, prefix) {
			return nil, false
		}
	}
	return refs, true
}

// tipAtOnce is refsAtOnce for one ref; it is empty when there is no such.
func (r *Repo) tipAtOnce(ref string) (oid string, ok bool) {
	if oid := r.loose(ref); oid != "" {
		return oid, true
	}
	if v, set := r.Config.Last(formatVersion); !set || v.Value != "0" || !validRef(ref) {
		return "", false
	}
	if fi, err := os.Lstat(r.RefPath(ref)); err == nil && !fi.IsDir() || err != nil && !nothingThere(err) {
		return "", false
	}
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), mostPacked)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Join(r.CommonDir, "HEAD")) // else all of it is gone
	}
	if err != nil || len(packed) > 0 && packed[len(packed)-1] != '\n' {
		return "", false
	}
	at := bytes.Index(packed, []byte(" "+ref+"\n"))
	if at < 0 {
		return "", true
	}
	oid = string(packed[bytes.LastIndexByte(packed[:at], '\n')+1 : at])
	return oid, isOID(oid)
}

// packedBelow adds the packed refs below a prefix, lines of "<oid> <ref>", that have no file to themselves.
func packedBelow(refs map[string]string, packed []byte, prefix string) (ok bool) {
	for at := 0; ; {
		next := bytes.Index(packed[at:], []byte(" "+prefix))
		if next < 0 {
			return true
		}
		at += next
		begin := bytes.LastIndexByte(packed[:at], '\n') + 1
		length := bytes.IndexByte(packed[at:], '\n')
		if length < 0 || !isOID(string(packed[begin:at])) {
			return false
		}
		if ref := string(packed[at+1 : at+length]); refs[ref] == "" {
			refs[ref] = string(packed[begin:at])
		}
		at += length
	}
}

// looseBelow adds those that have a file to themselves.
func (r *Repo) looseBelow(refs map[string]string, prefix string, depth int) (ok bool) {
	const deepest = 8
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, prefix))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || depth > deepest {
		return false
	}
	for _, e := range entries {
		ref := prefix + e.Name()
		switch {
		case strings.HasSuffix(ref, lockSuffix): // of a git at work, or one that was killed
		case e.IsDir():
			if !r.looseBelow(refs, ref+"/", depth+1) {
				return false
			}
		default:
			oid := r.loose(ref)
			if oid == "" {
				return false
			}
			refs[ref] = oid
		}
	}
	return true
}

// LastNumbered is the highest number that a ref directly below a prefix has for a name. It is not ok where all have to be
// read, or git has to be asked.
func (r *Repo) LastNumbered(prefix string) (last int, ok bool) {
	const most = 9 // digits
	if v, set := r.Config.Last(formatVersion); !set || v.Value != "0" {
		return 0, false // another version may keep them elsewhere
	}
	dir, err := os.Open(filepath.Join(r.CommonDir, prefix))
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, false
	}
	packed, err := durable.ReadFile(filepath.Join(r.CommonDir, "packed-refs"), mostPacked)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Contains(packed, []byte(" "+prefix)) {
		return 0, false
	}
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && len(name) <= most && strconv.Itoa(n) == name {
			last = max(last, n)
		}
	}
	return last, last > 0
}
