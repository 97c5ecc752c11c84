package format

import (
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// Pruned returns a line for people on a record or leftover: what prune did with it, and why.
func Pruned(p gitagency.PruneResult) string {
	thing := p.Kind + " " + p.ID
	switch {
	case p.Kind == "trash" && p.TrashRef == "":
		thing = "snapshots of " + p.ID
	case p.Kind == "trash":
		thing = p.TrashRef
	case p.Kind == "leftover":
		thing = p.Path
	}
	var notes []string
	if p.Name != "" && p.Kind == "invocation" { // the reason names a worktree
		notes = append(notes, p.Name)
	}
	if p.TrashCommit != "" {
		notes = append(notes, "was "+ShortOID(p.TrashCommit))
	}
	if len(notes) > 0 {
		thing += " (" + strings.Join(notes, ", ") + ")"
	}
	thing += snapshotsSuffix(p) + archiveSuffix(p)
	return fmt.Sprintf("%s %s: %s", actionText(p), thing, p.Reason)
}

// snapshotsSuffix names the last snapshot that is removed with a record. Each snapshot is an ancestor of the next, so
// that it is enough to recover them all.
func snapshotsSuffix(p gitagency.PruneResult) string {
	if len(p.Snapshots) == 0 || p.Action != gitagency.PruneRemove {
		return ""
	}
	last := ShortOID(p.Snapshots[len(p.Snapshots)-1].Commit)
	switch {
	case p.Kind == "trash" && p.TrashRef == "":
		return " (the last was " + last + ")"
	case len(p.Snapshots) == 1:
		return " with its snapshot (" + last + ")"
	}
	return fmt.Sprintf(" with its %d snapshots (the last was %s)", len(p.Snapshots), last)
}

// archiveSuffix names the archive that is removed with a record.
func archiveSuffix(p gitagency.PruneResult) string {
	if p.TrashArchive == "" || p.Action != gitagency.PruneRemove {
		return ""
	}
	size := gitagency.FormatSize(p.ArchiveSize)
	if len(p.Snapshots) > 0 {
		return " and its archive (" + size + ")"
	}
	return " with its archive (" + size + ")"
}

// PrunedArchives returns a line for people on the archives that prune removed, or would remove in a dry run; empty if there
// are none.
func PrunedArchives(pruned []gitagency.PruneResult) string {
	count, size, dryRun := 0, int64(0), false
	for _, p := range pruned {
		if p.TrashArchive != "" && p.Action == gitagency.PruneRemove {
			count, size, dryRun = count+1, size+p.ArchiveSize, p.DryRun
		}
	}
	archives := Count(count, "archive", "archives") + " (" + gitagency.FormatSize(size) + ")"
	switch {
	case count == 0:
		return ""
	case dryRun:
		return "would remove " + archives
	}
	return "removed " + archives + ", which cannot be restored"
}

// actionText words what was done with a record, or would be done in a dry run.
func actionText(p gitagency.PruneResult) string {
	word := map[string]string{gitagency.PruneRemove: "remove", gitagency.PruneClean: "clean up"}[p.Action]
	switch {
	case word == "":
		return "kept"
	case p.DryRun:
		return "would " + word
	case p.Action == gitagency.PruneClean:
		return "cleaned up"
	}
	return "removed"
}
