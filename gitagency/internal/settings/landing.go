package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
)

// Strategies of landings.
const (
	MergeStrategy  = "merge"  // one merge commit, with the sandbox's commits as second parent
	SquashStrategy = "squash" // one commit with all changes
	RebaseStrategy = "rebase" // the sandbox's commits replayed on top of the branch
)

// Strategies lists the names of the landing strategies, the default first.
func Strategies() []string { return []string{MergeStrategy, SquashStrategy, RebaseStrategy} }

// CheckStrategy refuses the name of an unknown landing strategy with a *fault.InvalidError.
func CheckStrategy(name string) error {
	if !slices.Contains(Strategies(), name) {
		return &fault.InvalidError{What: "strategy", Value: name, Want: strings.Join(Strategies(), ", ")}
	}
	return nil
}

// Strategy returns agency.land.strategy, else the default.
func (r *Reader) Strategy() (string, error) {
	setting, _ := r.Config.Last(CanonicalKey(strategyKey))
	name := cmp.Or(setting.Value, Strategies()[0])
	err := CheckStrategy(name)
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) {
		return "", InvalidSetting(strategyKey, setting, invalid.Want)
	}
	return name, err
}

// Names of the trailers of landings and unlands in agency.land.trailers.
const (
	InvocationTrailer = "invocation" // id of the invocation
	BaseTrailer       = "base"       // base commit of its sandbox
	TipTrailer        = "tip"        // last commit that landed
	RunnerTrailer     = "runner"     // agent that the sandbox was for
	UndoesTrailer     = "undoes"     // commit of the landing that an unland reverts
)

var landingTrailers = []string{InvocationTrailer, BaseTrailer, TipTrailer, RunnerTrailer, UndoesTrailer}

// noTrailers is the value of agency.land.trailers for no trailer.
const noTrailers = "none"

// LandingTrailers returns the names in agency.land.trailers, all by default.
func (r *Reader) LandingTrailers() ([]string, error) {
	setting, _ := r.Config.Last(CanonicalKey(trailersKey))
	names, err := parseTrailers(setting.Value)
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) {
		return nil, InvalidSetting(trailersKey, setting, invalid.Want)
	}
	return names, err
}

// parseTrailers parses a value of agency.land.trailers: names separated by blanks or commas, or noTrailers alone.
func parseTrailers(value string) ([]string, error) {
	names := strings.FieldsFunc(value, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' })
	switch {
	case len(names) == 0:
		return landingTrailers, nil
	case len(names) == 1 && names[0] == noTrailers:
		return []string{}, nil
	}
	for _, name := range names {
		if !slices.Contains(landingTrailers, name) {
			return nil, &fault.InvalidError{What: "trailers", Value: value, Want: "some of " + strings.Join(landingTrailers, ", ") + "; or " + noTrailers + " alone"}
		}
	}
	return names, nil
}

func checkTrailers(value string) error {
	_, err := parseTrailers(value)
	return err
}

// DefersCleanup returns agency.autoDetach: whether sandboxes that have ended may be removed in the background.
func (r *Reader) DefersCleanup() (bool, error) { return r.Bool(autoDetachKey, true) }

// SignsLandings returns agency.land.sign.
func (r *Reader) SignsLandings() (bool, error) { return r.Bool(signKey, false) }

// Resolver returns agency.land.resolve: whether an agent resolves the conflicts of landings, and its name; empty for the
// agent of each invocation. A value from the repository's own configuration, which an agent can write, cannot switch it on.
func (r *Reader) Resolver() (resolve bool, runner string, err error) {
	setting, set, ignored := r.Config.LastTrusted(CanonicalKey(resolveKey), isFalse)
	for _, s := range ignored {
		if s.Trusted() { // a key without a value, which names no program
			return false, "", InvalidSetting(resolveKey, s, wantResolver)
		}
	}
	r.WarnIgnored(resolveKey, ignored)
	if !set {
		return false, "", nil
	}
	if on, isBool := parseBool(setting.Value); isBool {
		return on, "", nil
	}
	if known := r.Runners(); !slices.Contains(known, setting.Value) {
		return false, "", InvalidSetting(resolveKey, setting, "true, false or one of "+strings.Join(known, ", "))
	}
	return true, setting.Value, nil
}

// wantResolver describes a valid value of agency.land.resolve.
const wantResolver = "true, false or the name of an agent"

func checkResolve(value string) error {
	if _, isBool := parseBool(value); !isBool && strings.TrimSpace(value) == "" {
		return &fault.InvalidError{What: "agent", Value: value, Want: wantResolver}
	}
	return nil
}

func isFalse(value string) bool {
	on, isBool := parseBool(value)
	return isBool && !on
}

const (
	pushTimeoutKey     = "agency.pushTimeout"
	defaultPushTimeout = time.Minute
)

// PushTimeout returns the time limit of a push with all its tries: agency.pushTimeout, else one minute.
func (r *Reader) PushTimeout() (time.Duration, error) {
	return r.Duration(pushTimeoutKey, defaultPushTimeout, ParseDuration)
}

// wantCommand describes a valid command, for a *fault.InvalidError.
const wantCommand = "a command"

// ShellCommand returns the shell line of a key that names a command; empty for none. Values from the repository's own
// configuration, which an agent can write, do not count, and are returned for WarnIgnored. A useless value from the user is
// an error: otherwise what the command is for would not happen.
func (r *Reader) ShellCommand(key string) (line string, ignored []config.Setting, err error) {
	setting, set, others := r.Config.LastTrusted(CanonicalKey(key), nil)
	for _, o := range others {
		if o.Trusted() { // a key without a value, which names no program
			return "", nil, InvalidSetting(key, o, wantCommand)
		}
	}
	if set && CheckCommand(setting.Value) != nil {
		return "", nil, InvalidSetting(key, setting, wantCommand)
	}
	return setting.Value, others, nil
}

// WarnIgnored warns about values of a key that do not count because they are in the repository's own configuration. A
// command may read a setting several times, and warns once.
func (r *Reader) WarnIgnored(key string, ignored []config.Setting) {
	for _, s := range ignored {
		message := fmt.Sprintf("ignoring %s = %q (%s): %s", key, s.Value, s.Origin, CommandRefusal(s))
		if _, warned := r.warned.LoadOrStore(message, true); !warned {
			r.Warn("%s", message)
		}
	}
}

// CheckCommand refuses a blank command: a shell would run nothing and succeed.
func CheckCommand(line string) error {
	if line != "" && strings.TrimSpace(line) == "" {
		return &fault.InvalidError{What: "command", Value: line, Want: wantCommand}
	}
	return nil
}
