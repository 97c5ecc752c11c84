package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mergingPlace is where a git merges. It has the settings of the user; of those of the repository the merge drivers, which
// run when it is trusted, and else fail, so that nobody takes for merged what only they could have merged. Attributes are
// those of one tree: in a worktree git goes by the files that are there, and that is all there is in this one. Without one
// it would look around where it stands.
func (m *Merger) mergingPlace(ctx context.Context, dir string, what Merging) (place, error) {
	p := place{
		gitDir: filepath.Join(dir, "git"), tree: filepath.Join(dir, "tree"),
		// Of what there is to be said nothing may be left out.
		config: []string{"-c", "core.bare=false", "-c", "merge.verbosity=2"},
	}
	for _, path := range []string{p.gitDir, p.tree} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return p, err
		}
	}
	if err := makeBare(p.gitDir, m.format); err != nil {
		return p, err
	}
	if drivers := m.real.mergeDrivers(m.Trusted); drivers != "" {
		f, err := os.OpenFile(filepath.Join(p.gitDir, "config"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return p, err
		}
		_, err = f.WriteString(drivers)
		if err = errors.Join(err, f.Close()); err != nil {
			return p, err
		}
	}
	if err := copyRules(filepath.Join(m.dir, "shallow"), filepath.Join(p.gitDir, "shallow")); err != nil && !nothingThere(err) {
		return p, err
	}
	if err := m.copyAttributes(filepath.Join(p.gitDir, "info")); err != nil {
		return p, err
	}
	trees := []string{what.Ours, what.Theirs, what.Attributes}
	if what.Attributes == "" {
		trees[2] = what.Ours
	}
	var tops [3][]byte
	for i, name := range trees {
		oid, err := m.treeOf(ctx, name)
		if err != nil {
			return p, err
		}
		tops[i] = rawID(oid)
	}
	return p, m.plantAttributes(ctx, p.tree, tops[0], tops[1], tops[2])
}

// copyAttributes writes what the repository's own file says of how to merge. Where that is not trusted, it can make nothing
// run and nothing pass for merged: what it speaks of is in conflict when both sides changed it.
func (m *Merger) copyAttributes(info string) error {
	from, to := filepath.Join(m.real.CommonDir, "info", "attributes"), filepath.Join(info, "attributes")
	if _, err := os.Lstat(from); nothingThere(err) {
		return nil
	}
	if err := os.Mkdir(info, 0o700); err != nil {
		return err
	}
	if err := copyRules(from, to); err != nil || m.Trusted {
		if nothingThere(err) {
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
		text.WriteString(distrustfully(strings.TrimRight(line, "\r\n")))
	}
	return os.WriteFile(to, []byte(text.String()), 0o600)
}

// distrusted is a merge driver that fails.
const distrusted = "git-agency-distrusted"

// distrustfully is a line of attributes with nothing left but whether a file is merged.
func distrustfully(line string) string {
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
			kept += " merge=" + distrusted
		case !valued && word != "merge": // such as binary; that it is text, whatever else is said of it, is not taken over
			kept += " " + word
		}
	}
	return kept + "\n"
}

// quoteEnd is where a word ends that is in quotes.
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

// mergeDrivers are the settings of merge drivers that hold for the repository. One that the user has is the user's, also
// where the repository would have another.
func (r *Repo) mergeDrivers(trusted bool) string {
	names := map[string]bool{}
	for key := range r.Config {
		if name, is := driverOf(key); is {
			names[name] = true
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if strings.Contains(name, "\n") { // which no attribute could have
			continue
		}
		key := func(last string) []Setting { return r.Config["merge."+name+"."+last] }
		users := slices.ContainsFunc(key("driver"), Setting.Trusted)
		own := len(key("driver")) > 0 && !users
		if !users && !own {
			continue
		}
		fmt.Fprintf(&text, "[merge %s]\n", quotedName(name))
		if own && !trusted {
			text.WriteString("\tdriver = false\n")
			continue
		}
		for _, last := range driverKeys {
			for _, s := range slices.Backward(key(last)) {
				if (s.Trusted() || own) && !s.Bare {
					fmt.Fprintf(&text, "\t%s = %s\n", last, quoted(s.Value))
					break
				}
			}
		}
	}
	if !trusted {
		fmt.Fprintf(&text, "[merge %s]\n\tdriver = false\n", quotedName(distrusted))
	}
	return text.String()
}

// driverKeys are the settings of a merge driver.
var driverKeys = []string{"driver", "name", "recursive"}

// driverOf is the driver that a setting is about.
func driverOf(key string) (name string, is bool) {
	name, is = strings.CutPrefix(key, "merge.")
	end := strings.LastIndexByte(name, '.')
	if !is || end < 0 || !slices.Contains(driverKeys, name[end+1:]) {
		return "", false
	}
	return name[:end], true
}

// plantAttributes writes the attributes of a tree into a directory, as far as they can matter for what two others do not
// have in common: whatever is merged, and wherever it is put, lies in a directory in which they differ.
func (m *Merger) plantAttributes(ctx context.Context, dir string, ours, theirs, from []byte) error {
	if from == nil || string(ours) == string(theirs) {
		return nil
	}
	has, err := m.twig(ctx, from)
	if err != nil {
		return err
	}
	if it, there := has.find(".gitattributes"); there && (it.mode == modeFile || it.mode == modeProgram) { // git follows no link here
		data, err := m.contents(ctx, hexID(it.oid), "blob")
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
		t, err := m.twig(ctx, side)
		if err != nil {
			return err
		}
		for _, it := range t.items {
			if it.mode != modeTree {
				continue
			}
			if below[string(it.name)] == nil {
				below[string(it.name)] = new([2][]byte)
			}
			below[string(it.name)][i] = it.oid
		}
	}
	for name, sides := range below {
		it, there := has.find(name)
		if !there || it.mode != modeTree || string(sides[0]) == string(sides[1]) || refusedName([]byte(name), 0, false) != "" {
			continue
		}
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		if err := m.plantAttributes(ctx, sub, sides[0], sides[1], it.oid); err != nil {
			return err
		}
	}
	return nil
}
