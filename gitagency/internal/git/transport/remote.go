package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Remote is a remote that the configuration names.
type Remote struct {
	Name      string
	URL       string // URL to push to; a path is absolute
	Untrusted bool   // only the repository's own configuration names the URL

	Path     string // path of a remote on this machine; otherwise empty
	Relative bool   // configured relative to the main worktree, so that git elsewhere cannot find it by name

	fetchSpecs       []string // fetch refspecs
	allowedProtocols string   // protocols that git may use, separated by colons
}

// RemoteConfig is the configuration of remotes, upstream branches and pushes.
type RemoteConfig struct {
	repo   *git.Repo
	config config.Settings
}

// remoteKeys matches the settings that determine where a push goes. None of them names a program.
const remoteKeys = `^(remote\..*\.(url|pushurl|fetch|promisor)|branch\..*\.(remote|merge)|push\.default|protocol\..*allow|extensions\.partialclone)$`

// ReadRemotes reads the configuration of remotes.
func ReadRemotes(ctx context.Context, r *git.Repo) (RemoteConfig, error) {
	out, err := r.RunRead(ctx, git.RunOptions{}, "config", "-z", "--show-scope", "--show-origin", "--get-regexp", remoteKeys)
	if err != nil && !git.ExitedWith(err, 1) { // 1: no key is set
		return RemoteConfig{}, err
	}
	config, err := config.ParseSettings(string(out))
	return RemoteConfig{r, config}, err
}

