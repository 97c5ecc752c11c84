package walls

import (
	"fmt"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// markSandbox marks the paths that every sandbox consists of.
func (d *planner) markSandbox() error {
	of := Writable
	if d.TreeLayers.Upper != "" {
		of = Overlaid
	}
	d.markPath(d.Tree, of, false, Cause{Reason: ReasonSandbox})
	d.markGitDir()
	d.markPath(d.DataDir, Hidden, false, Cause{Reason: ReasonDataDir})
	if !guard.IsOrContains(d.DataDir, d.OverlayDir) { // a process that could write there would change the upper directories of all overlays
		d.markPath(d.OverlayDir, Hidden, false, Cause{Reason: ReasonDataDir})
	}
	for _, path := range d.RecordFiles { // listed also if missing, so that plans made before and after they are written do not differ
		d.marks[path] = pathMark{visibility: KeptVisible, needed: true, cause: Cause{ReasonRecord, path}}
	}
	// A protected directory may be mounted inside the sandbox's tree.
	for _, point := range d.files.Mounts(d.Tree) {
		if other, rel := d.findOverlap(point, append([]string{d.GitDir}, d.IntegrationTrees...)); rel != guard.Disjoint {
			return &RefusedError{Wall: readOnlyRoot, Why: fmt.Sprintf("%s, which is mounted in the sandbox, %s %s", point, rel, other), Remedy: "unmount it"}
		}
	}
	return nil
}

// markGitDir marks the common git directory. A sandbox with a git directory of its own sees nothing of it but the objects of git and
// of Git LFS, which it borrows.
func (d *planner) markGitDir() {
	if d.OwnGitDir == "" {
		d.markPath(d.GitDir, Overlaid, false, Cause{Reason: ReasonGitDir})
		return
	}
	d.markPath(d.GitDir, Hidden, false, Cause{Reason: ReasonRepository})
	for _, name := range []string{"objects", "lfs"} {
		if e := d.lookup(filepath.Join(d.GitDir, name)); e.Kind == Directory {
			d.marks[e.Path] = pathMark{visibility: KeptVisible, needed: true, cause: Cause{Reason: ReasonRepository}}
		}
	}
}

// fixedPaths returns the paths in the tree that no command can change. A git directory of its own is a mount point, which stays
// where it is.
func (r Request) fixedPaths() []string {
	if r.OwnGitDir != "" {
		return []string{}
	}
	return []string{r.GitFile}
}

// boundPaths returns the mount of the sandbox's own git directory, that of the mailbox and that of the marker in it. A file that a
// command writes there reaches neither the tree outside nor another sandbox.
func (r Request) boundPaths() (mounts []BindMount) {
	if r.OwnGitDir != "" {
		mounts = append(mounts, BindMount{Path: r.GitFile, Source: r.OwnGitDir})
	}
	if r.MarkerFile == "" {
		return mounts
	}
	return append(mounts, BindMount{Path: r.mailboxPath(), Source: r.Mailbox}, BindMount{Path: r.MarkerFile, Source: r.MarkerFile, ReadOnly: true})
}

// mailboxPath returns the path at which commands see the mailbox.
func (r Request) mailboxPath() string { return filepath.Dir(r.MarkerFile) }
