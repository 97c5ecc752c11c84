package merge

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// parseMergeTree parses the output of git merge-tree -z: "<tree> NUL", then "<mode> <oid> <stage> TAB <path> NUL" of each
// conflicted file, an empty field, and messages: "<number of paths> NUL <path> NUL ... <kind> NUL <text> NUL".
func parseMergeTree(out string, conflicting bool) (m Result, err error) {
	fields := strings.Split(out, "\x00")
	strange := func(field string) (Result, error) {
		return Result{}, fmt.Errorf("unexpected output of git merge-tree: %q", field)
	}
	if !object.IsOID(fields[0]) || len(fields) < 2 || fields[len(fields)-1] != "" {
		return strange(out[:min(len(out), 100)])
	}
	m.Tree = fields[0]
	if !conflicting {
		return m, nil
	}
	fields = fields[1 : len(fields)-1]
	at := map[string]int{}
	conflict := func(path string) *Conflict {
		i, there := at[path]
		if !there {
			i = len(m.Conflicts)
			at[path] = i
			m.Conflicts = append(m.Conflicts, Conflict{Path: path})
		}
		return &m.Conflicts[i]
	}
	for ; len(fields) > 0 && fields[0] != ""; fields = fields[1:] {
		stage, path, ok := parseStage(fields[0])
		if !ok {
			return strange(fields[0])
		}
		c := conflict(path)
		c.Stages = append(c.Stages, stage)
	}
	listed := len(m.Conflicts)
	for fields = fields[min(1, len(fields)):]; len(fields) > 0; {
		n, err := strconv.Atoi(fields[0])
		if err != nil || n < 0 || n > len(fields)-3 {
			return strange(fields[0])
		}
		if kind, is := strings.CutPrefix(fields[n+1], "CONFLICT ("); is {
			kind, _, _ = strings.Cut(kind, ")")
			for _, path := range fields[1 : n+1] {
				// Other paths that a message names, such as the old name of a file, count only if git lists no conflicted files.
				if _, there := at[path]; there || listed == 0 {
					c := conflict(path)
					c.Kinds = append(c.Kinds, kind)
				}
			}
		}
		fields = fields[n+3:]
	}
	if len(m.Conflicts) == 0 {
		return strange("a conflict without a path")
	}
	for i := range m.Conflicts {
		c := &m.Conflicts[i]
		slices.Sort(c.Kinds)
		if c.Kinds = slices.Compact(c.Kinds); len(c.Kinds) == 0 {
			c.Kinds = []string{conflictKind(c.Stages)}
		}
	}
	sort.Slice(m.Conflicts, func(i, j int) bool { return m.Conflicts[i].Path < m.Conflicts[j].Path })
	return m, nil
}

func parseStage(field string) (s Stage, path string, ok bool) {
	stat, path, ok := strings.Cut(field, "\t")
	words := strings.Split(stat, " ")
	if !ok || path == "" || len(words) != 3 || len(words[2]) != 1 || !object.IsOID(words[1]) || strings.Trim(words[0], "01234567") != "" || len(words[0]) != 6 {
		return Stage{}, "", false
	}
	number := int(words[2][0] - '0')
	return Stage{Number: number, Mode: words[0], OID: words[1]}, path, number >= 1 && number <= 3
}

// conflictKind derives the kind of a conflict without a message from its stages.
func conflictKind(stages []Stage) string {
	var has [4]bool
	for _, s := range stages {
		has[s.Number] = true
	}
	switch {
	case has[1] && has[2] != has[3]:
		return "modify/delete"
	case !has[1] && has[2] && has[3]:
		return "add/add"
	}
	return "contents"
}
