package git

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// CommitRequest describes a commit to create.
type CommitRequest struct {
	Tree              string
	Parents           []string
	Author, Committer Signature
	Message           string
	Sign              bool // sign it with the user's configured program and key
}

// Signature is an author or committer with a date.
type Signature struct {
	Identity
	When string // git's raw format: "<seconds> <zone>"
}

func (s Signature) String() string {
	return fmt.Sprintf("%s <%s> %s", cleanName(s.Name), cleanName(s.Email), s.When)
}

// cleanName removes from a name or email address the characters that git removes: control characters, angle brackets, and
// leading and trailing punctuation.
func cleanName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, name)
	return strings.Trim(name, " .,:;\"'\\")
}

// CreateCommit creates a commit and returns its id.
func (m *Merger) CreateCommit(ctx context.Context, c CommitRequest) (string, error) {
	if !isTimestamp(c.Author.When) || !isTimestamp(c.Committer.When) {
		return "", fmt.Errorf("not a moment: %q, %q", c.Author.When, c.Committer.When)
	}
	if strings.Contains(c.Message, "\x00") {
		return "", fmt.Errorf("a message with a NUL in it: %q", c.Message)
	}
	message := strings.TrimRight(c.Message, "\n") + "\n"
	made := Commit{tree: c.Tree, parents: c.Parents, author: c.Author.String(), committer: c.Committer.String(), message: message}
	if c.Sign {
		return m.writeSignedCommit(ctx, made)
	}
	return m.writeCommit(ctx, made)
}

// writeCommit adds a commit object to the merger and returns its id.
func (m *Merger) writeCommit(ctx context.Context, c Commit) (string, error) {
	made := c.encode(m.format)
	return made.hexOID(), m.addObjects(ctx, made)
}

// encode returns the commit object.
func (c Commit) encode(format ObjectFormat) rawObject {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", c.tree)
	for _, p := range c.parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n", c.author, c.committer)
	if c.encoding != "" {
		fmt.Fprintf(&b, "encoding %s\n", c.encoding)
	}
	fmt.Fprintf(&b, "\n%s", c.message)
	content := []byte(b.String())
	return rawObject{kind: "commit", oid: hashObject(format, "commit", content), content: content}
}

// writeSignedCommit lets git create and sign a commit. It runs in the mirror, where only the user's config can set the
// program and key.
func (m *Merger) writeSignedCommit(ctx context.Context, c Commit) (string, error) {
	args := []string{"commit-tree", "-S"}
	for _, p := range c.parents {
		args = append(args, "-p", p)
	}
	p := m.gitOptions()
	p.stdin = c.message
	p.config = []string{"-c", "i18n.commitEncoding=" + cmp.Or(c.encoding, "UTF-8")}
	for role, by := range map[string]string{"AUTHOR": c.author, "COMMITTER": c.committer} {
		who, when, _ := strings.Cut(by, "> ")
		name, email, _ := strings.Cut(who, "<")
		p.env = append(p.env, "GIT_"+role+"_NAME="+strings.TrimSuffix(name, " "), "GIT_"+role+"_EMAIL="+email, "GIT_"+role+"_DATE=@"+when)
	}
	if err := m.flush(ctx); err != nil {
		return "", err
	}
	out, err := m.repo.runWrite(ctx, p, append(args, c.tree)...)
	if err != nil {
		return "", err
	}
	oid := strings.TrimSpace(string(out))
	if !isOID(oid) {
		return "", fmt.Errorf("git commit-tree answered %q", out)
	}
	return oid, nil
}
