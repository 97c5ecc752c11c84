package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// A repository's own settings name programs: filters, above all, but also what fetches objects, and what a filter of the
// user's own starts in turn. Who works in a worktree without walls can write them. So a git that reads or writes files of
// such a worktree is not given them: its git directory has a configuration that we write, in which there is nothing but
// what says how files are to be understood. What cannot be named cannot run, also when it is set a moment from now.

// carried are the settings of the repository that such a git goes by. None of them names a program.
var carried = []string{
	"core.attributesfile", "core.autocrlf", "core.bigfilethreshold", "core.checkroundtripencoding", "core.checkstat", "core.eol",
	"core.excludesfile", "core.filemode", "core.ignorecase", "core.precomposeunicode", "core.sharedrepository", "core.symlinks", "core.trustctime",
}

const (
	objectFormat = "extensions.objectformat"
	lfsStorage   = "lfs.storage"
)

// fillDistrustful makes a git directory that has the objects of the repository, and its rules for what is ignored and how
// files are to be understood, as they are now. What is returned has to be in the environment of a git that works there.
func (r *Repo) fillDistrustful(head, dir string) ([]string, error) {
	for _, name := range []string{"refs", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"exclude", "attributes"} {
		err := copyRules(filepath.Join(r.CommonDir, "info", name), filepath.Join(dir, "info", name))
		if err != nil && !nothingThere(err) {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(r.harmless(head)), 0o666); err != nil {
		return nil, err
	}
	if r.rehearsal != "" {
		return nil, nil // which says where objects are
	}
	return []string{"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.CommonDir, "objects")}, nil
}

// copyRules copies a small file, and waits for no pipe.
func copyRules(from, to string) error {
	const most = 64 << 20
	f, fi, err := openRegular(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi.Size() > most {
		return fmt.Errorf("%s is %d bytes long", from, fi.Size())
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o666)
}

// harmless is a configuration of nothing but what is carried.
func (r *Repo) harmless(head string) string {
	var text strings.Builder
	text.WriteString("[core]\n\tbare = false\n\trepositoryformatversion = 1\n")
	for _, key := range carried {
		for _, s := range r.Config[key] {
			if s.Trusted() || !r.mayCarry(key, s) {
				continue // the user's own are there anyway
			}
			fmt.Fprintf(&text, "\t%s = %s\n", strings.TrimPrefix(key, "core."), quoted(s.Value))
		}
	}
	if FormatOf(head) == SHA256 || head == "" && r.Config.Value(objectFormat) == string(SHA256) {
		text.WriteString("[extensions]\n\tobjectFormat = sha256\n")
	}
	// What the user's LFS makes of a file is kept where it always is, and not in here.
	if s, set := r.Config.Last(lfsStorage); !set || !s.Trusted() {
		fmt.Fprintf(&text, "[lfs]\n\tstorage = %s\n", quoted(filepath.Join(r.CommonDir, "lfs")))
	}
	// One that was not to be needed, and is: git refuses it. Without as much as an empty program it would look for none.
	for _, name := range r.ownFilters(cleans) {
		// In git's eyes one that works only one way, and is required, fails the other way.
		if slices.Contains(r.ownFilters(smudges), name) && !strings.Contains(name, "\n") { // which no attribute could have
			fmt.Fprintf(&text, "[filter %s]\n\tclean = \"\"\n\tsmudge = \"\"\n\trequired = true\n", quotedName(name))
		}
	}
	return text.String()
}

// quotedName writes the middle of a key so that git reads it as it is.
func quotedName(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// mayCarry reports whether a setting that is carried can be taken from anybody. Git would wait for a pipe for ever; and of
// a path that begins nowhere it is not easy to say where it leads.
func (r *Repo) mayCarry(key string, s Setting) bool {
	if key != "core.excludesfile" && key != "core.attributesfile" {
		return true
	}
	path := s.Value
	if rest, his := strings.CutPrefix(path, "~/"); his {
		path = filepath.Join(proc.Variable(r.env, "HOME"), rest)
	}
	if !filepath.IsAbs(path) {
		return path == ""
	}
	fi, err := os.Stat(path)
	return err != nil || fi.Mode().IsRegular()
}

// quoted writes a value so that git reads it as it is.
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value) + `"`
}

// DistrustedError is a file that could not be read or written as git does it without running what somebody who is not
// trusted may have configured.
type DistrustedError struct {
	Path   string
	Filter string // that only the repository's own configuration has
	File   string // that has it, where "git config --local" does not know that one; empty where it does
}

func (e *DistrustedError) Error() string {
	return fmt.Sprintf("%s: what filter.%s would run stands where a sandbox without walls can write", e.Path, e.Filter)
}

// What a filter runs when a file is read, and when it is written.
var (
	cleans  = []string{"clean", "process"}
	smudges = []string{"smudge", "process"}
)

// OwnFilters lists the filters that only the repository's own settings name.
func (r *Repo) OwnFilters() []string { return r.ownFilters(drivers) }

// ownFilters are those of them that have one of these programs.
func (r *Repo) ownFilters(programs []string) []string {
	var own, users []string
	for key, settings := range r.Config {
		name, is := filterOf(key)
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !is || last == "required" { // which names no program
			continue
		}
		switch {
		case slices.ContainsFunc(settings, Setting.Trusted):
			users = append(users, name)
		case slices.Contains(programs, last):
			own = append(own, name)
		}
	}
	own = slices.DeleteFunc(own, func(name string) bool { return slices.Contains(users, name) })
	slices.Sort(own)
	return slices.Compact(own)
}

// OwnMergeDrivers reports whether the repository's own settings name a program that merges.
func (r *Repo) OwnMergeDrivers() bool {
	for key, settings := range r.Config {
		if name, is := driverOf(key); is && key == "merge."+name+".driver" && !slices.ContainsFunc(settings, Setting.Trusted) {
			return true
		}
	}
	return false
}

// mayRead refuses files that git would read through a filter which is not to run: what is recorded would be something else
// than git makes of it.
func (r *Repo) mayRead(ctx context.Context, s Subject, p place, names []string) error {
	if s.Trusted {
		return nil
	}
	return r.unfiltered(ctx, p, r.ownFilters(cleans), names)
}

// mayWrite is the same of files of a tree that are to be written, by the attributes that it has itself. No names are all
// there are.
func (r *Repo) mayWrite(ctx context.Context, s Subject, p place, tree string, names []string) error {
	own := r.ownFilters(smudges)
	if s.Trusted || len(own) == 0 {
		return nil
	}
	index := filepath.Join(p.gitDir, "attributes")
	p.env = append(slices.Clone(p.env), "GIT_INDEX_FILE="+index)
	if _, err := r.change(ctx, p, "read-tree", tree); err != nil {
		return err
	}
	if names == nil {
		out, err := r.read(ctx, p, "ls-files", "-z")
		if err != nil {
			return err
		}
		names = strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
	}
	return errors.Join(r.unfiltered(ctx, p, own, names, "--cached"), removeIfThere(index))
}

// unfiltered refuses files to which one of these filters applies. options are those of check-attr.
func (r *Repo) unfiltered(ctx context.Context, p place, filters, names []string, options ...string) error {
	if len(filters) == 0 || len(names) == 0 {
		return nil
	}
	p.stdin = strings.Join(names, "\x00") + "\x00"
	out, err := r.read(ctx, p, slices.Concat([]string{"check-attr"}, options, []string{"-z", "--stdin", "filter"})...)
	if err != nil {
		return err
	}
	words := strings.Split(string(out), "\x00") // "<path>", "filter", "<value>"
	for i := 0; i+2 < len(words); i += 3 {
		if slices.Contains(filters, words[i+2]) {
			return &DistrustedError{Path: words[i], Filter: words[i+2], File: r.elsewhere(words[i+2])}
		}
	}
	return nil
}

// elsewhere is the file in which a filter is set, where that is not the one that "git config --local" knows.
func (r *Repo) elsewhere(filter string) string {
	for _, last := range drivers {
		s, set := r.Config.Last("filter." + filter + "." + last)
		if file := r.fileOf(s); set && !s.Trusted() && file != filepath.Join(r.CommonDir, "config") {
			return file
		}
	}
	return ""
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
