package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/images"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// primitive is one of the five choices and its values.
type primitive struct {
	name       string
	field      func(*store.Primitives) *string
	values     []choice // the first is the default
	openPrefix choice   // prefix of further valid values; empty if there are none
}

type choice struct{ value, unsupportedReason string }

const (
	changesetName = "changeset"
	softwareName  = "software"
)

var changesetPrimitive = primitive{
	changesetName, func(p *store.Primitives) *string { return &p.Changeset },
	[]choice{{ChangesetWorktree, ""}, {ChangesetClone, ""}, {ChangesetOverlay, overlayUnsupported(runtime.GOOS)}, {ChangesetAuto, ""}},
	choice{},
}

var primitives = []primitive{
	changesetPrimitive,
	{
		"platform", func(p *store.Primitives) *string { return &p.Platform },
		[]choice{{PlatformLocal, ""}, {PlatformSlurm, ""}, {PlatformPodman, ""}, {"kubernetes", "Kubernetes is not implemented yet; slurm and podman are"}, {"daytona", "Daytona sandbox not yet implemented"}},
		choice{},
	},
	{
		"isolation", func(p *store.Primitives) *string { return &p.Isolation },
		isolationChoices(runtime.GOOS),
		choice{},
	},
	{
		"outputs", func(p *store.Primitives) *string { return &p.Outputs },
		[]choice{{"open", ""}, {"none", ""}},
		choice{HostsPrefix, ""},
	},
	{
		softwareName, func(p *store.Primitives) *string { return &p.Software },
		[]choice{{store.SoftwareHost, ""}},
		choice{"/", otherRootUnsupported(runtime.GOOS)},
	},
}

// otherRootUnsupported returns the reason why an operating system has no other root file systems for commands; empty if it has.
func otherRootUnsupported(system string) string {
	if system != "linux" {
		return "another root file system needs walls, which are implemented for Linux only, so far"
	}
	return ""
}

// overlayUnsupported returns the reason why an operating system has no overlays; empty if it has them.
func overlayUnsupported(system string) string {
	if system != "linux" {
		return "overlays exist on Linux only"
	}
	return ""
}

// isolationChoices lists the values of --isolation on an operating system. On Linux walls are the default; elsewhere
// they cannot be built.
func isolationChoices(system string) []choice {
	walls, none := choice{IsolationOS, ""}, choice{IsolationNone, ""}
	further := []choice{{"container", "containers are not implemented yet; --isolation os needs none"}, {"vm", "virtual machines are not implemented yet"}}
	if system != "linux" {
		walls.unsupportedReason = "walls are implemented for Linux only, so far"
		return append([]choice{none, walls}, further...)
	}
	return append([]choice{walls, none}, further...)
}

// DefaultPrimitives returns the primitives of a sandbox for which nothing was chosen.
func DefaultPrimitives() store.Primitives {
	var p store.Primitives
	for _, prim := range primitives {
		*prim.field(&p) = prim.values[0].value
	}
	return p
}

// PrimitiveValues lists the values of a primitive that can be built, the default first.
func PrimitiveValues(name string) []string {
	var values []string
	for _, prim := range primitives {
		for _, c := range prim.values {
			if prim.name == name && c.unsupportedReason == "" {
				values = append(values, c.value)
			}
		}
	}
	return values
}

// Profiles lists the profiles that a sandbox can be started with, in alphabetical order.
func (r *Reader) Profiles() []string {
	profiles := []string{}
	for key := range r.Config {
		name, ok := strings.CutPrefix(key, "agency.")
		end := strings.LastIndex(name, ".") // names of profiles may contain dots, names of keys do not
		if ok && end > 0 && r.checkProfile(name[:end]) == nil {
			profiles = append(profiles, name[:end])
		}
	}
	slices.Sort(profiles)
	return slices.Compact(profiles)
}

// ChoosePrimitives fills the primitives that were not chosen from the profile, then from the defaults. It refuses
// values that cannot be built, before anything is created.
func (r *Reader) ChoosePrimitives(chosen store.Primitives, profile string) (store.Primitives, error) {
	if profile != "" {
		if err := r.checkProfile(profile); err != nil {
			return store.Primitives{}, err
		}
	}
	for _, prim := range primitives {
		value := prim.field(&chosen)
		*value = r.expand(prim, *value)
		if *value == "" && profile != "" {
			key := "agency." + profile + "." + prim.name
			setting, _ := r.Config.Last(key)
			var invalid *fault.InvalidError
			*value = r.expand(prim, setting.Value)
			if err := prim.checkValue(*value); *value != "" && errors.As(err, &invalid) {
				return store.Primitives{}, InvalidSetting(key, setting, invalid.Want)
			}
		}
		if *value == "" && prim.name == changesetName {
			setting, err := r.changeset(prim)
			if err != nil {
				return store.Primitives{}, err
			}
			*value = setting
		}
		if *value == "" {
			*value = prim.values[0].value
		}
		if err := prim.checkValue(*value); err != nil {
			return store.Primitives{}, err
		}
	}
	return chosen, normalizeSoftware(&chosen)
}

