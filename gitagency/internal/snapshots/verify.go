package snapshots

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// VerifyRequest selects the snapshot to verify.
type VerifyRequest struct {
	Snapshot string            // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
	Progress func(objects int) // called now and then with the number of hashed objects; may be nil
}

// VerifyResult reports the verification of a snapshot.
type VerifyResult struct {
	Invocation     string          `json:"invocation_id"`
	ID             string          `json:"snapshot"`
	Ref            string          `json:"ref"`
	Number         int             `json:"number"`
	Intact         bool            `json:"sound"`
	Objects        int             `json:"objects"` // number of objects whose content matches their id
	Bytes          int64           `json:"bytes"`   // total size of their contents
	Damage         []DamagedObject `json:"damage"`
	ShallowCommits []string        `json:"cut_off"`  // commits of a shallow repository whose parents are missing
	Promised       int             `json:"promised"` // number of objects that only a remote has (partial clone)
	StoppedEarly   bool            `json:"stopped"`  // too much damage was found; the rest was not checked
}

// DamagedObject is an object that is missing or does not match its id.
type DamagedObject struct {
	ID      string `json:"object"`
	Kind    string `json:"kind"`    // expected type: commit, tree or blob
	Path    string `json:"path"`    // one path of it in some tree; empty for a commit and its root tree
	Problem string `json:"problem"` // missing, unreadable, altered or misplaced
	Detail  string `json:"detail"`
}

// Verify hashes every object that is reachable from a snapshot in this process, its commit, trees, files and
// whole history, and reports those that do not match their ids. Damage is not an error here: Intact is false.
func Verify(ctx context.Context, r *core.Repository, req VerifyRequest) (VerifyResult, error) {
	snap, err := Find(ctx, r, r.Git, req.Snapshot)
	if err != nil {
		return VerifyResult{}, err
	}
	found, err := snapshot.Verify(ctx, r.Git, snap.ID, req.Progress)
	if err != nil {
		return VerifyResult{}, err
	}
	for _, said := range found.GitMessages {
		r.Warn("git says: %s", said)
	}
	v := VerifyResult{
		Invocation: snap.Invocation, ID: snap.ID, Ref: snap.Ref, Number: snap.Number,
		Intact: len(found.Damages) == 0, Objects: found.Objects, Bytes: found.Bytes, Damage: []DamagedObject{},
		ShallowCommits: append([]string{}, found.ShallowCommits...), Promised: found.PromisedObjects, StoppedEarly: found.Stopped,
	}
	for _, d := range found.Damages {
		v.Damage = append(v.Damage, DamagedObject{d.OID, d.Kind, d.Path, d.Problem, d.Detail})
	}
	return v, nil
}
