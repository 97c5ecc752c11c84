package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// mergeReading names what git reads in a merge, for the error of a limit.
const mergeReading = "merging it with the .gitattributes of the branch"

// mergeRunOptions makes the temporary git directory and worktree in which git merges, and returns the options for that git.
// It runs with the user's config and, of the repository's config, the merge drivers: they run if the repository is trusted,
// else they fail, so that files only they could merge become conflicts. The worktree holds nothing but the .gitattributes
// files of one tree, from which git reads attributes; without a worktree it would read them from its current directory.
func (m *Merger) mergeRunOptions(ctx context.Context, dir string, req Request) (git.RunOptions, error) {
	p := git.RunOptions{
		GitDir: filepath.Join(dir, "git"), WorkTree: filepath.Join(dir, "tree"),
		// merge.verbosity must not suppress the conflict messages that we parse.
		Config:  []string{"-c", "core.bare=false", "-c", "merge.verbosity=2"},
		Reading: m.Repo.ReadingOf(mergeReading),
	}
	for _, path := range []string{p.GitDir, p.WorkTree} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return p, err
		}
	}
	if err := git.InitBareAs(p.GitDir, m.format); err != nil {
		return p, err
	}
	if drivers := mergeDriverConfig(m.realRepo, m.Trusted); drivers != "" {
		p.Reading = m.Repo.CheckoutReading(mergeReading) // programs of the user have the same limits
		f, err := os.OpenFile(filepath.Join(p.GitDir, "config"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return p, err
		}
		_, err = f.WriteString(drivers)
		if err = errors.Join(err, f.Close()); err != nil {
			return p, err
		}
	}
	if err := git.CopySmallFile(filepath.Join(m.Dir, "shallow"), filepath.Join(p.GitDir, "shallow")); err != nil && !git.IsNotExist(err) {
		return p, err
	}
	if err := m.copyInfoAttributes(filepath.Join(p.GitDir, "info")); err != nil {
		return p, err
	}
	trees := []string{req.Ours, req.Theirs, req.Attributes}
	if req.Attributes == "" {
		trees[2] = req.Ours
	}
	var tops [3][]byte
	for i, name := range trees {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return p, err
		}
		tops[i] = object.RawOID(oid)
	}
	return p, m.writeAttributes(ctx, p.WorkTree, tops[0], tops[1], tops[2])
}

// copyInfoAttributes copies the repository's info/attributes. If the repository is not trusted, the copy can neither run a
// program nor make a file count as merged: files with a merge driver conflict if both sides changed them.
func (m *Merger) copyInfoAttributes(info string) error {
	from, to := filepath.Join(m.realRepo.CommonDir, "info", "attributes"), filepath.Join(info, "attributes")
	if _, err := os.Lstat(from); git.IsNotExist(err) {
		return nil
	}
	if err := os.Mkdir(info, 0o700); err != nil {
		return err
	}
	if err := git.CopySmallFile(from, to); err != nil || m.Trusted {
		if git.IsNotExist(err) {
			return nil
		}
		return err
	}
	data, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		text.WriteString(sanitizeAttributes(strings.TrimRight(line, "\r\n")))
	}
	return os.WriteFile(to, []byte(text.String()), 0o600)
}

// untrustedDriver names a merge driver that always fails.
const untrustedDriver = "git-agency-distrusted"

// sanitizeAttributes reduces a line of an attributes file to the attributes that decide whether a file is merged, and
// replaces its merge driver by one that fails.
func sanitizeAttributes(line string) string {
	line = strings.TrimLeft(line, " \t")
	end := strings.IndexAny(line, " \t")
	if strings.HasPrefix(line, `"`) {
		end = quoteEnd(line)
	}
	if end < 0 || line[0] == '#' {
		return ""
	}
	kept := line[:end]
	for _, word := range strings.Fields(line[end:]) {
		switch name, _, valued := strings.Cut(word, "="); {
		case name == "merge" && valued:
			kept += " merge=" + untrustedDriver
		case !valued && word != "merge": // such as binary; a plain "merge" would turn text merge on, so it is dropped
			kept += " " + word
		}
	}
	return kept + "\n"
}

// quoteEnd returns the index after the closing quote of a quoted word; -1: none.
func quoteEnd(line string) int {
	for i := 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// mergeDriverConfig returns a config file with the repository's merge drivers; unless trusted, they fail. A driver that the
// user has configured keeps the user's settings, even if the repository configures it too.
func mergeDriverConfig(r *git.Repo, trusted bool) string {
	names := map[string]bool{}
	for key := range r.Config {
		if name, is := config.MergeDriverName(key); is {
			names[name] = true
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if strings.Contains(name, "\n") { // no attribute can name it
			continue
		}
		key := func(last string) []config.Setting { return r.Config["merge."+name+"."+last] }
		users := slices.ContainsFunc(key("driver"), config.Setting.Trusted)
		own := len(key("driver")) > 0 && !users
		if !users && !own {
			continue
		}
		fmt.Fprintf(&text, "[merge %s]\n", git.QuoteSubsection(name))
		if own && !trusted {
			text.WriteString("\tdriver = false\n")
			continue
		}
		for _, last := range config.MergeDriverKeys {
			for _, s := range slices.Backward(key(last)) {
				if (s.Trusted() || own) && !s.NoValue {
					fmt.Fprintf(&text, "\t%s = %s\n", last, git.QuoteConfigValue(s.Value))
					break
				}
			}
		}
	}
	if !trusted {
		fmt.Fprintf(&text, "[merge %s]\n\tdriver = false\n", git.QuoteSubsection(untrustedDriver))
	}
	return text.String()
}

// writeAttributes writes the .gitattributes files of the tree from into dir, as far as they can affect a merge of ours and
// theirs: only those in directories that differ, since every merged file, renamed or not, lies in one.
func (m *Merger) writeAttributes(ctx context.Context, dir string, ours, theirs, from []byte) error {
	if from == nil || string(ours) == string(theirs) {
		return nil
	}
	has, err := m.readTree(ctx, from)
	if err != nil {
		return err
	}
	if it, there := has.Find(".gitattributes"); there && (it.Mode == object.ModeFile || it.Mode == object.ModeExecutable) { // git follows no symlink
		data, err := m.ReadContents(ctx, object.HexOID(it.OID), "blob")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), data, 0o600); err != nil {
			return err
		}
	}
	below := map[string]*[2][]byte{}
	for i, side := range [][]byte{ours, theirs} {
		if side == nil {
			continue
		}
		t, err := m.readTree(ctx, side)
		if err != nil {
			return err
		}
		for _, it := range t.Entries {
			if it.Mode != object.ModeTree {
				continue
			}
			if below[string(it.Name)] == nil {
				below[string(it.Name)] = new([2][]byte)
			}
			below[string(it.Name)][i] = it.OID
		}
	}
	for name, sides := range below {
		it, there := has.Find(name)
		if !there || it.Mode != object.ModeTree || string(sides[0]) == string(sides[1]) || index.PathProblem([]byte(name), 0, false) != "" {
			continue
		}
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		if err := m.writeAttributes(ctx, sub, sides[0], sides[1], it.OID); err != nil {
			return err
		}
	}
	return nil
}
