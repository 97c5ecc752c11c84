package git

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// NoIdentityError reports that git has no name and email for the user.
type NoIdentityError struct{ Err error }

func (e *NoIdentityError) Error() string {
	return "author identity unknown: git has no user.name and user.email"
}

func (e *NoIdentityError) Unwrap() error { return e.Err }

// DateError reports a date variable, such as GIT_AUTHOR_DATE, that git cannot parse.
type DateError struct {
	Variable, Value string
	Err             error
}

func (e *DateError) Error() string {
	return fmt.Sprintf("%s is %q, which git cannot parse as a date", e.Variable, e.Value)
}

func (e *DateError) Unwrap() error { return e.Err }

// Signatures returns the author and committer of a commit of the user. They are those that git takes from its
// configuration and the environment of the caller, which is otherwise scrubbed; but in UTF-8, as everything we write.
// The error is a *NoIdentityError or a *DateError where git would refuse.
func (r *Repo) Signatures(ctx context.Context, who object.IdentitySource) (author, committer object.Signature, err error) {
	other := proc.Async(func() (object.Signature, error) { return r.signature(ctx, who, "AUTHOR") })
	committer, err = r.signature(ctx, who, "COMMITTER")
	author, authorErr := other()
	if err == nil {
		err = authorErr
	}
	return author, committer, err
}

func (r *Repo) signature(ctx context.Context, who object.IdentitySource, role string) (object.Signature, error) {
	if s, ok := r.signatureWithoutGit(who, role); ok {
		return s, nil
	}
	return r.signatureByGit(ctx, who, role)
}

// signatureByGit runs "git var" with the identity variables of the caller's environment.
func (r *Repo) signatureByGit(ctx context.Context, who object.IdentitySource, role string) (object.Signature, error) {
	name, email, date := "GIT_"+role+"_NAME", "GIT_"+role+"_EMAIL", "GIT_"+role+"_DATE"
	env := []string{date + "=" + object.FormatDate(who.Now)}
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
	out, err := r.RunRead(ctx, RunOptions{GitDir: r.GitDir, Env: env}, "var", "GIT_"+role+"_IDENT") // a worktree can have its own user.name
	if ExitedWith(err, 128) {
		return object.Signature{}, r.identityError(ctx, who, role, err)
	}
	if err != nil {
		return object.Signature{}, err
	}
	s, err := object.ParseSignature(strings.TrimSuffix(string(out), "\n"))
	s.Name, s.Email = r.decodeIdent(s.Name), r.decodeIdent(s.Email)
	return s, err
}

// identityError finds out why "git var" refuses: if it succeeds without the date variable, the date is invalid.
func (r *Repo) identityError(ctx context.Context, who object.IdentitySource, role string, err error) error {
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
	return object.ToUTF8(name, r.Config.Value(config.CommitEncodingKey))
}

// signatureWithoutGit computes what "git var" would print in the simple case: the date is now, and name and email are
// set to values that git uses unchanged.
func (r *Repo) signatureWithoutGit(who object.IdentitySource, role string) (s object.Signature, ok bool) {
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
		return value, set && object.IsVerbatimIdent(value)
	}
	for _, kv := range who.Env {
		if strings.HasPrefix(kv, "GIT_"+role+"_DATE=") {
			return s, false
		}
	}
	for _, person := range config.IdentitySections { // git refuses any of these keys without a value, even if another setting overrides it
		if slices.ContainsFunc(slices.Concat(r.Config[person+".name"], r.Config[person+".email"]), func(c config.Setting) bool { return c.NoValue }) {
			return s, false
		}
	}
	s.When = object.FormatDate(who.Now)
	if s.Name, ok = known(who.Name, "NAME"); ok {
		s.Email, ok = known(who.Email, "EMAIL")
	}
	return s, ok
}
