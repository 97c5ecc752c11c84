package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
)

// Capability is a feature that this machine has or lacks.
type Capability struct {
	Name   string `json:"name"`
	State  string `json:"state"` // one of the states below
	Detail string `json:"detail"`
}

// States of a capability.
const (
	CapabilityOK      = string(confine.OK)
	CapabilityMissing = string(confine.Missing)
	CapabilityUnknown = string(confine.Unknown) // could not be probed
)

// Capabilities reports the features of this machine: its git, the kernel features that walls are built from, the walls
// around the git that reads data of sandboxes, and the coding agents on PATH or named by agency.<runner>.command. It probes every kernel feature by using it, and leaves
// nothing behind. A missing feature is no error; its detail says which options do not work without it.
func Capabilities(ctx context.Context, r *core.Repository) ([]Capability, error) {
	features, err := confine.Probe(ctx, r.Opts.Env)
	if err != nil {
		return nil, fmt.Errorf("probe the features of this machine: %w", err)
	}
	capabilities := []Capability{gitCapability(r.Git.Version)}
	for _, f := range features {
		capabilities = append(capabilities, wallCapability(f))
	}
	capabilities = append(capabilities, readerCapability(missingReaderWalls(r), userFilters(r)))
	return append(capabilities, agentCapabilities(runner.Find(r.Opts.Env, r.Settings.RunnerCommands()))...), nil
}

// gitCapability describes the version of git. Its state is always OK: with a git that is too old no repository can be
// opened.
func gitCapability(v git.Version) Capability {
	var with, without []string
	for _, f := range git.Features {
		if v.Offers(f) {
			with = append(with, f.Name)
		} else {
			without = append(without, fmt.Sprintf("%s (since %d.%d)", f.Name, f.Since.Major, f.Since.Minor))
		}
	}
	detail := v.String()
	if len(with) > 0 {
		detail += ", with " + strings.Join(with, " and ")
	}
	if len(without) > 0 {
		detail += ", without " + strings.Join(without, " and ")
	}
	return Capability{Name: "git", State: CapabilityOK, Detail: detail}
}

// missingFeatureEffects says, for each kernel feature, what cannot be built without it.
var missingFeatureEffects = map[string]string{
	confine.UserNamespaces:    "--isolation os, --changeset overlay and --outputs other than open cannot be built",
	confine.PIDNamespaces:     "--isolation os and --outputs other than open cannot be built",
	confine.NetworkNamespaces: "--outputs other than open cannot be built",
	confine.MountAPI:          "--isolation os cannot be built",
	confine.Overlay:           "--isolation os and --changeset overlay cannot be built",
	confine.Landlock:          "--isolation os cannot be built",
	confine.Seccomp:           "--isolation os cannot be built",
	confine.JoiningNamespaces: "--isolation os lets only one command run in a sandbox at a time",
	confine.AllWalls:          "--isolation os cannot be built",
	confine.CgroupDelegation:  "--memory cannot be enforced, nor --processes as root",
}

func wallCapability(f confine.Feature) Capability {
	c := Capability{Name: f.Name, State: string(f.State), Detail: f.Detail}
	if f.State == confine.Missing {
		c.Detail += "; without it " + missingFeatureEffects[f.Name]
	}
	return c
}

// missingReaderWalls says which walls the git that reads data of sandboxes lacks.
func missingReaderWalls(r *core.Repository) []string {
	program, err := proc.LookPath(r.Opts.Env, "git")
	if err != nil {
		return []string{err.Error()}
	}
	return readlimit.MissingWalls(program)
}

// userFilters lists the filters that the user has configured for the content of files.
func userFilters(r *core.Repository) []string {
	var names []string
	for key, values := range r.Git.Config {
		if name, is := config.FilterName(key); is && !strings.HasSuffix(key, ".required") && slices.ContainsFunc(values, config.Setting.Trusted) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readerCapability describes the walls around the git that reads data of sandboxes. Without them it works all the same,
// within agency.readLimits.
func readerCapability(missing, filters []string) Capability {
	c := Capability{Name: "reader-walls", State: CapabilityOK, Detail: "git reads data of sandboxes behind Landlock and seccomp"}
	if len(missing) > 0 {
		c.State = CapabilityMissing
		c.Detail = "git reads data of sandboxes with fewer walls: " + strings.Join(missing, "; ")
	}
	if len(filters) > 0 {
		c.Detail += "; files with your filters (" + strings.Join(filters, ", ") + ") are read without walls"
	}
	return c
}

// agentCapabilities returns one capability for each agent, or a single missing one if there are no agents.
func agentCapabilities(agents []runner.Agent) []Capability {
	if len(agents) == 0 {
		return []Capability{{
			Name: "agents", State: CapabilityMissing,
			Detail: "none on PATH of " + strings.Join(runner.KnownNames(), ", ") +
				"; to configure another: git config --global agency.<name>.command <command>",
		}}
	}
	var capabilities []Capability
	for _, a := range agents {
		c := Capability{Name: "agent " + a.Name, State: CapabilityOK, Detail: a.Path}
		if a.Err != nil {
			c.State, c.Detail = CapabilityMissing, fmt.Sprintf("%v (agency.%s.command)", a.Err, a.Name)
		}
		capabilities = append(capabilities, c)
	}
	return capabilities
}
