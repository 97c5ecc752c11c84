package engine

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config says which engine to use, and how its site wants it.
type Config struct {
	Name      string   // slurm or podman
	SSH       string   // machine on which its client runs; empty: this one
	Env       []string // environment of its client
	Partition string   // partition of Slurm; empty: that of the site
	Account   string   // account of Slurm; empty: that of the site
	Client    string   // podman or docker; empty: podman, or docker where that alone is installed on this machine
	Image     string   // image of containers
	Args      []string // further arguments of its submit command
	Brief     bool     // leave out of a probe what only informs
}

// Open returns the driver of an engine.
func Open(c Config) (Driver, error) {
	channel := Channel{SSH: c.SSH, Env: c.Env}
	switch c.Name {
	case "slurm":
		return Slurm{Channel: channel, Partition: c.Partition, Account: c.Account, Args: c.Args}, nil
	case "podman":
		return Podman{Channel: channel, Client: c.ContainerClient(), Image: c.Image, Args: c.Args, Brief: c.Brief}, nil
	}
	return nil, fmt.Errorf("there is no engine %q", c.Name)
}

// ContainerClient returns the client of the container engine.
func (c Config) ContainerClient() string {
	switch {
	case c.Client != "":
		return c.Client
	case c.SSH == "" && !hasProgram(c.Env, "podman") && hasProgram(c.Env, "docker"):
		return "docker"
	}
	return "podman"
}

// SubmitsUntil returns the time until which a client may submit a job whose submission began at a time, although the process that started
// the client was killed.
func (c Config) SubmitsUntil(began time.Time) time.Time {
	if c.Name == "podman" {
		return began.Add(submitTimeout)
	}
	return began
}

// HasOwnRoot reports whether jobs of an engine have a root file system of their own: that of an image.
func (c Config) HasOwnRoot() bool { return c.Name == "podman" }

// Self returns what an engine tells a job by its environment: the name of the node, and the number of the attempt.
func Self(env []string) (node string, attempt int) {
	get := func(name string) string {
		for _, kv := range env {
			if value, is := strings.CutPrefix(kv, name+"="); is {
				return value
			}
		}
		return ""
	}
	host, _ := os.Hostname() // empty is unknown
	restarts, err := strconv.Atoi(get("SLURM_RESTART_COUNT"))
	if err != nil || restarts < 0 {
		restarts = 0 // it is set from the second start on
	}
	return cmp.Or(get("SLURMD_NODENAME"), host, "unknown"), restarts + 1
}
