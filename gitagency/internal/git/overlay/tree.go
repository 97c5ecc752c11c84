package overlay

// Tree is a worktree that exists only where an overlay is mounted: outside, there are the directories that it consists of. They
// are read with the rules of overlayfs, without a mount: a whiteout or an opaque directory hides what is below it.
type Tree struct {
	Upper  string   // directory that receives the writes; an agent wrote what is in it
	Lowers []string // directories below it, the top one first; they never change
	Index  string   // index of the files in Lowers as they appear together, with their stat data
	TreeID string   // id of the tree of these files
}

// Dirs returns all directories, the top one first.
func (t *Tree) Dirs() []string { return append([]string{t.Upper}, t.Lowers...) }
