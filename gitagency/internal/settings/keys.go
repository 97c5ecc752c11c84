package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Key is one of git-agency's keys in git config.
type Key struct {
	Name    string // key name as users write it; <…> stands for a name that the user chooses
	Default string // default value, described in words
	Meaning string

	checkValue        func(value string) error // validates a value; nil where any text is valid
	namesCommand      bool                     // names a program to run, so only system, global and command scope count
	isHarmless        func(value string) bool  // for a key with namesCommand: reports whether a value names no program, and so counts from every scope
	repoCanOnlyEnable bool                     // the repository's own config can switch it on but not off
	multiValued       bool                     // every value counts, not only the last
}

// Keys lists every key, in the order in which users meet them.
func Keys() []Key {
	keys := []Key{
		{Name: "agency.dataDir", Default: "$XDG_DATA_HOME/agency, else ~/.local/share/agency", Meaning: "directory of trees and records; $AGENCY_DATA_DIR wins"},
		{Name: "agency.lockTimeout", Default: "30s", Meaning: "how long to wait for the repository lock, or for a discard of the sandbox: 0 is one try, -1 for ever; --lock-timeout wins", checkValue: checkDuration},
		{Name: "agency.operationTimeout", Default: "10m", Meaning: "how long one exec, put or snapshot may take: -1 is for ever; 'exec --timeout' wins", checkValue: checkTimeout},
		{Name: "agency.runTimeout", Default: "60m", Meaning: "how long an agent may work in a sandbox: -1 is for ever; 'run --timeout' wins", checkValue: checkTimeout},
		{Name: AskTimeoutKey, Default: "0", Meaning: "how long an agent that asks waits for the answer while it runs: 0 ends its run at once, -1 waits for ever", checkValue: checkAskTimeout},
		{Name: NotifyKey, Default: "true", Meaning: "whether the end of a run is told by a notification on the desktop, where notify-send is installed", checkValue: checkBool},
		{Name: NotifyCommandKey, Meaning: "a shell command to run when an agent asks or has ended, with JSON on its standard input; a repository cannot set it", checkValue: CheckCommand, namesCommand: true},
		{Name: RadarNotifyKey, Default: "false", Meaning: "whether the user is notified when the work of a running agent begins to conflict with another sandbox", checkValue: checkBool},
		{Name: SnapshotEveryKey, Default: "1m", Meaning: "how often a sandbox is snapshotted while an agent works in it: 0 is never", checkValue: checkInterval},
		{Name: ReadLimitsKey, Default: defaultReadLimits, Meaning: "limits of reading data that an agent wrote: processor time, memory and output of each git process, size of all objects uncompressed", checkValue: checkReadLimits},
		{Name: secretKey, Default: strings.Join(defaultSecrets, " "), Meaning: "more name patterns of untracked files to leave out of snapshots; !pattern includes files again; an empty value clears the list", checkValue: checkSecretPattern, multiValued: true},
		{Name: leaveKey, Meaning: "patterns of untracked files that are never in the way of a landing, such as TASK.md or build/: 'land' keeps them in the trash; an empty value clears the list", checkValue: checkLeavePattern, multiValued: true},
		{Name: copyKey, Meaning: "patterns of ignored files, as in .gitignore, that every new sandbox gets copies of, such as .env or node_modules; an empty value clears the list", checkValue: checkCopyPattern, multiValued: true},
		{Name: SetupKey, Meaning: "a shell command that prepares a sandbox, run once behind its walls before the first run of an agent; empty for none; a repository cannot set it", checkValue: CheckCommand, namesCommand: true},
		{Name: changesetKey, Default: ChangesetWorktree, Meaning: "how the writes of new sandboxes are kept apart: worktree, clone, overlay, or auto for an overlay where that is possible; --changeset and a profile win", checkValue: changesetPrimitive.checkValue},
		{Name: cloneHardlinksKey, Default: "false", Meaning: "whether a clone has hard links to the objects of the repository instead of borrowing them; they need the same owner, and --isolation none", checkValue: checkBool},
		{Name: fastCheckoutKey, Default: "true", Meaning: "whether new trees get copies of the files that another worktree has unchanged, instead of git's own checkout of all files", checkValue: checkBool},
		{Name: pruneAfterKey, Default: defaultPruneAfter, Meaning: "'prune' removes invocations that ended before this time; --expire wins"},
		{Name: trashLimitKey, Default: "1g", Meaning: "largest archive of files that no commit can hold, as 'discard' keeps them: 512m, 2g", checkValue: checkSize},
		{Name: UserNameKey, Default: "user.name", Meaning: "name in the commits of landings and syncs"},
		{Name: UserEmailKey, Default: "user.email", Meaning: "email in the commits of landings and syncs"},
		{Name: RequireReviewKey, Default: "false", Meaning: "whether only the submitted commit can land; a repository can switch it on, not off", checkValue: checkBool, repoCanOnlyEnable: true},
		{Name: strategyKey, Default: Strategies()[0], Meaning: "the strategy of landings: " + strings.Join(Strategies(), ", "), checkValue: CheckStrategy},
		{Name: signKey, Default: "false", Meaning: "whether the commits of landings are signed", checkValue: checkBool},
		{Name: trailersKey, Default: strings.Join(landingTrailers, " "), Meaning: "the trailers of the commits of landings; none for no trailer", checkValue: checkTrailers},
		{Name: resolveKey, Default: "false", Meaning: "whether an agent resolves the conflicts of landings, or the name of that agent; --resolve and --no-resolve win; a repository can only switch it off", checkValue: checkResolve, namesCommand: true, isHarmless: isFalse},
		{Name: VerifyKey, Meaning: "a shell command that must succeed on the files to land; empty for none; a repository cannot set it", checkValue: CheckCommand, namesCommand: true},
		{Name: pushTimeoutKey, Default: "1m", Meaning: "how long 'land --push' keeps retrying while the remote moves: 0 is one try, -1 up to 50 tries", checkValue: checkDuration},
		{Name: autoDetachKey, Default: "true", Meaning: "whether the trees of ended sandboxes are removed in the background, as gc.autoDetach does for git", checkValue: checkBool},
	}
	for _, p := range primitives {
		keys = append(keys, Key{Name: profilePattern + p.name, Default: p.values[0].value, Meaning: "the choice of 'start --profile <profile>' for --" + p.name, checkValue: p.checkValue})
	}
	keys = append(keys, platformKeys()...)
	return append(keys,
		Key{Name: ReadKey, Default: "all but what is hidden", Meaning: "paths to make readable behind walls that are hidden or private by default", multiValued: true},
		Key{Name: WriteKey, Default: "the sandbox alone", Meaning: "paths to make writable behind walls; private:<path> in an overlay of the sandbox", multiValued: true},
		Key{Name: hideKey, Default: "credentials, histories, sockets", Meaning: "more paths to hide behind walls", multiValued: true},
		Key{Name: homeKey, Default: homePrivate, Meaning: "home directory behind walls: private shows tools, caches and grants; readonly all but what is hidden", checkValue: checkHomeSetting},
		Key{Name: PassedVariablesKey, Default: "what tools need", Meaning: "more variables to pass through the walls: NAME, or NAME_* for a prefix", checkValue: checkVariableSetting, multiValued: true},
		Key{Name: "agency.<runner>.command", Meaning: "the program of the agent <runner>; a repository cannot set it", namesCommand: true},
		Key{Name: "agency." + preflightSection + ".<name>", Meaning: "a shell command that must succeed before an agent is run: the check <name> of 'preflight'; a repository cannot set it", checkValue: CheckCommand, namesCommand: true},
		Key{Name: "color.agency", Default: "color.ui, else auto", Meaning: "whether to use colour: always, auto or never; --color and NO_COLOR win", checkValue: checkColor},
		Key{Name: "pager.agency", Default: "as core.pager and $PAGER say", Meaning: "whether to page, or the pager; a repository cannot name one", namesCommand: true, isHarmless: isPagerSwitch},
	)
}