// Names lists the remotes that have a URL to push to.
func (s RemoteConfig) Names() []string {
	var names []string
	for key := range s.config {
		for _, last := range []string{".url", ".pushurl"} {
			if name := strings.TrimSuffix(strings.TrimPrefix(key, "remote."), last); "remote."+name+last == key && len(s.pushURLs(name)) > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pushURLs returns the URLs that a push to a remote goes to.
func (s RemoteConfig) pushURLs(name string) []config.Setting {
	for _, key := range []string{".pushurl", ".url"} {
		var urls []config.Setting
		for _, u := range s.config["remote."+name+key] {
			if u.Value == "" { // an empty value clears the list
				urls = nil
			} else if !u.NoValue {
				urls = append(urls, u)
			}
		}
		if len(urls) > 0 {
			return urls
		}
	}
	return nil
}

// Find returns the remote of this name. It refuses remotes that we cannot push to.
func (s RemoteConfig) Find(ctx context.Context, name string) (Remote, error) {
	urls := s.pushURLs(name)
	switch {
	case len(urls) == 0:
		return Remote{}, fmt.Errorf("there is no remote %q", name)
	case len(urls) > 1:
		return Remote{}, fmt.Errorf("remote %q has %d push URLs; name a remote with one", name, len(urls))
	case strings.ContainsFunc(urls[0].Value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return Remote{}, fmt.Errorf("remote %q: its URL %q contains control characters", name, urls[0].Value)
	}
	remote := Remote{Name: name, URL: urls[0].Value, Untrusted: !urls[0].Trusted()}
	for _, f := range s.config["remote."+name+".fetch"] {
		remote.fetchSpecs = append(remote.fetchSpecs, f.Value)
	}
	return s.locate(ctx, remote)
}

// At returns the remote at a URL, or at a path, that is not configured as a remote. A relative path is relative to dir.
func (s RemoteConfig) At(ctx context.Context, url, dir string) (Remote, error) {
	if path := localPath(url); path != "" && !filepath.IsAbs(path) {
		url = filepath.Join(dir, path)
	}
	return s.locate(ctx, Remote{Name: url, URL: url})
}

// locate completes a remote with what its URL says. It refuses one that we cannot reach.
func (s RemoteConfig) locate(ctx context.Context, remote Remote) (Remote, error) {
	allowed := s.allowedProtocols()
	remote.allowedProtocols = strings.Join(allowed, ":")
	expanded, err := s.repo.ExpandURL(ctx, remote.URL)
	if err != nil {
		return Remote{}, err
	}
	if p := urlProtocol(expanded); !slices.Contains(allowed, p) {
		return Remote{}, fmt.Errorf("remote %q: %s: protocol %q is not supported for pushes; supported are %s", remote.Name, remote.URL, p, strings.Join(allowed, ", "))
	}
	if remote.Path = localPath(expanded); remote.Path != "" && !filepath.IsAbs(remote.Path) {
		remote.Path = filepath.Join(s.repo.RemotePathBase(), remote.Path)
		remote.URL, remote.Relative = remote.Path, true
	}
	return remote, nil
}

// supportedProtocols are the protocols that we push by. All others run, or may run, a program that the URL names.
var supportedProtocols = []string{"file", "git", "http", "https", "ssh"}

// allowedProtocols returns the supported protocols that the user allows.
func (s RemoteConfig) allowedProtocols() []string {
	allowed := slices.Clone(supportedProtocols)
	if list, set := proc.LookupEnv(s.repo.Env, "GIT_ALLOW_PROTOCOL"); set {
		own := strings.Split(list, ":")
		return slices.DeleteFunc(allowed, func(p string) bool { return !slices.Contains(own, p) })
	}
	return slices.DeleteFunc(allowed, func(p string) bool {
		for _, key := range []string{"protocol." + p + ".allow", "protocol.allow"} {
			if set, ok, _ := s.config.LastTrusted(key, nil); ok {
				return set.Value == "never"
			}
		}
		return false
	})
}

// urlProtocol returns the protocol that git would use for a URL.
func urlProtocol(url string) string {
	scheme := 0
	for scheme < len(url) && (config.IsLetter(url[scheme]) || scheme > 0 && strings.IndexByte("0123456789+-.", url[scheme]) >= 0) {
		scheme++
	}
	switch rest := url[scheme:]; {
	case strings.HasPrefix(rest, "::"):
		return url[:scheme]
	case strings.HasPrefix(rest, "://"):
		if p := url[:scheme]; p != "git+ssh" && p != "ssh+git" {
			return p
		}
		return "ssh"
	case localPath(url) != "":
		return "file"
	}
	return "ssh" // "host:path"
}

// localPath returns the path in a URL of a repository on this machine; otherwise "".
func localPath(u string) string {
	if path, is := strings.CutPrefix(u, "file://"); is {
		if decoded, err := url.PathUnescape(path); err == nil {
			path = decoded
		}
		return "/" + strings.TrimLeft(path, "/")
	}
	colon, slash := strings.IndexByte(u, ':'), strings.IndexByte(u, '/')
	if colon >= 0 && (slash < 0 || colon < slash) {
		return ""
	}
	return u
}

// CheckFullHistory refuses shallow and partial clones, because a push from another git directory needs all objects.
func (s RemoteConfig) CheckFullHistory() error {
	if fi, err := os.Lstat(filepath.Join(s.repo.CommonDir, "shallow")); err == nil && fi.Size() > 0 {
		return errors.New("the repository is a shallow clone; 'git fetch --unshallow' fetches its full history")
	}
	for key, set := range s.config {
		if key == "extensions.partialclone" || strings.HasSuffix(key, ".promisor") && set[len(set)-1].Value == "true" {
			return errors.New("the repository is a partial clone; push from a full clone")
		}
	}
	return nil
}

// Upstream returns the configured upstream branch of a branch on a remote, as a full ref; empty when none is set.
// pushed reports whether push.default makes a push go there although it has another name.
func (s RemoteConfig) Upstream(branch, remote string) (ref string, pushed bool) {
	short := strings.TrimPrefix(branch, "refs/heads/")
	if s.config.Value("branch."+short+".remote") != remote {
		return "", false
	}
	if ref = s.config.Value("branch." + short + ".merge"); !strings.HasPrefix(ref, "refs/heads/") || !object.IsValidRef(ref) {
		return "", false
	}
	how := s.config.Value("push.default")
	return ref, how == "upstream" || how == "tracking"
}

// TrackingRef returns the remote-tracking ref for a ref of the remote; empty when there is none. Only refs below
// refs/remotes/ count: a refspec could name any branch.
func (r Remote) TrackingRef(ref string) string {
	found := ""
	for _, spec := range r.fetchSpecs {
		if not, is := strings.CutPrefix(spec, "^"); is {
			if _, matches := mapRefspec(ref, not, ""); matches {
				return ""
			}
			continue
		}
		from, to, _ := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
		if mapped, ok := mapRefspec(ref, from, to); ok && found == "" && strings.HasPrefix(mapped, "refs/remotes/") && object.IsValidRef(mapped) {
			found = mapped
		}
	}
	return found
}

// mapRefspec maps a ref by a refspec, with or without a star.
func mapRefspec(ref, from, to string) (string, bool) {
	before, after, star := strings.Cut(from, "*")
	if !star {
		return to, ref == from
	}
	if len(ref) < len(before)+len(after) || !strings.HasPrefix(ref, before) || !strings.HasSuffix(ref, after) {
		return "", false
	}
	return strings.Replace(to, "*", ref[len(before):len(ref)-len(after)], 1), true
}

// UpdateTrackingRef moves a remote-tracking ref to oid. old is where it was before the remote was asked, empty when
// it did not exist: if it was moved since, its value is at least as new, and stays.
func UpdateTrackingRef(ctx context.Context, r *git.Repo, ref, oid, old, reason string) error {
	if old == "" {
		old = strings.Repeat("0", len(oid))
	}
	_, err := r.RunWrite(ctx, git.RunOptions{}, "update-ref", "--no-deref", "-m", reason, ref, oid, old)
	if err == nil {
		return nil
	}
	if now, lookErr := r.Tip(ctx, ref); lookErr == nil && !git.RefIsAt(now, old) {
		return nil
	}
	return err
}

// receiveHooks are the hooks that a push runs in the receiving repository.
var receiveHooks = []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive", "push-to-checkout"}

// RemoteHooks lists the hooks that a push would run in a repository on this machine.
func RemoteHooks(ctx context.Context, r *git.Repo, remote Remote) (found []string, err error) {
	for _, last := range []string{"/.git", "", ".git/.git", ".git"} { // in the order of git
		dir := remote.Path + last
		if is, err := git.IsGitDir(dir); err != nil || !is {
			continue
		}
		out, err := git.Runner{Dir: dir, Env: slices.Concat(r.Env, git.NoLazyFetchEnv)}.OutputWithGlobals(ctx, []string{"--git-dir=" + dir}, []string{"rev-parse", "--path-format=absolute", "--git-path", "hooks"})
		if err != nil {
			return nil, err
		}
		for _, name := range receiveHooks {
			path := filepath.Join(strings.TrimSuffix(string(out), "\n"), name)
			fi, err := os.Stat(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&0o111 != 0 {
				found = append(found, path)
			}
		}
		break
	}
	return found, nil
}
