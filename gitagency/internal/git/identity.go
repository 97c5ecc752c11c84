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

// IdentitySource is what the caller knows about the author and committer of a commit. Git determines empty fields as
// for any commit.
type IdentitySource struct {
	Name, Email string // override git's configuration and Env
	Env         []string
	Now         time.Time // date of commits for which Env sets none
}

// NoIdentityError reports that git has no name and email for the user.
type NoIdentityError struct{ Err error }

func (e *NoIdentityError) Error() string {
	return "nobody knows who the commit would be by: git has no name and email of yours"
}

func (e *NoIdentityError) Unwrap() error { return e.Err }

// DateError reports a date variable, such as GIT_AUTHOR_DATE, that git cannot parse.
type DateError struct {
	Variable, Value string
	Err             error
}

func (e *DateError) Error() string {
	return fmt.Sprintf("%s is %q, which git does not take for a date", e.Variable, e.Value)
}
func (e *DateError) Unwrap() error { return e.Err }

// commitEncodingKey names the encoding of the user's name and email where they are not UTF-8.
const commitEncodingKey = "i18n.commitencoding"

// Signatures returns the author and committer of a commit of the user. They are those that git takes from its
// configuration and the environment of the caller, which is otherwise scrubbed; but in UTF-8, as everything we write.
// The error is a *NoIdentityError or a *DateError where git would refuse.
func (r *Repo) Signatures(ctx context.Context, who IdentitySource) (author, committer Signature, err error) {
	other := proc.Async(func() (Signature, error) { return r.signature(ctx, who, "AUTHOR") })
	committer, err = r.signature(ctx, who, "COMMITTER")
	author, authorErr := other()
	if err == nil {
		err = authorErr
	}
	return author, committer, err
}

func (r *Repo) signature(ctx context.Context, who IdentitySource, role string) (Signature, error) {
	if s, ok := r.signatureWithoutGit(who, role); ok {
		return s, nil
	}
	return r.signatureByGit(ctx, who, role)
}

// signatureByGit runs "git var" with the identity variables of the caller's environment.
func (r *Repo) signatureByGit(ctx context.Context, who IdentitySource, role string) (Signature, error) {
	name, email, date := "GIT_"+role+"_NAME", "GIT_"+role+"_EMAIL", "GIT_"+role+"_DATE"
	env := []string{date + "=" + formatDate(who.Now)}
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
	out, err := r.runRead(ctx, runOptions{gitDir: r.GitDir, env: env}, "var", "GIT_"+role+"_IDENT") // a worktree can have its own user.name
	if exitedWith(err, 128) {
		return Signature{}, r.identityError(ctx, who, role, err)
	}
	if err != nil {
		return Signature{}, err
	}
	s, err := parseSignature(strings.TrimSuffix(string(out), "\n"))
	s.Name, s.Email = r.decodeIdent(s.Name), r.decodeIdent(s.Email)
	return s, err
}

// identityError finds out why "git var" refuses: if it succeeds without the date variable, the date is invalid.
func (r *Repo) identityError(ctx context.Context, who IdentitySource, role string, err error) error {
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
			return &DateError{Variable: date, Value: value, Err: err}
		}
	}
	return &NoIdentityError{Err: err}
}

// decodeIdent recodes a name or email to UTF-8. Valid UTF-8 is left alone: text in another encoding is hardly ever
// valid UTF-8.
func (r *Repo) decodeIdent(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return toUTF8(name, r.Config.Value(commitEncodingKey))
}

// signatureWithoutGit computes what "git var" would print in the simple case: the date is now, and name and email are
// set to values that git uses unchanged.
func (r *Repo) signatureWithoutGit(who IdentitySource, role string) (s Signature, ok bool) {
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
		return value, set && isVerbatimIdent(value)
	}
	for _, kv := range who.Env {
		if strings.HasPrefix(kv, "GIT_"+role+"_DATE=") {
			return s, false
		}
	}
	for _, person := range identitySections { // git refuses any of these keys without a value, even if another setting overrides it
		if slices.ContainsFunc(slices.Concat(r.Config[person+".name"], r.Config[person+".email"]), func(c Setting) bool { return c.NoValue }) {
			return s, false
		}
	}
	s.When = formatDate(who.Now)
	if s.Name, ok = known(who.Name, "NAME"); ok {
		s.Email, ok = known(who.Email, "EMAIL")
	}
	return s, ok
}

// isVerbatimIdent reports whether git writes a name or an email unchanged: it trims certain characters at both ends,
// and removes angle brackets and control characters.
func isVerbatimIdent(text string) bool {
	const around = ".,:;<>\"\\'"
	return text != "" && text == strings.Trim(text, around) && !strings.ContainsAny(text[:1]+text[len(text)-1:], " ") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == '<' || c == '>' || c == 0x7f || c == utf8.RuneError })
}

// formatDate formats a time as git writes it into commits.
func formatDate(at time.Time) string { return fmt.Sprintf("%d %s", at.Unix(), at.Format("-0700")) }

// parseSignature reads "<name> <<email>> <seconds> <zone>"; git lets no angle bracket into the name and the email.
func parseSignature(line string) (Signature, error) {
	before, when, ok := strings.Cut(line, "> ")
	name, email, is := strings.Cut(before, "<")
	if !ok || !is || strings.Contains(line, "\n") {
		return Signature{}, fmt.Errorf("git var answered %q", line)
	}
	return Signature{Identity: Identity{Name: strings.TrimSuffix(name, " "), Email: email}, When: when}, nil
}
