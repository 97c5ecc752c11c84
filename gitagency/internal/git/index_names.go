package git

import (
	"bytes"
	"regexp"
	"sync"
	"unicode/utf8"
)

// refusedName says why git must never get to check a path out; empty when it may. It looks from a component
// on that begins at from. It is git's own rule, with everything git can be told to protect protected: what
// is staged here may be checked out on another file system. Otherwise names are the user's own.
func refusedName(name []byte, from int, link bool) string {
	for {
		component, rest, more := bytes.Cut(name[from:], []byte{'/'})
		switch {
		case len(component) == 0:
			return "an empty component"
		case string(component) == "." || string(component) == "..":
			return "a component that leads elsewhere"
		case nearGit(component) && isGit(component):
			return "a component that is, or can be taken for, .git"
		}
		if !more {
			if link && isGitmodules(component) {
				return "a link in the place of .gitmodules"
			}
			return ""
		}
		from = len(name) - len(rest)
	}
}

// nearGit reports whether a component is worth a closer look, as almost none is.
func nearGit(c []byte) bool {
	switch c[0] {
	case '.', 'g', 'G', 0xe2, 0xef: // the last two begin what HFS+ does not see
		return true
	}
	return bytes.IndexByte(c, '\\') >= 0
}

// isGit reports whether some file system takes a component for .git.
func isGit(component []byte) bool {
	if string(seenByHFS(component)) == ".git" {
		return true
	}
	for part := range bytes.SplitSeq(component, []byte{'\\'}) {
		part = bytes.ToLower(part)
		for _, name := range []string{".git", "git~1"} {
			if rest, is := bytes.CutPrefix(part, []byte(name)); is && unseenByNTFS(rest) {
				return true
			}
		}
	}
	return false
}

// unseenByNTFS reports whether what comes behind a name makes no difference to it: dots and spaces at its
// end, and the name of a stream.
func unseenByNTFS(rest []byte) bool {
	rest = bytes.TrimLeft(rest, ". ")
	return len(rest) == 0 || rest[0] == ':'
}

// seenByHFS is a name without what HFS+ ignores in it, in lower case as far as it is ASCII.
func seenByHFS(name []byte) []byte {
	seen := make([]byte, 0, 16)
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		case 'A' <= r && r <= 'Z':
			seen = append(seen, byte(r)|0x20)
		default:
			seen = append(seen, name[:n]...)
		}
		name = name[n:]
	}
	return seen
}

// gitmodules matches what NTFS takes for that file: git reads through it what a submodule's git runs.
var gitmodules = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:\.gitmodules|gitmod~[1-4]|gi7eba~[0-9]|gi7eb~[0-9]{2}|gi7e~[0-9]{3}|gi7~[0-9]{4}|gi~[0-9]{5}|g~[0-9]{6}|~[0-9]{7})[. ]*(?::.*)?$`)
})

func isGitmodules(component []byte) bool {
	return string(seenByHFS(component)) == ".gitmodules" || gitmodules().Match(component)
}