// profilePattern begins the names of the keys of profiles.
const profilePattern = "agency.<profile>."

// Keys of review, landing and provisioning.
const (
	RequireReviewKey  = "agency.requireReview"
	strategyKey       = "agency.land.strategy"
	signKey           = "agency.land.sign"
	trailersKey       = "agency.land.trailers"
	resolveKey        = "agency.land.resolve"
	VerifyKey         = "agency.verify"
	SetupKey          = "agency.setup"
	autoDetachKey     = "agency.autoDetach"
	fastCheckoutKey   = "agency.fastCheckout"
	cloneHardlinksKey = "agency." + cloneSection + ".hardlinks"
	changesetKey      = "agency.changeset"
	SnapshotEveryKey  = "agency.snapshotEvery"
	AskTimeoutKey     = "agency.askTimeout"
	NotifyKey         = "agency.notify"
	NotifyCommandKey  = "agency.notifyCommand"
	RadarNotifyKey    = "agency.radarNotify"
)

// Setting is the effective value of a key, or its default.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Scope   string `json:"scope"`  // system, global, local, worktree, command, environment or default
	Origin  string `json:"origin"` // e.g. file:/home/me/.gitconfig; empty for a default
	Meaning string `json:"meaning"`
	Problem string `json:"problem"` // reason why the value is ignored or invalid; empty for a valid one
}

