package pathland

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
)

// journal describes a landing that is in progress or was interrupted. There is at most one, because a landing holds the lock.
type journal struct {
	SchemaVersion string    `json:"schema_version"`
	InvocationID  string    `json:"invocation_id"`
	Phase         phase     `json:"phase"`
	Dirs          []string  `json:"dirs"`    // directories, without symbolic links
	Staging       string    `json:"staging"` // name of a directory in each of them that changes, which holds the new files, and later the old ones
	Moves         []moveOp  `json:"moves,omitempty"`
	Snapshot      string    `json:"snapshot"` // commit of the work that lands
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
}

// phase says how far a landing has come.
type phase string

const (
	staging phase = "staging" // only the staging directories were written
	moving  phase = "moving"  // some of the moves may be done: they are undone
	done    phase = "done"    // all moves are done: the rest is completed
)

// moveOp is one rename between a directory and its staging directory. All changes of a landing are such renames, which can be undone.
type moveOp struct {
	Kind  kind         `json:"kind"`
	Dir   int          `json:"dir"`  // index in Dirs
	Path  quotedPath   `json:"path"` // in the directory
	Slot  string       `json:"slot"` // name in the staging directory
	IsDir bool         `json:"is_dir,omitempty"`
	Inode uint64       `json:"inode,omitempty"` // of the file or directory in the staging directory before the move; 0 with take
	Old   pathset.Leaf `json:"old,omitzero"`    // file that take and swap move to the staging directory
	New   pathset.Leaf `json:"new,omitzero"`    // file that put and swap move to the directory
}

// changes reports whether a directory, an index in Dirs, changes.
func (j *journal) changes(dir int) bool {
	return slices.ContainsFunc(j.Moves, func(m moveOp) bool { return m.Dir == dir })
}

// kind is the direction of a moveOp.
type kind string

const (
	take kind = "take" // from the directory to the staging directory
	put  kind = "put"  // from the staging directory to the directory
	swap kind = "swap" // both at once
)

// quotedPath is a path that may not be valid UTF-8. In JSON it is quoted as a string of Go.
type quotedPath string

// MarshalJSON quotes the path.
func (p quotedPath) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.QuoteToASCII(string(p)))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *quotedPath) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	path, err := strconv.Unquote(text)
	*p = quotedPath(path)
	return err
}

// maxJournal bounds a journal that is read.
const maxJournal = 1 << 30

func journalPath(r *core.Repository) string {
	return filepath.Join(r.Store.RepoDir(r.ID), "paths-landing.json")
}

func (j *journal) write(r *core.Repository) error {
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(journalPath(r), append(data, '\n'), 0o600)
}

// readJournal returns the journal of an interrupted landing; nil if there is none.
func readJournal(r *core.Repository) (*journal, error) {
	data, err := durable.ReadFile(journalPath(r), maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(data, j); err != nil {
		return nil, fmt.Errorf("%s: %w", journalPath(r), err)
	}
	for _, m := range j.Moves {
		if m.Dir < 0 || m.Dir >= len(j.Dirs) || !filepath.IsLocal(string(m.Path)) || filepath.Base(m.Slot) != m.Slot {
			return nil, fmt.Errorf("%s: invalid move of %q", journalPath(r), string(m.Path))
		}
	}
	if filepath.Base(j.Staging) != j.Staging || j.Staging == "." || j.Staging == ".." {
		return nil, fmt.Errorf("%s: invalid staging directory %q", journalPath(r), j.Staging)
	}
	return j, nil
}

func removeJournal(r *core.Repository) error { return durable.Remove(journalPath(r)) }
