package git

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Persona is who a commit is by as far as the caller knows: what is empty, git finds out as it does for any commit.
type Persona struct {
	Name, Email string // beat whatever git knows
	Env         []string
	Now         time.Time // of commits for which Env names no moment
}

// NoIdentityError is a git that does not know who the user is.
type NoIdentityError struct{ Err error }

func (e *NoIdentityError) Error() string {
	return "nobody knows who the commit would be by: git has no name and email of yours"
}

func (e *NoIdentityError) Unwrap() error { return e.Err }

// Signatures says who writes and who makes a commit of the user's: as git has it from the environment that the caller
// received, of which the rest was scrubbed, and from the settings. The error is a *NoIdentityError where it would refuse.
func (r *Repo) Signatures(ctx context.Context, who Persona) (author, committer Signature, err error) {
	other := proc.Meanwhile(func() (Signature, error) { return r.signature(ctx, who, "AUTHOR") })
	committer, err = r.signature(ctx, who, "COMMITTER")
	author, authorErr := other()
	if err == nil {
		err = authorErr
	}
	return author, committer, err
}

func (r *Repo) signature(ctx context.Context, who Persona, role string) (Signature, error) {
	name, email, date := "GIT_"+role+"_NAME", "GIT_"+role+"_EMAIL", "GIT_"+role+"_DATE"
	env := []string{date + "=" + asWritten(who.Now)}
	for _, kv := range who.Env {
		if key, value, _ := strings.Cut(kv, "="); key == name || key == email || key == date && value != "" {
			env = append(env, kv)
		}
	}
	if who.Name != "" {
		env = append(env, name+"="+who.Name)
	}
	if who.Email != "" {
		env = append(env, email+"="+who.Email)
	}
	out, err := r.read(ctx, place{env: env}, "var", "GIT_"+role+"_IDENT")
	if exitedWith(err, 128) {
		return Signature{}, &NoIdentityError{Err: err}
	}
	if err != nil {
		return Signature{}, err
	}
	return parseSignature(strings.TrimSuffix(string(out), "\n"))
}

// asWritten is a moment as git writes it.
func asWritten(at time.Time) string { return fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700")) }

// parseSignature reads "<name> <<email>> <seconds> <zone>"; git lets no angle bracket into what is between them.
func parseSignature(line string) (Signature, error) {
	before, when, ok := strings.Cut(line, "> ")
	name, email, is := strings.Cut(before, "<")
	if !ok || !is || strings.Contains(line, "\n") {
		return Signature{}, fmt.Errorf("git var answered %q", line)
	}
	return Signature{Identity: Identity{Name: strings.TrimSuffix(name, " "), Email: email}, When: when}, nil
}
