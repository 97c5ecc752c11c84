package git

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

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Remote is another repository that the settings of this one name.
type Remote struct {
	Name string
	URL  string // where a push goes; a path is absolute
	Own  bool   // nothing but the repository's own settings says so

	Path     string // of one on this machine; else empty
	Relative bool   // as it is set, that begins at the main worktree, where only who stands there finds it by its name

	fetch []string // which of its refs we keep where
	allow string   // the protocols that may be spoken
}

// Remotes are what the settings say of other repositories, and of what goes there.
type Remotes struct {
	repo   *Repo
	config Config
}

// remoteKeys are the settings that say where a push goes. None of those that name a program is among them.
const remoteKeys = `^(remote\..*\.(url|pushurl|fetch|promisor)|branch\..*\.(remote|merge)|push\.default|protocol\..*allow|extensions\.partialclone)$`

// Remotes reads them.
func (r *Repo) Remotes(ctx context.Context) (Remotes, error) {
	out, err := r.read(ctx, place{}, "config", "-z", "--show-scope", "--show-origin", "--get-regexp", remoteKeys)
	if err != nil && !exitedWith(err, 1) { // 1: none is set
		return Remotes{}, err
	}
	config, err := parseConfig(string(out))
	return Remotes{r, config}, err
}

// Names lists the remotes that one could push to.
func (s Remotes) Names() []string {
	var names []string
	for key := range s.config {
		for _, last := range []string{".url", ".pushurl"} {
			if name := strings.TrimSuffix(strings.TrimPrefix(key, "remote."), last); "remote."+name+last == key && len(s.urls(name)) > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// urls are where a push goes.
func (s Remotes) urls(name string) []Setting {
	for _, key := range []string{".pushurl", ".url"} {
		var urls []Setting
		for _, u := range s.config["remote."+name+key] {
			if u.Value == "" { // which forgets those before it
				urls = nil
			} else if !u.Bare {
				urls = append(urls, u)
			}
		}
		if len(urls) > 0 {
			return urls
		}
	}
	return nil
}

// Remote is the one of that name. What cannot be pushed to is an error.
func (s Remotes) Remote(ctx context.Context, name string) (Remote, error) {
	urls := s.urls(name)
	switch {
	case len(urls) == 0:
		return Remote{}, fmt.Errorf("there is no remote %q", name)
	case len(urls) > 1:
		return Remote{}, fmt.Errorf("remote %q is in %d places; name one that is in one", name, len(urls))
	case strings.ContainsFunc(urls[0].Value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return Remote{}, fmt.Errorf("remote %q: its URL %q has control characters in it", name, urls[0].Value)
	}
	remote := Remote{Name: name, URL: urls[0].Value, Own: !urls[0].Trusted()}
	for _, f := range s.config["remote."+name+".fetch"] {
		remote.fetch = append(remote.fetch, f.Value)
	}
	allowed := s.allowed()
	remote.allow = strings.Join(allowed, ":")
	expanded, err := s.repo.expand(ctx, remote.URL)
	if err != nil {
		return Remote{}, err
	}
	if p := protocolOf(expanded); !slices.Contains(allowed, p) {
		return Remote{}, fmt.Errorf("remote %q: %s: protocol %q is not one that is pushed by; those are %s", name, remote.URL, p, strings.Join(allowed, ", "))
	}
	if remote.Path = localPath(expanded); remote.Path != "" && !filepath.IsAbs(remote.Path) {
		remote.Path = filepath.Join(s.repo.root(), remote.Path)
		remote.URL, remote.Relative = remote.Path, true
	}
	return remote, nil
}

// root is what a relative path of a remote begins at: the main worktree; of a bare repository itself.
func (r *Repo) root() string {
	if filepath.Base(r.CommonDir) == ".git" {
		return filepath.Dir(r.CommonDir)
	}
	return r.CommonDir
}

// expand is what the user's own settings make of a URL. Nobody is asked about it.
func (r *Repo) expand(ctx context.Context, url string) (_ string, err error) {
	m, err := r.Mirror("")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	out, err := runner{dir: m.dir, env: slices.Concat(r.env, alone)}.run(ctx, []string{"--git-dir=" + m.dir}, []string{"ls-remote", "--get-url", "--", url})
	return strings.TrimSuffix(string(out), "\n"), err
}

// spoken are the protocols that a push goes by. All others run a program that the URL names, or may.
var spoken = []string{"file", "git", "http", "https", "ssh"}

// allowed are those of them that the user allows.
func (s Remotes) allowed() []string {
	allowed := slices.Clone(spoken)
	if list, set := proc.LookupVariable(s.repo.env, "GIT_ALLOW_PROTOCOL"); set {
		own := strings.Split(list, ":")
		return slices.DeleteFunc(allowed, func(p string) bool { return !slices.Contains(own, p) })
	}
	return slices.DeleteFunc(allowed, func(p string) bool {
		for _, key := range []string{"protocol." + p + ".allow", "protocol.allow"} {
			if set, ok, _ := s.config.Trusted(key, nil); ok {
				return set.Value == "never"
			}
		}
		return false
	})
}

// protocolOf is the protocol that git would speak for a URL.
func protocolOf(url string) string {
	scheme := 0
	for scheme < len(url) && (isLetter(url[scheme]) || scheme > 0 && strings.IndexByte("0123456789+-.", url[scheme]) >= 0) {
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

// localPath is the path in a URL of something on this machine; else it is empty.
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

// Whole refuses a repository that does not have all of its history itself, without which none of it can be pushed from
// elsewhere.
func (s Remotes) Whole() error {
	if fi, err := os.Lstat(filepath.Join(s.repo.CommonDir, "shallow")); err == nil && fi.Size() > 0 {
		return errors.New("the repository is a shallow clone; 'git fetch --unshallow' brings what it lacks")
	}
	for key, set := range s.config {
		if key == "extensions.partialclone" || strings.HasSuffix(key, ".promisor") && set[len(set)-1].Value == "true" {
			return errors.New("the repository is a partial clone; push from one that has everything")
		}
	}
	return nil
}

// Upstream is the branch that a branch goes with on a remote, as a full ref; empty when none is set. pushed reports
// whether a push goes there although it has another name.
func (s Remotes) Upstream(branch, remote string) (ref string, pushed bool) {
	short := strings.TrimPrefix(branch, "refs/heads/")
	if s.config.Value("branch."+short+".remote") != remote {
		return "", false
	}
	if ref = s.config.Value("branch." + short + ".merge"); !strings.HasPrefix(ref, "refs/heads/") || !validRef(ref) {
		return "", false
	}
	how := s.config.Value("push.default")
	return ref, how == "upstream" || how == "tracking"
}

// Tracks is the ref that remembers where a ref of the remote is; empty when there is none. Only what is there for that
// counts: a setting could name any branch.
func (r Remote) Tracks(ref string) string {
	found := ""
	for _, spec := range r.fetch {
		if not, is := strings.CutPrefix(spec, "^"); is {
			if _, matches := mapRef(ref, not, ""); matches {
				return ""
			}
			continue
		}
		from, to, _ := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
		if mapped, ok := mapRef(ref, from, to); ok && found == "" && strings.HasPrefix(mapped, "refs/remotes/") && validRef(mapped) {
			found = mapped
		}
	}
	return found
}

// mapRef is what a pattern with a star, or none, makes of a ref.
func mapRef(ref, from, to string) (string, bool) {
	before, after, star := strings.Cut(from, "*")
	if !star {
		return to, ref == from
	}
	if len(ref) < len(before)+len(after) || !strings.HasPrefix(ref, before) || !strings.HasSuffix(ref, after) {
		return "", false
	}
	return strings.Replace(to, "*", ref[len(before):len(ref)-len(after)], 1), true
}

// Track remembers where a ref of a remote is. old is where it was when that was asked for, empty when it was not there: if
// somebody has written down another place since, that is at least as new, and stays.
func (r *Repo) Track(ctx context.Context, ref, oid, old, reason string) error {
	if old == "" {
		old = strings.Repeat("0", len(oid))
	}
	_, err := r.change(ctx, place{}, "update-ref", "--no-deref", "-m", reason, ref, oid, old)
	if err == nil {
		return nil
	}
	if now, lookErr := r.Tip(ctx, ref); lookErr == nil && !isAt(now, old) {
		return nil
	}
	return err
}

// receives are the hooks that a push makes the other side run.
var receives = []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive", "push-to-checkout"}

// Hooks lists what a push would make a repository on this machine run.
func (r *Repo) Hooks(ctx context.Context, remote Remote) (found []string, err error) {
	for _, last := range []string{"/.git", "", ".git/.git", ".git"} { // as git looks for it
		dir := remote.Path + last
		if is, err := IsGitDir(dir); err != nil || !is {
			continue
		}
		out, err := runner{dir: dir, env: slices.Concat(r.env, alone)}.run(ctx, []string{"--git-dir=" + dir}, []string{"rev-parse", "--path-format=absolute", "--git-path", "hooks"})
		if err != nil {
			return nil, err
		}
		for _, name := range receives {
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
