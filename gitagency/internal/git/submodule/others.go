package submodule

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Others lists what is below a directory of repositories of submodules, which may not exist, besides those with the given
// names. It does not look into what it lists: an agent may have written it.
func Others(modules string, names []string) (others []string, err error) {
	return othersBelow(modules, "", names)
}

func othersBelow(modules, dir string, names []string) (others []string, err error) {
	entries, err := os.ReadDir(filepath.Join(modules, dir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case slices.Contains(names, name):
		case e.IsDir() && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name+"/") }):
			below, err := othersBelow(modules, name, names)
			if err != nil {
				return nil, err
			}
			others = append(others, below...)
		default:
			others = append(others, name)
		}
	}
	return others, nil
}
