// Package ignore evaluates gitignore rules as git does, without a git process. An agent may have written the rules, so
// the time of a match is polynomial and every Matcher has a limit of steps. The package must never open a file or run
// a program; its callers read the files and walk the directories.
package ignore

import (
	"fmt"
	"strings"
)

// Matcher decides which paths are ignored. All its calls share one budget of steps. A Matcher must be used by one
// goroutine at a time; Lists may be shared, because a Matcher does not change them.
type Matcher struct {
	outer     []*List
	foldCase  bool
	maxSteps  int64
	steps     int64 // steps taken so far, at most maxSteps
	exhausted bool  // a step was refused; results since then are void

	ends, nextEnds []int // memory of wildmatch
}

// NewMatcher returns a Matcher for one worktree. outer has the rules that apply below the top directory and are weaker
// than every .gitignore file, the weakest first: core.excludesFile, then info/exclude. ignoreCase is the value of
// core.ignoreCase. maxSteps limits the work of all calls of Ignored together: a step is one rule or one byte compared.
func NewMatcher(outer []*List, ignoreCase bool, maxSteps int64) *Matcher {
	return &Matcher{outer: outer, foldCase: ignoreCase, maxSteps: maxSteps}
}

// LimitError says that the evaluation of ignore rules was given up because it took too many steps.
type LimitError struct {
	Path     string // the path that was asked for when the budget was used up
	MaxSteps int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("evaluating the ignore rules takes more than %d steps, reached at %q; simplify the patterns in the .gitignore files", e.MaxSteps, e.Path)
}

// Ignored reports whether a path is ignored. The path is relative to the top directory, has no trailing slash, and none
// of its parent directories may be ignored: as in git, nothing below an ignored directory can be included again, so
// callers walk from the top and do not descend there. lists holds the rules of the .gitignore files of the parent
// directories, the top first. isDir must be false for a symlink. The error is a *LimitError, which every later call
// returns too.
func (m *Matcher) Ignored(lists []*List, path string, isDir bool) (bool, error) {
	v, err := m.Match(lists, path, isDir)
	return v == Matched, err
}

// Verdict is what rules say about a path.
type Verdict int

const (
	NoMatch Verdict = iota // no rule matches
	Matched                // the last rule that matches has no "!"
	Negated                // the last rule that matches has a "!"
)

// Match returns what the rules say about a path itself, whatever they say about its parent directories. The arguments and
// the error are those of Ignored.
func (m *Matcher) Match(lists []*List, path string, isDir bool) (Verdict, error) {
	text := path
	if m.foldCase {
		text = lowerASCII(path)
	}
	r := m.lastMatch(lists, text, isDir)
	if r == nil {
		r = m.lastMatch(m.outer, text, isDir)
	}
	switch {
	case m.exhausted:
		return NoMatch, &LimitError{Path: path, MaxSteps: m.maxSteps}
	case r == nil:
		return NoMatch, nil
	case r.negated:
		return Negated, nil
	}
	return Matched, nil
}

// lastMatch returns the rule that decides: the last one that matches in the last list that has one; nil when there is
// none.
func (m *Matcher) lastMatch(lists []*List, path string, isDir bool) *rule {
	basename := path[strings.LastIndexByte(path, '/')+1:]
	for i := len(lists) - 1; i >= 0; i-- {
		l := lists[i]
		if !m.spend(1) {
			return nil
		}
		if len(path) < len(l.base) || !m.equal(l.base, path[:len(l.base)]) {
			continue // the path is outside the directory of the file
		}
		for j := len(l.rules) - 1; j >= 0; j-- {
			r := &l.rules[j]
			if !m.spend(1) {
				return nil
			}
			if r.dirOnly && !isDir {
				continue
			}
			text := path[len(l.base):]
			if r.basename {
				text = basename
			}
			if m.matches(r, text) {
				return r
			}
		}
	}
	return nil
}

// matches reports whether a rule matches text, the basename of a path or the path relative to the file of the rule.
func (m *Matcher) matches(r *rule, text string) bool {
	switch {
	case r.literal == len(r.pattern):
		return m.equal(r.pattern, text)
	case r.suffix:
		from := len(text) - (len(r.pattern) - 1)
		return from >= 0 && m.equal(r.pattern[1:], text[from:])
	case len(text) < r.literal || !m.equal(r.pattern[:r.literal], text[:r.literal]):
		return false
	}
	return m.wildmatch(r.pattern, r.literal, text)
}

// equal compares a literal part of a rule with text, which is in lower case when case is folded.
func (m *Matcher) equal(literal, text string) bool {
	switch {
	case len(literal) != len(text):
		return false
	case !m.foldCase:
		return m.spend(len(literal)/16) && literal == text
	case !m.spend(len(literal)):
		return false
	}
	for i := range len(literal) {
		if lower(literal[i]) != text[i] {
			return false
		}
	}
	return true
}

// spend takes n steps from the budget. When it returns false the caller returns at once, and reports no match.
func (m *Matcher) spend(n int) bool {
	if int64(n) > m.maxSteps-m.steps {
		m.exhausted = true
		return false
	}
	m.steps += int64(n)
	return !m.exhausted
}

// lowerASCII returns text with the letters A to Z in lower case: git folds no other letters.
func lowerASCII(text string) string {
	var changed []byte
	for i := range len(text) {
		if c := lower(text[i]); c != text[i] {
			if changed == nil {
				changed = []byte(text)
			}
			changed[i] = c
		}
	}
	if changed == nil {
		return text
	}
	return string(changed)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