// Err returns a *SettingError with the Problem of the setting, or nil if there is none.
func (s Setting) Err() error {
	if s.Problem == "" {
		return nil
	}
	return &SettingError{s}
}

// SettingError reports a setting in git config that is ignored or invalid.
type SettingError struct{ Setting Setting }

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s = %q (%s): %s", e.Setting.Key, e.Setting.Value, e.Setting.Origin, e.Setting.Problem)
}

// List lists every key with its effective value, followed by the values that are set and ignored. It needs no
// repository.
func List(ctx context.Context, dir string, env []string) ([]Setting, error) {
	config, err := git.ReadConfig(ctx, dir, env)
	if err != nil {
		return nil, err
	}
	var settings, useless []Setting
	known := map[string]bool{}
	for _, k := range Keys() {
		switch k.Name {
		case "agency.dataDir":
			k.checkValue = func(value string) error { return checkAbsolutePath(ExpandHome(value, proc.Getenv(env, "HOME"))) }
		case ReadKey, WriteKey, hideKey:
			k.checkValue = func(value string) error { return checkPathSetting(k.Name, value, proc.Getenv(env, "HOME")) }
		case pruneAfterKey:
			k.checkValue = func(value string) error { return checkExpiry(ctx, dir, env, value) }
		}
		for _, name := range k.matchingNames(config) {
			known[CanonicalKey(name)] = true
			for _, each := range k.splitValues(name, config) {
				setting, ignored := k.effectiveSetting(name, each, env)
				settings, useless = append(settings, setting), append(useless, ignored...)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if s, _ := config.Last(key); strings.HasPrefix(key, "agency.") && !known[key] {
			useless = append(useless, Setting{Key: key, Value: s.Value, Scope: s.Scope, Origin: s.Origin, Problem: "there is no such key"})
		}
	}
	return append(settings, useless...), nil
}

// InvalidSettings returns an *InvalidError for each of git-agency's own keys that has one value, and an invalid one, and for
// an unknown key of each profile.
func (r *Reader) InvalidSettings(ctx context.Context) (invalid []error) {
	for _, k := range Keys() {
		if k.Name == pruneAfterKey {
			k.checkValue = func(value string) error { return checkExpiry(ctx, r.Dir, r.Env, value) }
		}
		if k.checkValue == nil || k.multiValued || !strings.HasPrefix(k.Name, "agency.") {
			continue
		}
		for _, name := range k.matchingNames(r.Config) {
			setting, set := r.Config.Last(CanonicalKey(name))
			switch {
			case k.namesCommand:
				setting, set, _ = r.Config.LastTrusted(CanonicalKey(name), k.isHarmless)
			case k.repoCanOnlyEnable:
				setting, set, _ = r.Config.LastTrusted(CanonicalKey(name), doesNotDisable)
			case k.isOfProfile():
				set = setting.Value != "" // start takes the default
			}
			var refused *fault.InvalidError
			if set && errors.As(k.checkValue(setting.Value), &refused) {
				invalid = append(invalid, InvalidSetting(name, setting, refused.Want))
			}
		}
	}
	return append(invalid, r.unknownProfileKeys()...)
}

// isOfProfile reports whether the key is that of a choice in a profile.
func (k Key) isOfProfile() bool { return strings.HasPrefix(k.Name, profilePattern) }

// unknownProfileKeys returns an error for each profile with a valid key and an unknown one, for which start refuses it.
func (r *Reader) unknownProfileKeys() (invalid []error) {
	checked := map[string]bool{}
	for _, k := range Keys() {
		if !k.isOfProfile() {
			continue
		}
		for _, name := range k.matchingNames(r.Config) {
			profile := name[len("agency."):strings.LastIndex(name, ".")]
			if _, set := r.Config.Last(name); !set || checked[profile] {
				continue
			}
			checked[profile] = true
			if err := r.checkProfile(profile); err != nil {
				invalid = append(invalid, err)
			}
		}
	}
	return invalid
}

// splitValues returns one configuration for each value of a multi-valued key, and the configuration itself for every
// other key.
func (k Key) splitValues(name string, cfg config.Settings) []config.Settings {
	values := MultiValues(cfg, name)
	if !k.multiValued || len(values) == 0 {
		return []config.Settings{cfg}
	}
	var each []config.Settings
	for _, s := range values {
		each = append(each, config.Settings{CanonicalKey(name): {s}})
	}
	return each
}

// effectiveSetting returns the value that counts for a key, and the values that were set for it but are ignored.
func (k Key) effectiveSetting(name string, cfg config.Settings, env []string) (s Setting, ignored []Setting) {
	s = Setting{Key: name, Value: k.Default, Scope: "default", Meaning: k.Meaning}
	found, set := cfg.Last(CanonicalKey(name))
	if k.namesCommand || k.repoCanOnlyEnable {
		harmless, problem := k.isHarmless, CommandRefusal
		if k.repoCanOnlyEnable {
			harmless, problem = doesNotDisable, disableRefusal
		}
		var others []config.Setting
		found, set, others = cfg.LastTrusted(CanonicalKey(name), harmless)
		for _, o := range others {
			ignored = append(ignored, Setting{Key: name, Value: o.Value, Scope: o.Scope, Origin: o.Origin, Meaning: k.Meaning, Problem: problem(o)})
		}
	}
	check := k.checkValue
	if set {
		s.Value, s.Scope, s.Origin = found.Value, found.Scope, found.Origin
	}
	if from := proc.Getenv(env, "AGENCY_DATA_DIR"); k.Name == "agency.dataDir" && from != "" {
		s.Value, s.Scope, s.Origin = from, "environment", "AGENCY_DATA_DIR"
		check, set = checkAbsolutePath, true // the variable is used as it is: ~ is not expanded
	} else if dir, err := DataDir(env, cfg); k.Name == "agency.dataDir" && err == nil && !set {
		s.Value = dir
	}
	if set && check != nil {
		var invalid *fault.InvalidError
		if err := check(s.Value); errors.As(err, &invalid) {
			s.Problem = "want " + invalid.Want
		} else if err != nil {
			s.Problem = err.Error()
		}
	}
	return s, ignored
}

// CommandRefusal explains why a setting that would name a program is ignored.
func CommandRefusal(s config.Setting) string {
	if s.Trusted() {
		return "want a command"
	}
	return "a repository cannot name programs to run; use 'git config --global'"
}

// disableRefusal explains why a setting of the repository that would switch off a stricter rule is ignored.
func disableRefusal(config.Setting) string {
	return "a repository can switch it on, and not off; use 'git config --global'"
}

// doesNotDisable reports whether a value leaves a key with repoCanOnlyEnable switched on. Write access to the
// repository is enough to make a rule stricter; only the scopes that are trusted can relax it. An invalid boolean
// does not relax it either.
func doesNotDisable(value string) bool {
	yes, ok := parseBool(value)
	return yes || !ok
}

// matchingNames lists the config keys that k stands for: the set keys that match its <…> pattern, else k.Name itself.
func (k Key) matchingNames(config config.Settings) []string {
	before, rest, pattern := strings.Cut(k.Name, "<")
	_, after, _ := strings.Cut(rest, ">")
	var names []string
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if name := cutPrefixSuffix(key, before, after); pattern && name != "" && reservedSections[name] == "" {
			names = append(names, key)
		}
	}
	if len(names) == 0 {
		return []string{k.Name}
	}
	return names
}

// cutPrefixSuffix returns the part of s between a prefix and a suffix, or "" if s lacks one of them.
func cutPrefixSuffix(s, before, after string) string {
	rest, begins := strings.CutPrefix(s, before)
	middle, ends := strings.CutSuffix(rest, after)
	if !begins || !ends {
		return ""
	}
	return middle
}

// CanonicalKey spells a key as git prints it: section and variable name in lower case, the subsection unchanged.
func CanonicalKey(name string) string {
	first, last := strings.Index(name, "."), strings.LastIndex(name, ".")
	return strings.ToLower(name[:first]) + name[first:last] + strings.ToLower(name[last:])
}

func checkAbsolutePath(value string) error {
	if filepath.IsAbs(value) {
		return nil
	}
	return &fault.InvalidError{What: "path", Value: value, Want: "an absolute path"}
}

func checkDuration(value string) error {
	_, err := ParseDuration(value)
	return err
}

func checkSize(value string) error {
	_, err := parseSize(value)
	return err
}

func checkBool(value string) error {
	if _, ok := parseBool(value); !ok {
		return &fault.InvalidError{What: "boolean", Value: value, Want: wantBool}
	}
	return nil
}

func checkAskTimeout(value string) error {
	_, err := parseAskTimeout(value)
	return err
}

func checkInterval(value string) error {
	_, err := parseInterval(value)
	return err
}

func checkTimeout(value string) error {
	_, err := ParseTimeout(value)
	return err
}

func checkExpiry(ctx context.Context, dir string, env []string, value string) error {
	_, ok, err := parseExpiry(ctx, dir, env, value)
	if err == nil && !ok {
		err = &fault.InvalidError{What: "expiry", Value: value, Want: wantExpiry}
	}
	return err
}

// Keys of the identity for commits of landings and syncs, where it differs from git's user.* identity.
const (
	UserNameKey  = "agency.user.name"
	UserEmailKey = "agency.user.email"
)
