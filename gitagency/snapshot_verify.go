package gitagency

import "context"

// VerifyRequest says which snapshot to verify.
type VerifyRequest struct {
	Snapshot string            // required: a commit, in full or as a unique prefix, or "<invocation>/<number>"
	Progress func(objects int) // hears now and then how many were hashed; may be nil
}

// VerifiedSnapshot is what came of hashing all of a snapshot again.
type VerifiedSnapshot struct {
	Invocation string          `json:"invocation_id"`
	ID         string          `json:"snapshot"`
	Ref        string          `json:"ref"`
	Number     int             `json:"number"`
	Sound      bool            `json:"sound"`
	Objects    int             `json:"objects"` // that are what their names say
	Bytes      int64           `json:"bytes"`   // of their contents
	Damage     []DamagedObject `json:"damage"`
	CutOff     []string        `json:"cut_off"`  // commits of a shallow repository, of which the parents are not there
	Promised   int             `json:"promised"` // objects that only a remote has: it is a partial clone
	Stopped    bool            `json:"stopped"`  // there was so much damage that the rest was not looked at
}

// DamagedObject is an object that is missing, or not what its name says.
type DamagedObject struct {
	ID      string `json:"object"`
	Kind    string `json:"kind"`    // commit, tree or blob: what it has to be
	Path    string `json:"path"`    // one that it has in some tree; empty for a commit and its tree
	Problem string `json:"problem"` // missing, unreadable, altered or misplaced
	Detail  string `json:"detail"`
}

// Err is nil, or says that something is damaged.
func (v VerifiedSnapshot) Err() error {
	if v.Sound {
		return nil
	}
	return &DamagedError{
		Snapshot: Snapshot{Invocation: v.Invocation, Number: v.Number}.name(), Commit: v.ID, Objects: len(v.Damage), Stopped: v.Stopped,
	}
}

// VerifySnapshot hashes every object that a snapshot leads to again, in this process, and says which are not what
// their names say: its commit, its trees and files, and all of its history. That there is damage is not an error here;
// see Err of what it returns.
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
