// Package ids makes and recognises the identifiers of invocations and worktrees:
// a UTC second and four hexadecimal digits, such as 20260128120500-b7c9.
//
// An id is only a proposal: a caller owns it once an exclusive mkdir with that name has succeeded. This package never
// accesses the file system.
package ids

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

const timeLayout = "20060102150405"

// Length is the length of an id.
const Length = len(timeLayout) + len("-0000")

// Source makes ids. Its zero value uses the real clock and the system's randomness.
type Source struct {
	Now  func() time.Time
	Rand io.Reader
}

// New proposes an id and returns it with the UTC second that it names.
func (s Source) New() (string, time.Time, error) {
	now, random := s.Now, s.Rand
	if now == nil {
		now = time.Now
	}
	if random == nil {
		random = rand.Reader
	}
	var b [2]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", time.Time{}, fmt.Errorf("make an id: %w", err)
	}
	at := now().UTC().Truncate(time.Second)
	return at.Format(timeLayout) + "-" + hex.EncodeToString(b[:]), at, nil
}

// Valid reports whether s has the syntax of an id.
func Valid(s string) bool {
	if len(s) != Length || s[len(timeLayout)] != '-' {
		return false
	}
	if _, ok := Time(s); !ok {
		return false
	}
	return ValidSuffix(s[len(timeLayout)+1:])
}

// ValidSuffix reports whether s has the syntax of the part of an id after the dash.
func ValidSuffix(s string) bool {
	return len(s) == len("0000") && strings.Trim(s, "0123456789abcdef") == ""
}

// Trailing returns the id at the end of the last component of a path; empty if there is none.
func Trailing(path string) string {
	base := filepath.Base(path)
	if id := base[max(len(base)-Length, 0):]; Valid(id) {
		return id
	}
	return ""
}

// Time returns the UTC second that an id names.
func Time(id string) (time.Time, bool) {
	if len(id) < len(timeLayout) {
		return time.Time{}, false
	}
	at, err := time.Parse(timeLayout, id[:len(timeLayout)])
	return at, err == nil
}

// Matches reports whether a query may mean an id: it is a prefix of the id, or of its part after the dash. An empty query
// matches every id.
func Matches(id, query string) bool {
	return strings.HasPrefix(id, query) || strings.HasPrefix(Suffix(id), query)
}

// Suffix returns the last four digits of an id, short enough to be part of a branch name.
func Suffix(id string) string {
	return id[len(id)-4:]
}
