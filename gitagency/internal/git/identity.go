package git

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// DateError is a variable with the moment of a commit that git cannot read.
type DateError struct {
	Name, Value string
	Err         error
}

func (e *DateError) Error() string {
	return fmt.Sprintf("%s is %q, which git does not take for a date", e.Name, e.Value)
}
func (e *DateError) Unwrap() error { return e.Err }

// commitEncoding says what the names of the user are in, where they are not UTF-8.
const commitEncoding = "i18n.commitencoding"

// Signatures says who writes and who makes a commit of the user's: as git has it from the environment that the caller
// received, of which the rest was scrubbed, and from the settings; but in UTF-8, as all that we write. The error is a
// *NoIdentityError or a *DateError where it would refuse.
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
	if s, ok := r.ordinarySignature(who, role); ok {
		return s, nil
	}
	return r.signatureByGit(ctx, who, role)
}

func (r *Repo) signatureByGit(ctx context.Context, who Persona, role string) (Signature, error) {
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
	out, err := r.read(ctx, place{gitDir: r.GitDir, env: env}, "var", "GIT_"+role+"_IDENT") // a worktree can have a name of its own
	if exitedWith(err, 128) {
		return Signature{}, r.whyNobody(ctx, who, role, err)
	}
	if err != nil {
		return Signature{}, err
	}
	s, err := parseSignature(strings.TrimSuffix(string(out), "\n"))
	s.Name, s.Email = r.readable(s.Name), r.readable(s.Email)
	return s, err
}

// whyNobody says why git refuses to say who it is: without a date that it cannot read, it would.
func (r *Repo) whyNobody(ctx context.Context, who Persona, role string, err error) error {
	date, value := "GIT_"+role+"_DATE", ""
	who.Env = slices.DeleteFunc(slices.Clone(who.Env), func(kv string) bool {
		key, v, _ := strings.Cut(kv, "=")
		if key == date {
			value = v
		}
		return key == date
	})
	if value != "" {
		if _, without := r.signatureByGit(ctx, who, role); without == nil {
			return &DateError{Name: date, Value: value, Err: err}
		}
	}
	return &NoIdentityError{Err: err}
}

// readable is a name in UTF-8. One that is looks like nothing else.
func (r *Repo) readable(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return inUTF8(name, r.Config.Value(commitEncoding))
}

// ordinarySignature is what git would say, where nobody has to ask it: the moment is now, and name and email are set to
// something that git takes as it is.
func (r *Repo) ordinarySignature(who Persona, role string) (s Signature, ok bool) {
	known := func(named, what string) (string, bool) {
		value, set := named, named != ""
		for _, kv := range who.Env {
			if key, v, _ := strings.Cut(kv, "="); key == "GIT_"+role+"_"+what && !set {
				value, set = v, true
			}
		}
		what = strings.ToLower(what)
		for _, key := range []string{strings.ToLower(role) + "." + what, "user." + what} {
			if c, is := r.Config.Last(key); is && !set {
				value, set = c.Value, true
			}
		}
		return value, set && isPlainName(value)
	}
	for _, kv := range who.Env {
		if strings.HasPrefix(kv, "GIT_"+role+"_DATE=") {
			return s, false
		}
	}
	for _, person := range persons { // git refuses any that stands there without a value, whether or not it counts
		if slices.ContainsFunc(slices.Concat(r.Config[person+".name"], r.Config[person+".email"]), func(c Setting) bool { return c.Bare }) {
			return s, false
		}
	}
	s.When = asWritten(who.Now)
	if s.Name, ok = known(who.Name, "NAME"); ok {
		s.Email, ok = known(who.Email, "EMAIL")
	}
	return s, ok
}

// isPlainName reports whether git writes a name or an email as it is: it takes away what is around it, and what would end
// it.
func isPlainName(text string) bool {
	const around = ".,:;<>\"\\'"
	return text != "" && text == strings.Trim(text, around) && !strings.ContainsAny(text[:1]+text[len(text)-1:], " ") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == '<' || c == '>' || c == 0x7f || c == utf8.RuneError })
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
