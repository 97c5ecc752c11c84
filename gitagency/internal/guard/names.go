package guard

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// ConfinementError reports a path that is refused because of its name or its target.
type ConfinementError struct {
	Path string
	Why  string
}

func (e *ConfinementError) Error() string {
	return "path confinement: " + QuotePath(e.Path) + " " + e.Why
}

// QuotePath returns the path in quotes, and escaped only if it contains terminal controls or invisible characters.
func QuotePath(path string) string {
	if utf8.ValidString(path) && !hasHiddenChars(path) {
		return `"` + path + `"`
	}
	return fmt.Sprintf("%q", path)
}

// Length limits in bytes, within what common file systems and programs support.
const (
	MaxPathLen = 1024
	maxNameLen = 255
)

// reservedNames may be used by git and git-agency only, in any directory: git runs hooks and programs from .git, and
// .agency holds the marker of a tree.
var reservedNames = []string{".git", AgencyDir}

// CheckPath reports whether a path, relative to the top of a tree, may be used in it. It is the one policy for all
// names that users and programs choose. It checks the name only; Tree checks the target. The error is a
// *ConfinementError.
//
// A name that some other file system would equate with a reserved one is refused as well, because the tree may be
// checked out there.
func CheckPath(path string) error {
	_, err := CleanPath(path)
	return err
}

// CleanPath is CheckPath that also returns the path without "." components and redundant slashes.
func CleanPath(name string) (string, error) {
	if why := pathProblem(name); why != "" {
		return "", &ConfinementError{Path: name, Why: why}
	}
	return path.Clean(name), nil
}

// pathProblem describes why a path is refused; it is empty for an allowed path.
func pathProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxPathLen:
		return fmt.Sprintf("is longer than %d bytes", MaxPathLen)
	case name[0] == '/':
		return "is absolute"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.Contains(name, `\`):
		return "contains a backslash"
	case hasHiddenChars(name):
		return "contains invisible characters"
	}
	for component := range strings.SplitSeq(name, "/") {
		if why := componentProblem(component); why != "" {
			return why
		}
	}
	return ""
}

func componentProblem(name string) string {
	switch {
	case name == "" || name == "." || name == "…": // NFKC folds … to three dots, but no file system makes two dots of it
		return ""
	case name == "..":
		return `contains ".."`
	case len(name) > maxNameLen:
		return fmt.Sprintf("has a component of more than %d bytes", maxNameLen)
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return "has a component that ends in a dot or a space"
	}
	if isPlainASCII(name) {
		return ""
	}
	folded := foldName(name)
	if folded == "" {
		return "has a component of invisible characters only"
	}
	// Folding can produce separators: "．git／x" is one component here, and two on a file system that folds it.
	for part := range strings.FieldsFuncSeq(folded, func(r rune) bool { return r == '/' || r == '\\' }) {
		if is := reservedEquivalent(part); is != "" {
			return fmt.Sprintf("has a component that is equivalent to %q", is)
		}
	}
	return ""
}

// IsReservedName reports whether a single component is the name of a git directory or of the directory of a marker, or
// one that some file system equates with it.
func IsReservedName(name string) bool {
	return name != "" && !isPlainASCII(name) && reservedEquivalent(foldName(name)) != ""
}

// isPlainASCII is the fast path: it reports whether a component cannot resemble a reserved name, because it is ASCII
// without a leading dot and without the tilde of an 8.3 short name.
func isPlainASCII(name string) bool {
	if name[0] == '.' {
		return false
	}
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf || name[i] == '~' {
			return false
		}
	}
	return true
}

// hasHiddenChars reports whether a path contains control or invisible characters. It allows those that scripts and
// emoji need: a zero-width joiner or non-joiner between non-ASCII characters, and tag characters after a black flag.
// These exceptions are safe, because foldName drops them before the comparison with reserved names.
func hasHiddenChars(path string) bool {
	const nonJoiner, joiner, flag, firstTag, lastTag = 0x200c, 0x200d, 0x1f3f4, 0xe0020, 0xe007f
	before, tagged := rune(0), false
	for at, r := range path {
		switch {
		case r == flag:
			tagged = true
		case tagged && firstTag <= r && r <= lastTag:
			tagged = r != lastTag
		case r == joiner || r == nonJoiner:
			next, _ := utf8.DecodeRuneInString(path[at+utf8.RuneLen(r):])
			if before < utf8.RuneSelf || next < utf8.RuneSelf || isInvisible(before) || isInvisible(next) || next == utf8.RuneError {
				return true
			}
		case isInvisible(r):
			return true
		default:
			tagged = false
		}
		before = r
	}
	return false
}

// isInvisible reports whether a character controls the display or is not displayed.
func isInvisible(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// foldName normalises a name as the most lenient file system would compare it: it ignores compatibility forms, letter
// case and default-ignorable characters.
func foldName(name string) string {
	for range 4 { // one step can enable another; four suffice
		before := name
		name = strings.Map(func(r rune) rune {
			if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
				return -1
			}
			return unicode.ToLower(unicode.ToUpper(r)) // ToUpper first also maps the dotless i, which has no case folding
		}, norm.NFKC.String(name))
		if name == before {
			break
		}
	}
	return name
}

// reservedEquivalent returns the reserved name that some file system equates with a folded component, or "".
func reservedEquivalent(folded string) string {
	name, _, _ := strings.Cut(folded, ":") // name:stream on NTFS opens the file itself
	name = strings.TrimRight(name, ". ")
	switch {
	case name == "" && strings.HasPrefix(folded, ".."):
		return ".."
	case shortNamePattern().MatchString(name):
		name = shortNameOwners[name[:2]]
	}
	for _, r := range reservedNames {
		if name == r {
			return r
		}
	}
	return ""
}

// shortNamePattern matches the 8.3 short names that NTFS and FAT give to reserved names: its letters, fewer with a
// longer number, or the first two with a hash; then a tilde and a number.
var (
	shortNamePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:git~[0-9]{1,4}|agency~[0-9]|agenc~[0-9]{2}|agen~[0-9]{3}|(?:gi|ag)[0-9a-f]{4}~[0-9])$`)
	})
	shortNameOwners = map[string]string{"gi": ".git", "ag": AgencyDir}
)
