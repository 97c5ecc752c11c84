package object

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Identity is the author or committer of a commit.
type Identity struct{ Name, Email string }

// EncodeCommit encodes a commit object, dated now. The identity is given, so that user.name need not be configured.
func EncodeCommit(format Format, who Identity, tree string, parents []string, message string) Raw {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	now := time.Now()
	by := fmt.Sprintf("%s <%s> %d %s", who.Name, who.Email, now.Unix(), now.Format("-0700"))
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", by, by, message)
	content := []byte(b.String())
	return Raw{Kind: "commit", OID: HashObject(format, "commit", content), Content: content}
}

// InvalidCommitError is a commit object that git would not have written.
type InvalidCommitError struct{ Commit, Why string }

func (e *InvalidCommitError) Error() string {
	return fmt.Sprintf("commit %.12s is invalid: %s", e.Commit, e.Why)
}

// Commit is a parsed commit object.
type Commit struct {
	OID, Tree         string
	Parents           []string
	Author, Committer string // "<name> <<email>> <seconds> <zone>"
	Encoding          string
	Message           string
}

// ParseCommit parses a commit object, and refuses one that git would not have written, as far as this package relies on
// its format. The error is the reason.
func ParseCommit(data string) (c Commit, err error) {
	strange := func(what string) (Commit, error) { return Commit{}, errors.New(what) }
	header, message, ok := strings.Cut(data, "\n\n")
	if !ok {
		if header, ok = strings.CutSuffix(data, "\n"); !ok { // without a message
			return strange("unterminated header")
		}
	}
	c.Message = message
	if strings.Contains(data, "\x00") {
		return strange("NUL byte")
	}
	lines := strings.Split(header, "\n")
	next := func(key string) (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		value, is := strings.CutPrefix(lines[0], key+" ")
		if is {
			lines = lines[1:]
		}
		return value, is
	}
	if c.Tree, ok = next("tree"); !ok || !IsOID(c.Tree) {
		return strange("missing or invalid tree")
	}
	for {
		parent, is := next("parent")
		if !is {
			break
		}
		if !IsOID(parent) || len(parent) != len(c.Tree) || slices.Contains(c.Parents, parent) {
			return strange("invalid or duplicate parent")
		}
		c.Parents = append(c.Parents, parent)
	}
	if c.Author, ok = next("author"); !ok || !isSignature(c.Author) {
		return strange("missing or invalid author")
	}
	if c.Committer, ok = next("committer"); !ok || !isSignature(c.Committer) {
		return strange("missing or invalid committer")
	}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree", "parent", "author", "committer":
			return strange(key + " in the wrong place")
		case "encoding":
			if c.Encoding != "" || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
				return strange("invalid or duplicate encoding")
			}
			c.Encoding = value
		}
	}
	return c, nil
}

// ParseCommitHeader returns only the tree, the parents and the committer date of a commit, and checks nothing else: the user's
// history may have commits of any age, written by any tool. It is ok where there is a tree.
func ParseCommitHeader(data string) (tree string, parents []string, when int64, ok bool) {
	header, _, _ := strings.Cut(data, "\n\n")
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "tree" && tree == "":
			tree = value
		case key == "parent" && when == 0:
			parents = append(parents, value)
		case key == "committer":
			fields := strings.Fields(value[strings.LastIndexByte(value, '>')+1:])
			if len(fields) > 0 {
				when, _ = strconv.ParseInt(fields[0], 10, 64) // an invalid date is the oldest, as for git
			}
			return tree, parents, when, IsOID(tree)
		}
	}
	return tree, parents, 0, IsOID(tree)
}

// isSignature reports whether s is "<name> <<email>> <seconds> <zone>".
func isSignature(s string) bool {
	who, when, ok := strings.Cut(s, "> ")
	name, email, has := strings.Cut(who, "<")
	if !ok || !has || strings.ContainsAny(name, "<>") || strings.ContainsAny(email, "<>") || name != "" && !strings.HasSuffix(name, " ") {
		return false
	}
	return IsTimestamp(when)
}

// IsTimestamp reports whether when is "<seconds> <zone>".
func IsTimestamp(when string) bool {
	seconds, zone, ok := strings.Cut(when, " ")
	return ok && seconds != "" && len(seconds) <= 19 && strings.Trim(seconds, "0123456789") == "" &&
		len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') && strings.Trim(zone[1:], "0123456789") == ""
}

// IncompleteError reports an object that received history needs and that is missing or of another type.
type IncompleteError struct {
	OID, Want string // id and required type of the object
	Have      string // its actual type; empty when it is missing
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("object %s must be a %s, but is %s", e.OID, e.Want, cmp.Or(e.Have, "missing"))
}

// TooLargeError reports an object that is too large to be read into memory.
type TooLargeError struct {
	Kind, OID string
	Size      int64 // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s %s is too large: %d bytes", e.Kind, e.OID, e.Size)
}

// IsValidRef checks the full name of a ref by git's rules, because git itself checks it only in the last step.
func IsValidRef(ref string) bool {
	if !strings.HasPrefix(ref, "refs/") || strings.HasSuffix(ref, ".") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return false
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("~^:?*[\\", r) })
}

// Encode returns the commit object.
func (c Commit) Encode(format Format) Raw {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n", c.Author, c.Committer)
	if c.Encoding != "" {
		fmt.Fprintf(&b, "encoding %s\n", c.Encoding)
	}
	fmt.Fprintf(&b, "\n%s", c.Message)
	content := []byte(b.String())
	return Raw{Kind: "commit", OID: HashObject(format, "commit", content), Content: content}
}
