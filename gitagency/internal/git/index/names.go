package index

import (
	"bytes"
	"regexp"
	"sync"
	"unicode/utf8"
)

// PathProblem returns the reason why git must never check out a path, which is a symbolic link if link is set; "" when it
// may. It checks the components from the one that begins at offset from. It follows git's verify_path with core.protectHFS
// and core.protectNTFS set, because the path may be checked out on another file system.
func PathProblem(name []byte, from int, link bool) string {
	for {
		component, rest, more := bytes.Cut(name[from:], []byte{'/'})
		switch {
		case len(component) == 0:
			return "an empty component"
		case string(component) == "." || string(component) == "..":
			return "a component that is \".\" or \"..\""
		case mayBeDotGit(component) && isDotGit(component):
			return "a component that is equivalent to .git"
		}
		if !more {
			if link && isGitmodules(component) {
				return ".gitmodules is a symbolic link"
			}
			return ""
		}
		from = len(name) - len(rest)
	}
}

// mayBeDotGit reports whether isDotGit has to look at a component; it is false for nearly all of them.
func mayBeDotGit(c []byte) bool {
	switch c[0] {
	case '.', 'g', 'G', 0xe2, 0xef: // the last two are first bytes of the characters that HFS+ ignores
		return true
	}
	return bytes.IndexByte(c, '\\') >= 0
}

// isDotGit reports whether HFS+ or NTFS takes a component for .git.
func isDotGit(component []byte) bool {
	if string(FoldHFS(component)) == ".git" {
		return true
	}
	for part := range bytes.SplitSeq(component, []byte{'\\'}) {
		part = bytes.ToLower(part)
		for _, name := range []string{".git", "git~1"} {
			if rest, is := bytes.CutPrefix(part, []byte(name)); is && isIgnoredByNTFS(rest) {
				return true
			}
		}
	}
	return false
}

// isIgnoredByNTFS reports whether NTFS ignores the rest of a name: dots and spaces at its end, and the name of a stream.
func isIgnoredByNTFS(rest []byte) bool {
	rest = bytes.TrimLeft(rest, ". ")
	return len(rest) == 0 || rest[0] == ':'
}

// FoldHFS returns a name without the characters that HFS+ ignores, with ASCII letters in lower case.
func FoldHFS(name []byte) []byte {
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

// gitmodulesNTFS matches the names that NTFS takes for .gitmodules, including its short names. That file says what git
// runs in submodules, so it must not be read through a symbolic link.
var gitmodulesNTFS = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:\.gitmodules|gitmod~[1-4]|gi7eba~[0-9]|gi7eb~[0-9]{2}|gi7e~[0-9]{3}|gi7~[0-9]{4}|gi~[0-9]{5}|g~[0-9]{6}|~[0-9]{7})[. ]*(?::.*)?$`)
})

// isGitmodules reports whether a file system takes a component for .gitmodules.
func isGitmodules(component []byte) bool {
	return string(FoldHFS(component)) == ".gitmodules" || gitmodulesNTFS().Match(component)
}

// IsCheckedByFsck reports whether git fsck checks the content of files with this name, on any file system: .gitmodules and
// .gitattributes.
func IsCheckedByFsck(component []byte) bool {
	return isGitmodules(component) || PatternFile(component) == AttributesFile
}

// The names of the files of patterns that git reads in a tree.
const (
	AttributesFile = ".gitattributes"
	IgnoreFile     = ".gitignore"
)

// PatternFile returns AttributesFile or IgnoreFile if a component is that name on some file system; "" otherwise.
func PatternFile(component []byte) string {
	if len(component) == 0 || !mayBeDotGit(component) {
		return ""
	}
	if name := string(FoldHFS(component)); name == AttributesFile || name == IgnoreFile {
		return name
	}
	return ""
}
