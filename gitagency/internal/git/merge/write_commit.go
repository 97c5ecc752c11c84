package merge

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// CommitRequest describes a commit to create.
type CommitRequest struct {
	Tree              string
	Parents           []string
	Author, Committer object.Signature
	Message           string
	Sign              bool // sign it with the user's configured program and key
}

// CreateCommit creates a commit and returns its id.
func (m *Merger) CreateCommit(ctx context.Context, c CommitRequest) (string, error) {
	if !object.IsTimestamp(c.Author.When) || !object.IsTimestamp(c.Committer.When) {
		return "", fmt.Errorf("not a valid date of author and committer: %q, %q", c.Author.When, c.Committer.When)
	}
	if strings.Contains(c.Message, "\x00") {
		return "", fmt.Errorf("the commit message contains NUL: %q", c.Message)
	}
	message := strings.TrimRight(c.Message, "\n") + "\n"
	made := object.Commit{Tree: c.Tree, Parents: c.Parents, Author: c.Author.String(), Committer: c.Committer.String(), Message: message}
	if c.Sign {
		return m.writeSignedCommit(ctx, made)
	}
	return m.writeCommit(ctx, made)
}

// writeCommit adds a commit object to the merger and returns its id.
func (m *Merger) writeCommit(ctx context.Context, c object.Commit) (string, error) {
	made := c.Encode(m.format)
	return made.HexOID(), m.AddObjects(ctx, made)
}

// writeSignedCommit lets git create and sign a commit. It runs in the mirror, where only the user's config can set the
// program and key.
func (m *Merger) writeSignedCommit(ctx context.Context, c object.Commit) (string, error) {
	args := []string{"commit-tree", "-S"}
	for _, p := range c.Parents {
		args = append(args, "-p", p)
	}
	p := m.GitOptions()
	p.Stdin = c.Message
	p.Config = []string{"-c", "i18n.commitEncoding=" + cmp.Or(c.Encoding, "UTF-8")}
	for role, by := range map[string]string{"AUTHOR": c.Author, "COMMITTER": c.Committer} {
		who, when, _ := strings.Cut(by, "> ")
		name, email, _ := strings.Cut(who, "<")
		p.Env = append(p.Env, "GIT_"+role+"_NAME="+strings.TrimSuffix(name, " "), "GIT_"+role+"_EMAIL="+email, "GIT_"+role+"_DATE=@"+when)
	}
	if err := m.Flush(ctx); err != nil {
		return "", err
	}
	out, err := m.Repo.RunWrite(ctx, p, append(args, c.Tree)...)
	if err != nil {
		return "", fmt.Errorf("sign the commit (of gpg.* and user.signingKey, only your own configuration counts, as git config --global sets it): %w", err)
	}
	oid := strings.TrimSpace(string(out))
	if !object.IsOID(oid) {
		return "", fmt.Errorf("unexpected output of git commit-tree: %q", out)
	}
	return oid, nil
}
