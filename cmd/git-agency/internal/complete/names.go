package complete

import (
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// namedCandidate is a candidate that begins with an id, and the name of the record with that id.
type namedCandidate struct {
	candidate
	name string
}

// replacesWord, in front of candidates, tells the shell that they replace the word at the cursor, however they begin.
var replacesWord = candidate{"", "replace"}

// replaceName returns the candidates for a word that may be the name of a record, or the part of an id after the dash:
// those that the word names, or else those whose name or part it begins. They replace the word, since a name is no id. If
// the word begins an id, all candidates are returned for the shell to filter. If it matches none, none is returned, because
// fish would find its letters somewhere in a description.
func replaceName(word string, all []namedCandidate) []candidate {
	var plain, exact, begun []candidate
	beginsID := word == ""
	for _, c := range all {
		_, end, _ := strings.Cut(c.value, "-")
		switch {
		case strings.HasPrefix(c.value, word):
			beginsID = true
		case c.name == word || end == word:
			exact = append(exact, c.candidate)
		case strings.HasPrefix(c.name, word) || strings.HasPrefix(end, word):
			begun = append(begun, c.candidate)
		}
		plain = append(plain, c.candidate)
	}
	switch {
	case beginsID:
		return plain
	case len(exact) > 0:
		return append([]candidate{replacesWord}, exact...)
	case len(begun) > 0:
		return append([]candidate{replacesWord}, begun...)
	}
	return nil
}

// newestInvocations lists "@", "@-1" and so on as far as they are wanted.
func newestInvocations(cl *commandLine, repo *gitagency.Repository, wanted func(gitagency.Invocation) bool) []candidate {
	const most = 10 // older ones are not counted by users
	var found []candidate
	for age := range most {
		word := "@"
		if age > 0 {
			word += "-" + strconv.Itoa(age)
		}
		i, err := repo.Invocation(word)
		if err != nil {
			break // there are no more
		}
		if wanted(i) {
			found = append(found, candidate{word, cl.describe(i)})
		}
	}
	return found
}
