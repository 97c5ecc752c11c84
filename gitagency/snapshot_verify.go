package gitagency

import "context"

// VerifySnapshotRequest selects the snapshot to verify.
type VerifyRequest struct {
	Snapshot string            // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
	Progress func(objects int) // called now and then with the number of hashed objects; may be nil
}

// VerifySnapshotResult reports the verification of a snapshot.
type VerifiedSnapshot struct {
	Invocation string          `json:"invocation_id"`
	ID         string          `json:"snapshot"`
	Ref        string          `json:"ref"`
	Number     int             `json:"number"`
	Sound      bool            `json:"sound"`
	Objects    int             `json:"objects"` // number of objects whose content matches their id
	Bytes      int64           `json:"bytes"`   // total size of their contents
	Damage     []DamagedObject `json:"damage"`
	CutOff     []string        `json:"cut_off"`  // commits of a shallow repository whose parents are missing
	Promised   int             `json:"promised"` // number of objects that only a remote has (partial clone)
	Stopped    bool            `json:"stopped"`  // too much damage was found; the rest was not checked
}

// DamagedObject is an object that is missing or does not match its id.
type DamagedObject struct {
	ID      string `json:"object"`
	Kind    string `json:"kind"`    // expected type: commit, tree or blob
	Path    string `json:"path"`    // one path of it in some tree; empty for a commit and its root tree
	Problem string `json:"problem"` // missing, unreadable, altered or misplaced
	Detail  string `json:"detail"`
}

// Err returns a *DamagedError if the snapshot is damaged, else nil.
func (v VerifiedSnapshot) Err() error {
	if v.Sound {
		return nil
	}
	return &DamagedError{
		Snapshot: Snapshot{Invocation: v.Invocation, Number: v.Number}.name(), Commit: v.ID, Objects: len(v.Damage), Stopped: v.Stopped,
	}
}

// VerifySnapshot hashes every object that is reachable from a snapshot in this process, its commit, trees, files and
// whole history, and reports those that do not match their ids. Damage is not an error here; see Err of the result.
func (r *Repository) VerifySnapshot(ctx context.Context, req VerifyRequest) (VerifiedSnapshot, error) {
	snapshot, err := r.snapshotNamed(ctx, r.git, req.Snapshot)
	if err != nil {
		return VerifiedSnapshot{}, err
	}
	found, err := r.git.Verify(ctx, snapshot.ID, req.Progress)
	if err != nil {
		return VerifiedSnapshot{}, err
	}
	for _, said := range found.Said {
		r.warn("git says: %s", said)
	}
	v := VerifiedSnapshot{
		Invocation: snapshot.Invocation, ID: snapshot.ID, Ref: snapshot.Ref, Number: snapshot.Number,
		Sound: len(found.Damages) == 0, Objects: found.Objects, Bytes: found.Bytes, Damage: []DamagedObject{},
		CutOff: append([]string{}, found.CutOff...), Promised: found.Promised, Stopped: found.Stopped,
	}
	for _, d := range found.Damages {
		v.Damage = append(v.Damage, DamagedObject{d.OID, d.Kind, d.Path, d.Problem, d.Detail})
	}
	return v, nil
}
