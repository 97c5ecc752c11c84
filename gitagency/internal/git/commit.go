package git

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Identity is the author or committer of a commit.
type Identity struct{ Name, Email string }

// encodeCommit encodes a commit object, dated now. The identity is given, so that user.name need not be configured.
func encodeCommit(format ObjectFormat, who Identity, tree string, parents []string, message string) rawObject {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	now := time.Now()
	by := fmt.Sprintf("%s <%s> %d %s", who.Name, who.Email, now.Unix(), now.Format("-0700"))
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", by, by, message)
	content := []byte(b.String())
	return rawObject{kind: "commit", oid: hashObject(format, "commit", content), content: content}
}

// hexOID returns the id of the object in hex.
func (o rawObject) hexOID() string { return hex.EncodeToString(o.oid) }

// commitTree writes a commit by the author of s and returns its id.
func (r *Repo) commitTree(ctx context.Context, s WorktreeSpec, tree string, parents []string, message string) (string, error) {
	made := encodeCommit(FormatOf(tree), s.Author, tree, parents, message)
	return made.hexOID(), r.writeObjects(ctx, FormatOf(tree), []rawObject{made})
}

// readState parses the captured state in the message of a commit; it is empty when there is no such commit.
func (t *catFile) readState(commit string) (State, error) {
	if commit == "" {
		return State{}, nil
	}
	data, err := t.contents(commit, "commit")
	if err != nil || data == nil {
		return State{}, err
	}
	header, message, _ := strings.Cut(string(data), "\n\n")
	s := parseState(message)
	s.Commit = commit
	for line := range strings.Lines(header) {
		if tree, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "tree "); is {
			s.Tree = tree
			break
		}
	}
	return s, nil
}
