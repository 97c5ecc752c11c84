package provision

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git/ignore"
)

// patterns select files of a worktree by rules in the syntax of gitignore. Other than there, a negated rule also leaves
// out files below a directory that is selected.
type patterns struct {
	lists      []*ignore.List
	inner      []string // literal beginnings of the rules with a slash, which can select files in ignored directories
	hasNegated bool
	unmatched  []pattern // those that have matched no path yet, except negated ones

	mutex   sync.Mutex
	matcher *ignore.Matcher
}

// pattern is a single pattern.
type pattern struct {
	value   string
	rules   []*ignore.List
	literal string // its literal beginning if it has a slash
}

func newPatterns(values []string, ignoreCase bool) *patterns {
	p := &patterns{
		lists:   []*ignore.List{ignore.Parse([]byte(strings.Join(values, "\n")), "")},
		matcher: ignore.NewMatcher(nil, ignoreCase, math.MaxInt64), // the time of a match is polynomial, and only users set the values
	}
	for _, value := range values {
		if strings.HasPrefix(value, "!") {
			p.hasNegated = true
			continue
		}
		single := pattern{value: value, rules: []*ignore.List{ignore.Parse([]byte(value), "")}}
		if strings.Contains(strings.TrimSuffix(value, "/"), "/") {
			single.literal = strings.TrimPrefix(value, "/")
			if at := strings.IndexAny(single.literal, `*?[\`); at >= 0 {
				single.literal = single.literal[:at]
			}
			p.inner = append(p.inner, single.literal)
		}
		p.unmatched = append(p.unmatched, single)
	}
	return p
}

// noteMatches removes the patterns that match a path from the unmatched ones. Find calls it, in one goroutine.
func (p *patterns) noteMatches(name string, isDir bool) (err error) {
	p.unmatched = slices.DeleteFunc(p.unmatched, func(single pattern) bool {
		verdict, matchErr := p.matcher.Match(single.rules, name, isDir)
		err = errors.Join(err, matchErr)
		return verdict == ignore.Matched
	})
	return err
}

// noteCopied removes the patterns that may match a path in a directory that is copied without a search.
func (p *patterns) noteCopied(dir string) {
	p.unmatched = slices.DeleteFunc(p.unmatched, func(single pattern) bool { return strings.HasPrefix(single.literal, dir+"/") })
}

// unmatchedValues returns the patterns that match neither a path that was noted nor one of these tracked files.
func (p *patterns) unmatchedValues(tracked []string) (values []string, err error) {
	for _, name := range tracked {
		if len(p.unmatched) == 0 {
			break
		}
		if err := p.noteMatches(name, false); err != nil {
			return nil, err
		}
	}
	for _, single := range p.unmatched {
		values = append(values, single.value)
	}
	return values, nil
}

// selects reports whether a path is selected, given whether its directory is.
func (p *patterns) selects(name string, isDir, inSelected bool) (bool, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	verdict, err := p.matcher.Match(p.lists, name, isDir)
	return verdict == ignore.Matched || verdict == ignore.NoMatch && inSelected, err
}

// Selects reports whether patterns select a path of a worktree, if it is an ignored file.
func Selects(values []string, name string) bool {
	p, selected := newPatterns(values, false), false
	for at, c := range name {
		if c == '/' {
			selected, _ = p.selects(name[:at], true, selected) // the matcher has no limit
		}
	}
	selected, _ = p.selects(name, false, selected)
	return selected
}

// maySelectBelow reports whether an ignored directory, which is not selected itself, is searched for files. A rule without
// a slash is not a reason: every start would list all of node_modules for a file such as .env.
func (p *patterns) maySelectBelow(dir string) bool {
	dir += "/"
	for _, literal := range p.inner {
		if strings.HasPrefix(dir, literal) || strings.HasPrefix(literal, dir) {
			return true
		}
	}
	return false
}
