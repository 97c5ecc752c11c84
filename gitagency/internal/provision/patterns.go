package provision

import (
	"math"
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

	mutex   sync.Mutex
	matcher *ignore.Matcher
}

func newPatterns(values []string, ignoreCase bool) *patterns {
	p := &patterns{
		lists:   []*ignore.List{ignore.Parse([]byte(strings.Join(values, "\n")), "")},
		matcher: ignore.NewMatcher(nil, ignoreCase, math.MaxInt64), // the time of a match is polynomial, and only users set the values
	}
	for _, value := range values {
		switch {
		case strings.HasPrefix(value, "!"):
			p.hasNegated = true
		case strings.Contains(strings.TrimSuffix(value, "/"), "/"):
			literal := strings.TrimPrefix(value, "/")
			if at := strings.IndexAny(literal, `*?[\`); at >= 0 {
				literal = literal[:at]
			}
			p.inner = append(p.inner, literal)
		}
	}
	return p
}

// selects reports whether a path is selected, given whether its directory is.
func (p *patterns) selects(name string, isDir, inSelected bool) (bool, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	verdict, err := p.matcher.Match(p.lists, name, isDir)
	return verdict == ignore.Matched || verdict == ignore.NoMatch && inSelected, err
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
