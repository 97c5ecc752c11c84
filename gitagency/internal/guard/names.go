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

// ConfinementError is a path that is refused because of where it leads or what it is called.
type ConfinementError struct {
	Path string
	Why  string
}

func (e *ConfinementError) Error() string {
	return "path confinement: " + Quoted(e.Path) + " " + e.Why
}

// Quoted is a path as it is, unless that would steer a terminal or hide what it says.
func Quoted(path string) string {
	if utf8.ValidString(path) && !hides(path) {
		return `"` + path + `"`
	}
	return fmt.Sprintf("%q", path)
}

// What names are made of, as file systems and the programs that have to deal with them can take it.
const (
	LongestPath = 1024
	longestName = 255
)

// reserved are the names that nobody but git and this tool may use, in any directory: git runs what it
// finds in the one, and the other says what a tree is.
var reserved = []string{".git", Dir}

// CheckPath says whether a path, relative to the top of a tree, may be used in it. It is the one policy
// for everything that is named by others, and looks at the name alone; where that leads is for Tree to
// find out. The error is a *ConfinementError.
//
// What file systems other than this one take for another name is refused along with it: a tree is
// checked out again elsewhere.
func CheckPath(path string) error {
	_, err := CleanPath(path)
	return err
}

// CleanPath is CheckPath that returns the path without "." and needless slashes.
func CleanPath(name string) (string, error) {
	if why := refused(name); why != "" {
		return "", &ConfinementError{Path: name, Why: why}
	}
	return path.Clean(name), nil
}

// refused says what is wrong with a path; empty when nothing is.
func refused(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > LongestPath:
		return fmt.Sprintf("is longer than %d bytes", LongestPath)
	case name[0] == '/':
		return "is absolute"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.Contains(name, `\`):
		return "contains a backslash"
	case hides(name):
		return "contains characters that cannot be seen"
	}
	for component := range strings.SplitSeq(name, "/") {
		if why := refusedComponent(component); why != "" {
			return why
		}
	}
	return ""
}

func refusedComponent(name string) string {
	switch {
	case name == "" || name == "." || name == "…": // of which no file system makes two dots
		return ""
	case name == "..":
		return `contains ".."`
	case len(name) > longestName:
		return fmt.Sprintf("has a component of more than %d bytes", longestName)
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return "has a component that ends in a dot or a space"
	}
	if plain(name) {
		return ""
	}
	folded := fold(name)
	if folded == "" {
		return "has a component that cannot be seen"
	}
	// Folding can bring forth what separates: "．git／x" is one component, and two where it is not.
	for part := range strings.FieldsFuncSeq(folded, func(r rune) bool { return r == '/' || r == '\\' }) {
		if is := disguised(part); is != "" {
			return fmt.Sprintf("has a component that is, or can be taken for, %q", is)
		}
	}
	return ""
}

// plain reports whether a component is nowhere near a reserved name, as almost all are: it is ASCII, and has
// neither the dot that those begin with nor the tilde of their short names.
func plain(name string) bool {
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

// hides reports whether something in a path steers what shows it or is not shown, other than where scripts and
// emoji need it: a joiner or non-joiner between characters that are not ASCII, and the tags behind a black flag.
// What is compared with reserved names is without them in any case.
func hides(path string) bool {
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
			if before < utf8.RuneSelf || next < utf8.RuneSelf || unseen(before) || unseen(next) || next == utf8.RuneError {
				return true
			}
		case unseen(r):
			return true
		default:
			tagged = false
		}
		before = r
	}
	return false
}

// unseen are characters that steer what shows them, or are not shown at all.
func unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// fold is a name as the most lenient of file systems would compare it: compatibility forms, letter case and
// characters that may be ignored make no difference to it.
func fold(name string) string {
	for range 4 { // one step can make way for another; none needs more
		before := name
		name = strings.Map(func(r rune) rune {
			if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
				return -1
			}
			return unicode.ToLower(unicode.ToUpper(r)) // also the dotless i, which has no other fold
		}, norm.NFKC.String(name))
		if name == before {
			break
		}
	}
	return name
}

// disguised is the reserved name that a folded component stands for somewhere; empty when it is none.
func disguised(folded string) string {
	name, _, _ := strings.Cut(folded, ":") // a stream of NTFS is the file itself
	name = strings.TrimRight(name, ". ")
	switch {
	case name == "" && strings.HasPrefix(folded, ".."):
		return ".."
	case shortName().MatchString(name):
		name = shortNames[name[:2]]
	}
	for _, r := range reserved {
		if name == r {
			return r
		}
	}
	return ""
}

// shortName matches what NTFS and FAT also call a reserved name: its letters, fewer where the number is
// long, or the first two with a hash, then a tilde and a number.
var (
	shortName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:git~[0-9]{1,4}|agency~[0-9]|agenc~[0-9]{2}|agen~[0-9]{3}|(?:gi|ag)[0-9a-f]{4}~[0-9])$`)
	})
	shortNames = map[string]string{"gi": ".git", "ag": Dir}
)
