package clone

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
)

// Source is the repository that a clone has as its remote "origin".
type Source struct {
	Name string // name of a remote; ThisRepository for the repository itself
	URL  string // without passwords; a path of this machine is absolute
}

// ThisRepository is the name of the repository itself as a source.
const ThisRepository = "."

// NoRemoteError reports that there is no remote of a name.
type NoRemoteError struct {
	Name    string
	Remotes []string // names of the remotes of the repository
}

func (e *NoRemoteError) Error() string { return fmt.Sprintf("there is no remote %q", e.Name) }

// FindSource returns the source of this name. If none is named, it is the remote "local", else "origin", else the repository itself.
func FindSource(ctx context.Context, r *git.Repo, name string) (Source, error) {
	if name == ThisRepository {
		return thisRepository(r), nil
	}
	urls, err := remoteURLs(ctx, r)
	if err != nil {
		return Source{}, err
	}
	names := []string{name}
	if name == "" {
		names = []string{"local", "origin"}
	}
	for _, name := range names {
		if url := urls[name]; url != "" {
			return Source{Name: name, URL: config.StripURLSecrets(config.StripUserinfo(absoluteURL(r, url)))}, nil
		}
	}
	if name == "" {
		return thisRepository(r), nil
	}
	remotes := []string{}
	for name := range urls {
		remotes = append(remotes, name)
	}
	slices.Sort(remotes)
	return Source{}, &NoRemoteError{Name: name, Remotes: remotes}
}

// FindSourceOrDefault is FindSource that returns the default if there is no remote of the name any more.
func FindSourceOrDefault(ctx context.Context, r *git.Repo, name string) (Source, error) {
	source, err := FindSource(ctx, r, name)
	if errors.As(err, new(*NoRemoteError)) {
		return FindSource(ctx, r, "")
	}
	return source, err
}

func thisRepository(r *git.Repo) Source {
	return Source{Name: ThisRepository, URL: r.CommonDir}
}

// remoteURLs returns the URL from which git fetches, by the name of the remote.
func remoteURLs(ctx context.Context, r *git.Repo) (map[string]string, error) {
	out, err := r.RunRead(ctx, git.RunOptions{}, "config", "-z", "--get-regexp", `^remote\..*\.url$`)
	if err != nil && !git.ExitedWith(err, 1) { // 1: no key is set
		return nil, err
	}
	urls := map[string]string{}
	for _, setting := range strings.Split(string(out), "\x00") {
		key, url, _ := strings.Cut(setting, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(key, "remote."), ".url")
		if _, had := urls[name]; !had && url != "" { // git fetches from the first one
			urls[name] = url
		}
	}
	return urls, nil
}

// absoluteURL returns a URL that means the same in any directory.
func absoluteURL(r *git.Repo, url string) string {
	if strings.Contains(url, "://") || filepath.IsAbs(url) || strings.HasPrefix(url, "~") {
		return url
	}
	if host, _, scp := strings.Cut(url, ":"); scp && !strings.Contains(host, "/") { // host:path
		return url
	}
	return filepath.Join(r.RemotePathBase(), url)
}

// Refs returns the refs of a new clone, besides its branch: the branches of its source, as far as the repository knows them, and
// the tags and replaced objects of the repository. Branches with one of the prefixes in without are left out.
func (s Source) Refs(ctx context.Context, r *git.Repo, without ...string) (map[string]string, error) {
	branches := "refs/heads/"
	if s.Name != ThisRepository {
		branches = "refs/remotes/" + s.Name + "/"
	}
	all, err := r.Refs(ctx, branches, "refs/tags/", "refs/replace/")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for ref, oid := range all {
		if slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(ref, prefix) }) {
			continue
		}
		if name, is := strings.CutPrefix(ref, branches); is {
			if ref = "refs/remotes/origin/" + name; name == "HEAD" {
				continue // a symbolic ref
			}
		}
		refs[ref] = oid
	}
	return refs, nil
}
