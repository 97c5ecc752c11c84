package setup

import "fmt"

// Describe returns a line for people on each file and directory that was changed, or would be in a dry run, and on each
// file that was left alone.
func (r Result) Describe() (done, left []string) {
	say := func(did, would, path string) {
		if r.DryRun {
			did = would
		}
		done = append(done, did+" "+path)
	}
	if !r.Undo {
		for _, dir := range r.Directories {
			say("made", "would make", dir)
		}
	}
	for _, f := range r.Files {
		switch f.Action {
		case FileWritten:
			say("wrote", "would write", f.Path)
		case FileReplaced:
			say("replaced", "would replace", f.Path)
		case FileRemoved:
			say("removed", "would remove", f.Path)
		case FileLeft:
			left = append(left, fmt.Sprintf("left %s alone: %s", f.Path, f.Why))
		case FileUnchanged, FileAbsent:
		}
	}
	if r.Undo {
		for _, dir := range r.Directories {
			say("removed", "would remove", dir)
		}
	}
	if len(done) == 0 {
		done = []string{"nothing to do below " + r.Prefix}
	}
	return done, left
}
