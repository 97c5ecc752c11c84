package runner

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// SeedPath returns the absolute path of a seed in the environment of the user, or "" if there is none.
func (s Spec) SeedPath(env []string, seed Seed) string {
	variable := seed.Env
	if variable == "" {
		variable = s.HomeEnv
	}
	dir, below := proc.Getenv(env, variable), seed.Moved
	if variable == "" || dir == "" {
		dir, below = proc.Getenv(env, "HOME"), seed.From
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, below)
}

// Login returns the variable or the file that lets the agent use its model, or "" if the user has neither. It does not
// check whether the model accepts it. A key in settings counts, unless they name variables with keys, which are not set.
func (s Spec) Login(env []string) string {
	for _, name := range s.keyNames(env) {
		if proc.Getenv(env, name) != "" {
			return name
		}
	}
	for _, seed := range s.Seeds {
		path := s.SeedPath(env, seed)
		if path == "" || !slices.Contains(s.Logins, seed.From) {
			continue
		}
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Size() > 0 {
			return path
		}
	}
	if s.KeyText == nil || s.KeyEnv != nil && s.settings(env, s.KeyEnv) != nil {
		return ""
	}
	for _, seed := range s.Seeds {
		if path := s.SeedPath(env, seed); seed.Settings && path != "" && s.KeyText.Match(readSettings(path)) {
			return path
		}
	}
	return ""
}

// PassNames returns PassEnv and the names of all variables with keys.
func (s Spec) PassNames(env []string) []string { return slices.Concat(s.PassEnv, s.keyNames(env)) }

// keyNames returns Keys and the names of the variables with keys that the user's settings name.
func (s Spec) keyNames(env []string) []string {
	if s.KeyEnv == nil {
		return s.Keys
	}
	return slices.Concat(s.Keys, s.settings(env, s.KeyEnv))
}

// maxSettings bounds how much of a settings file is searched.
const maxSettings = 1 << 20

// settings returns the first group of all matches in the settings of the user.
func (s Spec) settings(env []string, pattern *regexp.Regexp) []string {
	var found []string
	for _, seed := range s.Seeds {
		if path := s.SeedPath(env, seed); seed.Settings && path != "" {
			found = append(found, firstGroups(pattern, readSettings(path))...)
		}
	}
	return found
}

func firstGroups(pattern *regexp.Regexp, text []byte) []string {
	var found []string
	for _, m := range pattern.FindAllSubmatch(text, 100) {
		found = append(found, string(m[1]))
	}
	return found
}

// readSettings returns the beginning of a file; a file that cannot be read has no settings.
func readSettings(path string) []byte {
	if fi, err := os.Stat(path); err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSettings))
	if err != nil {
		return nil
	}
	return text
}

// baseURL finds the base URL of a model in TOML and JSON: base_url = "…", "baseURL": "…". It need not parse the file: a URL
// too many is one more host that the user configured.
var baseURL = sync.OnceValue(func() *regexp.Regexp { return settingWithURL(`base_?url`) })

// settingWithURL finds the URL, as first group, of a setting whose name a pattern matches, in TOML, JSON and NAME=value
// lines.
func settingWithURL(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + name + `["']?\s*[=:]\s*["']?(https?://[^\s"',}]+)`)
}

// configuredHosts returns the hosts of the base URLs in variables with these names, which settings of the user can set too.
// Without names, each base URL in the settings counts.
func (s Spec) configuredHosts(env []string, names ...string) []string {
	var hosts []string
	add := func(text string) {
		if h := urlHost(text); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, name := range names {
		add(proc.Getenv(env, name))
	}
	pattern := baseURL()
	if len(names) > 0 { // tools that the agent starts have base URLs, too
		pattern = settingWithURL(`\b(?:` + strings.Join(names, "|") + `)`)
	}
	for _, text := range s.settings(env, pattern) {
		add(text)
	}
	return hosts
}

// urlHost returns the host of a URL as for --outputs hosts:, with the port unless it is that of HTTPS.
func urlHost(text string) string {
	u, err := url.Parse(text)
	// A placeholder that the agent would replace, such as {region}, is no host.
	if err != nil || u.Hostname() == "" || strings.Trim(u.Hostname(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-:") != "" {
		return ""
	}
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "" && u.Scheme != "https":
		return ""
	}
	if port == "" || port == "443" && u.Scheme == "https" {
		if strings.Contains(u.Hostname(), ":") {
			return "[" + u.Hostname() + "]"
		}
		return u.Hostname()
	}
	return net.JoinHostPort(u.Hostname(), port)
}
