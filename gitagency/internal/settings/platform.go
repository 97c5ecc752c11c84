package settings

import (
	"errors"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/images"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Platforms that a run can be on.
const (
	PlatformLocal  = store.PlatformLocal
	PlatformSlurm  = "slurm"
	PlatformPodman = "podman" // its settings are also those of images on this machine
)

// HubKey names the repository by which runs on other platforms come and go.
const HubKey = "agency.hub"

// platformSection begins the subsections of the keys of platforms (agency.platform.<platform>.*).
const platformSection = "platform"

// Platform holds the settings of a platform other than this machine.
type Platform struct {
	engine.Config
	Requeue bool   // its engine may run a job again whose node was lost or which was preempted
	Dir     string // directory on the node for repositories and sandboxes; empty: the default there
}

func platformKey(platform, name string) string {
	return "agency." + platformSection + "." + platform + "." + name
}

// platformKeys lists the keys of all platforms.
func platformKeys() []Key {
	slurm := func(name string) string { return platformKey(PlatformSlurm, name) }
	podman := func(name string) string { return platformKey(PlatformPodman, name) }
	return []Key{
		{Name: HubKey, Default: "the repository itself", Meaning: "repository by which runs on other platforms come and go: a path, an ssh URL or the name of a remote", checkValue: CheckHub},
		{Name: slurm("partition"), Default: "that of the site", Meaning: "partition of the jobs", checkValue: checkWord},
		{Name: slurm("account"), Default: "that of the site", Meaning: "account of the jobs", checkValue: checkWord},
		{Name: slurm("args"), Meaning: "further arguments of sbatch, one in each value", multiValued: true},
		{Name: slurm("ssh"), Default: "this machine", Meaning: "login node on which sbatch and its like are run: a host, or user@host", checkValue: checkSSH},
		{Name: slurm("requeue"), Default: "true", Meaning: "whether Slurm may run a job again that was preempted or whose node was lost", checkValue: checkBool},
		{Name: slurm("dir"), Default: "~/.cache/agency/nodes/<host>", Meaning: "directory on the nodes for repositories and sandboxes; it should be on a disk of the node", checkValue: checkAbsolutePath},
		{Name: podman("engine"), Default: "`podman`, else `docker`", Meaning: "container engine of the platform, which also has the images of `--software`: `podman` or `docker`", checkValue: checkEngine},
		{Name: podman("image"), Meaning: "image of the containers in which runs are executed, unless `--software` names one; it has to contain git", checkValue: checkImage},
		{Name: podman("args"), Meaning: "further arguments of `podman run`, one in each value, such as `--volume=/data:/data`", checkValue: checkContainerOption, multiValued: true},
		{Name: podman("ssh"), Default: "this machine", Meaning: "machine on which podman is run: a host, or user@host", checkValue: checkSSH},
		{Name: podman("dir"), Default: "the volume git-agency", Meaning: "directory on the machine with podman for repositories and sandboxes, in place of the volume", checkValue: checkAbsolutePath},
	}
}

// Platform returns the settings of a platform.
func (r *Reader) Platform(name string) (Platform, error) {
	p := Platform{Config: engine.Config{Name: name, Env: r.Env}}
	for _, k := range platformKeys() {
		if k.checkValue == nil || !strings.HasPrefix(k.Name, platformKey(name, "")) {
			continue
		}
		values := MultiValues(r.Config, k.Name)
		if s, set := r.Config.Last(k.Name); set && !k.multiValued {
			values = []config.Setting{s}
		}
		for _, s := range values {
			if err := k.checkValue(s.Value); err != nil {
				return p, InvalidSetting(k.Name, s, wantOf(err))
			}
		}
	}
	value := func(key string) string { return r.Config.Value(platformKey(name, key)) }
	p.SSH, p.Partition, p.Account, p.Dir = value("ssh"), value("partition"), value("account"), value("dir")
	p.Client, p.Image = value("engine"), value("image")
	for _, s := range MultiValues(r.Config, platformKey(name, "args")) {
		p.Args = append(p.Args, s.Value)
	}
	var err error
	p.Requeue, err = r.Bool(platformKey(name, "requeue"), true)
	return p, err
}

// WithImageOf returns the settings with the image that --software names, if it names one.
func (p Platform) WithImageOf(prims store.Primitives) Platform {
	if p.HasOwnRoot() && prims.NamesImage() {
		p.Image = prims.Software
	}
	return p
}

// ContainerEngine returns the name of the container engine; empty for the one that is installed.
func (r *Reader) ContainerEngine() (string, error) {
	key := platformKey(PlatformPodman, "engine")
	s, set := r.Config.Last(key)
	if !set {
		return "", nil
	}
	if err := checkEngine(s.Value); err != nil {
		return "", InvalidSetting(key, s, wantOf(err))
	}
	return s.Value, nil
}

// checkEngine accepts names only: a repository must not name a program to run.
func checkEngine(value string) error {
	if !slices.Contains(images.Engines, value) {
		return &fault.InvalidError{What: "engine", Value: value, Want: strings.Join(images.Engines, " or ")}
	}
	return nil
}

// checkImage refuses what cannot name an image, and could be an option.
func checkImage(value string) error {
	if images.CheckReference(value) != nil {
		return &fault.InvalidError{What: "image", Value: value, Want: "the name of an image"}
	}
	return nil
}

// checkContainerOption refuses options by which the container of a run would not be found again, or would begin something else.
func checkContainerOption(value string) error {
	name, _, _ := strings.Cut(value, "=")
	if slices.Contains([]string{"--name", "--entrypoint", "--restart", "--rm", "--detach", "-d"}, name) {
		return &fault.InvalidError{What: "option of containers", Value: value, Want: "one other than --name, --entrypoint, --restart, --rm and --detach"}
	}
	return nil
}

// Hub returns the value of agency.hub; empty for the repository itself.
func (r *Reader) Hub() (string, error) {
	s, set := r.Config.Last(HubKey)
	if !set {
		return "", nil
	}
	return s.Value, CheckHub(s.Value) // its error hides a password
}

// wantOf returns what a *fault.InvalidError says about the values that are valid.
func wantOf(err error) string {
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Want
	}
	return err.Error()
}

