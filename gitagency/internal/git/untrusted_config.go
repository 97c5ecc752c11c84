package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// fillUntrustedGitDir fills a git directory with the safe settings and with copies of info/exclude and
// info/attributes. It shares the objects of the repository. A git that works there needs the returned environment.
func (r *Repo) fillUntrustedGitDir(head, dir string) ([]string, error) {
	for _, name := range []string{"refs", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"exclude", "attributes"} {
		err := CopySmallFile(filepath.Join(r.CommonDir, "info", name), filepath.Join(dir, "info", name))
		if err != nil && !IsNotExist(err) {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(r.safeConfig(head)), 0o666); err != nil {
		return nil, err
	}
	if r.dryRunDir != "" {
		return nil, nil // the dry run's environment has the object directory
	}
	return []string{"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.CommonDir, "objects")}, nil
}

// CopySmallFile copies a small regular file, without blocking on a pipe.
func CopySmallFile(from, to string) error {
	const most = 64 << 20
	f, fi, err := OpenRegular(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi.Size() > most {
		return fmt.Errorf("%s is too large: %d bytes", from, fi.Size())
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o666)
}

// safeConfig returns the text of a configuration with nothing but the safe settings.
func (r *Repo) safeConfig(head string) string {
	var text strings.Builder
	text.WriteString("[core]\n\tbare = false\n\trepositoryformatversion = 1\n")
	for _, key := range config.SafeKeys {
		for _, s := range r.Config[key] {
			if s.Trusted() || !r.IsSafeSetting(key, s) {
				continue // git reads trusted settings from the user's own files
			}
			fmt.Fprintf(&text, "\t%s = %s\n", strings.TrimPrefix(key, "core."), QuoteConfigValue(s.Value))
		}
	}
	if object.FormatOf(head) == object.SHA256 || head == "" && r.Config.Value(config.ObjectFormatKey) == string(object.SHA256) {
		text.WriteString("[extensions]\n\tobjectFormat = sha256\n")
	}
	// Git LFS of the user stores its objects in the usual place, and not in the scratch directory.
	if s, set := r.Config.Last(config.LFSStorageKey); !set || !s.Trusted() {
		fmt.Fprintf(&text, "[lfs]\n\tstorage = %s\n", QuoteConfigValue(filepath.Join(r.CommonDir, "lfs")))
	}
	// An untrusted filter that a file needs unexpectedly makes git fail: it is required and its commands are empty.
	// Without any command git would not look for the filter.
	for _, name := range r.UntrustedFiltersWith(cleanCommands) {
		// Git fails on a required filter that lacks the command for one direction; so a filter with a command for
		// only one direction is left out.
		if slices.Contains(r.UntrustedFiltersWith(SmudgeCommands), name) && !strings.Contains(name, "\n") { // no attribute can have such a name
			fmt.Fprintf(&text, "[filter %s]\n\tclean = \"\"\n\tsmudge = \"\"\n\trequired = true\n", QuoteSubsection(name))
		}
	}
	return text.String()
}

// QuoteSubsection quotes the middle part of a configuration key.
func QuoteSubsection(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// IsSafeSetting reports whether the value of a safe key may come from an untrusted configuration. A path must not be
// a pipe, on which git would block for ever, and not relative, because it is hard to say what git resolves it
// against.
func (r *Repo) IsSafeSetting(key string, s config.Setting) bool {
	if key != "core.excludesfile" && key != "core.attributesfile" {
		return true
	}
	path := s.Value
	if rest, inHome := strings.CutPrefix(path, "~/"); inHome {
		path = filepath.Join(proc.Getenv(r.Env, "HOME"), rest)
	}
	if !filepath.IsAbs(path) {
		return path == ""
	}
	fi, err := os.Stat(path)
	return err != nil || fi.Mode().IsRegular()
}

// QuoteConfigValue quotes a value for a configuration file.
func QuoteConfigValue(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value) + `"`
}

// UntrustedFilterError reports a file that needs a filter which only an untrusted configuration names. The filter
// must not run, and without it the content would be wrong.
type UntrustedFilterError struct {
	Path   string
	Filter string // name of the filter
	File   string // file that names the filter; empty where "git config --local" finds it
}

func (e *UntrustedFilterError) Error() string {
	return fmt.Sprintf("%s: the command of filter.%s is configured where a sandbox without walls can write", e.Path, e.Filter)
}

// Commands that a filter runs when git reads a file of a worktree, and when it writes one.
var (
	cleanCommands  = []string{"clean", "process"}
	SmudgeCommands = []string{"smudge", "process"}
)

// UntrustedFilters lists the filters that only the repository's own configuration names.
func (r *Repo) UntrustedFilters() []string { return r.UntrustedFiltersWith(config.FilterCommands) }

// UntrustedFiltersWith lists those that have at least one of these commands.
func (r *Repo) UntrustedFiltersWith(programs []string) []string {
	var own, users []string
	for key, settings := range r.Config {
		name, is := config.FilterName(key)
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !is || last == "required" { // not a command
			continue
		}
		switch {
		case slices.ContainsFunc(settings, config.Setting.Trusted):
			users = append(users, name)
		case slices.Contains(programs, last):
			own = append(own, name)
		}
	}
	own = slices.DeleteFunc(own, func(name string) bool { return slices.Contains(users, name) })
	slices.Sort(own)
	return slices.Compact(own)
}

// HasUntrustedMergeDriver reports whether the repository's own configuration names a merge driver.
func (r *Repo) HasUntrustedMergeDriver() bool {
	for key, settings := range r.Config {
		if name, is := config.MergeDriverName(key); is && key == "merge."+name+".driver" && !slices.ContainsFunc(settings, config.Setting.Trusted) {
			return true
		}
	}
	return false
}

// CheckCleanFilters refuses files that git would read through an untrusted filter: without it git would record other
// content.
func (r *Repo) CheckCleanFilters(ctx context.Context, s WorktreeSpec, p RunOptions, names []string) error {
	if s.TrustConfig {
		return nil
	}
	return r.CheckFilters(ctx, p, r.UntrustedFiltersWith(cleanCommands), names)
}

// CheckSmudgeFilters refuses files of a tree that git would write through an untrusted filter, by the attributes in
// the tree itself. nil names means all files of the tree.
func (r *Repo) CheckSmudgeFilters(ctx context.Context, s WorktreeSpec, p RunOptions, tree string, names []string) error {
	own := r.UntrustedFiltersWith(SmudgeCommands)
	if s.TrustConfig || len(own) == 0 {
		return nil
	}
	index := filepath.Join(p.GitDir, "attributes")
	p.Env, p.Reading = append(slices.Clone(p.Env), "GIT_INDEX_FILE="+index), r.ReadingOf("looking for filters in "+tree)
	if _, err := r.RunWrite(ctx, p, "read-tree", tree); err != nil {
		return err
	}
	if names == nil {
		out, err := r.RunRead(ctx, p, "ls-files", "-z")
		if err != nil {
			return err
		}
		names = strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
	}
	return errors.Join(r.CheckFilters(ctx, p, own, names, "--cached"), durable.RemoveIfExists(index))
}

// CheckFilters refuses files to which one of these filters applies. options are those of check-attr.
func (r *Repo) CheckFilters(ctx context.Context, p RunOptions, filters, names []string, options ...string) error {
	found, err := r.FiltersOf(ctx, p, filters, names, options...)
	for _, name := range names {
		if filter := found[name]; filter != "" {
			return &UntrustedFilterError{Path: name, Filter: filter, File: r.filterConfigFile(filter)}
		}
	}
	return err
}

// FiltersOf returns the files to which one of these filters applies, with the filter. options are those of check-attr.
func (r *Repo) FiltersOf(ctx context.Context, p RunOptions, filters, names []string, options ...string) (map[string]string, error) {
	if len(filters) == 0 || len(names) == 0 {
		return nil, nil
	}
	p.Stdin = strings.Join(names, "\x00") + "\x00"
	out, err := r.RunRead(ctx, p, slices.Concat([]string{"check-attr"}, options, []string{"-z", "--stdin", "filter"})...)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	words := strings.Split(string(out), "\x00") // "<path>", "filter", "<value>"
	for i := 0; i+2 < len(words); i += 3 {
		if slices.Contains(filters, words[i+2]) {
			found[words[i]] = words[i+2]
		}
	}
	return found, nil
}

// CleanFilters lists the filters that run a command when git reads a file of a worktree.
func (r *Repo) CleanFilters() []string {
	var filters []string
	for key := range r.Config {
		if name, is := config.FilterName(key); is && slices.Contains(cleanCommands, key[strings.LastIndexByte(key, '.')+1:]) {
			filters = append(filters, name)
		}
	}
	return filters
}

// filterConfigFile returns the file that names a filter; empty where it is the one that "git config --local" reads.
func (r *Repo) filterConfigFile(filter string) string {
	for _, last := range config.FilterCommands {
		s, set := r.Config.Last("filter." + filter + "." + last)
		if file := r.originFile(s); set && !s.Trusted() && file != filepath.Join(r.CommonDir, "config") {
			return file
		}
	}
	return ""
}