// expand expands a leading ~ of a path, which shells leave in --software=~/directory.
func (r *Reader) expand(prim primitive, value string) string {
	if prim.name != softwareName {
		return value
	}
	return ExpandHome(value, proc.Getenv(r.Env, "HOME"))
}

// normalizeSoftware refuses another root file system without walls, and cleans its path.
func normalizeSoftware(p *store.Primitives) error {
	if !p.HasOtherRoot() {
		return nil
	}
	if !p.NamesImage() {
		p.Software = filepath.Clean(p.Software)
	}
	if p.Platform == PlatformPodman && !p.NamesImage() {
		return &fault.UnsupportedError{Primitive: softwareName, Value: p.Software, Why: "a container has the root file system of an image; name one, or import the directory: tar -C " + quote.Shell(p.Software) + " -c . | podman import - <name>"}
	}
	if p.Isolation != IsolationOS {
		return &fault.UnsupportedError{Primitive: softwareName, Value: p.Software, Why: "commands have another root file system only behind walls: --isolation " + IsolationOS}
	}
	return nil
}

// changeset returns the value of agency.changeset; empty if it is not set.
func (r *Reader) changeset(prim primitive) (string, error) {
	setting, set := r.Config.Last(changesetKey)
	var invalid *fault.InvalidError
	if err := prim.checkValue(setting.Value); set && errors.As(err, &invalid) {
		return "", InvalidSetting(changesetKey, setting, invalid.Want)
	}
	return setting.Value, nil
}

// checkProfile refuses a profile that does not exist, and one with an unknown key: a misspelt key would be a wall
// that is missing.
func (r *Reader) checkProfile(profile string) error {
	if err := checkProfileName(profile); err != nil {
		return err
	}
	known := false
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		name, of := strings.CutPrefix(key, "agency."+profile+".")
		if !of || strings.Contains(name, ".") { // names of profiles may contain dots, names of keys do not
			continue
		}
		if name == "command" {
			continue // a runner may have the name of a profile
		}
		if !slices.ContainsFunc(primitives, func(p primitive) bool { return p.name == name }) {
			setting, _ := r.Config.Last(key)
			return invalidKey(key, setting, "changeset, platform, isolation, outputs or software")
		}
		known = true
	}
	if !known {
		return &fault.InvalidError{What: "profile", Value: profile, Want: fmt.Sprintf("settings agency.%s.* in git config", profile)}
	}
	return nil
}

// checkValue refuses a value that is unknown, or that cannot be built yet.
func (p primitive) checkValue(value string) error {
	i := slices.IndexFunc(p.values, func(c choice) bool { return c.value == value })
	switch {
	case i >= 0 && p.values[i].unsupportedReason == "":
		return nil
	case i >= 0:
		return &fault.UnsupportedError{Primitive: p.name, Value: value, Why: p.values[i].unsupportedReason}
	case p.openPrefix.value != "" && strings.HasPrefix(value, p.openPrefix.value) && p.openPrefix.unsupportedReason == "":
		return nil // the part after the prefix is checked elsewhere
	case p.openPrefix.value != "" && strings.HasPrefix(value, p.openPrefix.value):
		return &fault.UnsupportedError{Primitive: p.name, Value: value, Why: p.openPrefix.unsupportedReason}
	}
	if p.name == softwareName && images.CheckReference(value) == nil {
		if p.openPrefix.unsupportedReason != "" {
			return &fault.UnsupportedError{Primitive: p.name, Value: value, Why: p.openPrefix.unsupportedReason}
		}
		return nil
	}
	if p.name == softwareName {
		return &fault.InvalidError{What: p.name, Value: value, Want: "host, the absolute path of a directory with a root file system, or the name of an image"}
	}
	names := make([]string, len(p.values))
	for i, c := range p.values {
		names[i] = c.value
	}
	if p.openPrefix.value != "" && p.openPrefix.unsupportedReason == "" {
		names = append(names, p.openPrefix.value+"<list>")
	}
	return &fault.InvalidError{What: p.name, Value: value, Want: "one of " + strings.Join(names, ", ")}
}

// FillLegacyPrimitives fills in the primitives that records written before there were walls do not have.
func FillLegacyPrimitives(p store.Primitives) store.Primitives {
	p.Isolation, p.Outputs = cmp.Or(p.Isolation, IsolationNone), cmp.Or(p.Outputs, OutputsOpen)
	return p
}

// Values of the changeset primitive.
const (
	ChangesetWorktree = "worktree"
	ChangesetClone    = "clone"
	ChangesetOverlay  = "overlay"
	ChangesetAuto     = "auto" // an overlay where that is possible, else a worktree
)

// Implemented values of the isolation primitive.
const (
	IsolationNone = "none"
	IsolationOS   = "os"
)

// OutputsOpen is unrestricted network access.
const OutputsOpen = "open"

// HostsPrefix starts a value of the outputs primitive that lists the allowed hosts.
const HostsPrefix = "hosts:"