// CheckHub refuses values of agency.hub, among them a URL with a password: it would be an argument of programs, which others can see, and
// be kept by engines.
func CheckHub(value string) error {
	invalid := func(want string) error {
		return &fault.InvalidError{What: HubKey, Value: HidePassword(value), Want: want}
	}
	switch {
	case value == "" || strings.HasPrefix(value, "-") || strings.ContainsFunc(value, isControl):
		return invalid("a path, an ssh URL or the name of a remote")
	case HidePassword(value) != value:
		return invalid("a URL without a password; git asks a credential helper for it, and ssh uses a key")
	}
	return nil
}

// HidePassword replaces the password in a URL.
func HidePassword(url string) string {
	scheme, rest, isURL := strings.Cut(url, "://")
	authority, path, _ := strings.Cut(rest, "/")
	login, host, hasLogin := strings.Cut(authority, "@")
	user, _, hasPassword := strings.Cut(login, ":")
	if !isURL || !hasLogin || !hasPassword {
		return url
	}
	return scheme + "://" + user + ":***@" + host + "/" + path
}

// checkWord refuses what could be taken for an option, or for several words.
func checkWord(value string) error {
	if value == "" || strings.HasPrefix(value, "-") || strings.ContainsFunc(value, func(c rune) bool { return c == ' ' || isControl(c) }) {
		return &fault.InvalidError{What: "name", Value: value, Want: "one word that does not begin with -"}
	}
	return nil
}

func checkSSH(value string) error {
	if checkWord(value) != nil {
		return &fault.InvalidError{What: "ssh", Value: value, Want: "a host, or user@host"}
	}
	return nil
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
