package gitagency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// sweep is one turn of the radar.
//
// Whatever was found out the last time is remembered: what a sandbox looked like, and facts about commits and trees. When
// nothing has changed, all that is left to do is to notice that, for which every file of every sandbox has to be looked at,
// if only at its times. It is not enough to look where somebody had touched something the last time: two may since have
// written to the same file, which nobody had touched before.
type sweep struct {
	r        *Repository
	worktree Worktree
	boxes    []*box
	tip      git.At // of the integration branch
	ground   git.Ground
	merger   *git.Merger
	was, now facts
	written  []byte // the facts as they lie on disk
}

// box is a sandbox that is swept over.
type box struct {
	inv     Invocation
	site    *site
	subject git.Subject
	head    git.At
	tree    string // what is in it; empty when that is not known
	read    bool   // it was read just now, so that the merger has the tree
	err     error  // why it cannot be looked at
}

func (r *Repository) newSweep(ctx context.Context, wt Worktree, invocations []Invocation) (_ *sweep, err error) {
	name, err := r.integrationName(ctx, wt)
	if err != nil {
		return nil, err
	}
	s := &sweep{r: r, worktree: wt, ground: r.git.Ground()}
	// Where not everybody had walls, the repository's own merge drivers do not run.
	trusted := r.allHadWalls()
	s.now = noFacts(fmt.Sprint(s.ground, trusted))
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, inv := range invocations {
		if inv.WorktreeID == wt.ID && inv.Verifies == "" && (inv.Broken || !ended(inv.entry.Record)) {
			s.boxes = append(s.boxes, &box{inv: inv})
		}
	}
	s.written = r.store.ReadRadar(r.ID, s.factsName())
	s.was = parseFacts(s.written, s.now.Ground)
	parallel(s.boxes, func(b *box) { b.err = s.enter(ctx, b) })
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	recognised := proc.Meanwhile(func() (struct{}, error) {
		parallel(s.able(), func(b *box) {
			b.tree = r.git.Recognise(b.subject, s.ground, r.store.ReadRadar(r.ID, likenessName(b.inv.ID)))
		})
		return struct{}{}, nil
	})
	subjects := []git.Subject{}
	for _, b := range s.boxes {
		subjects = append(subjects, b.subject)
	}
	heads, tip, err := r.git.Whereabouts(ctx, subjects, name)
	_, _ = recognised()
	if err != nil {
		return nil, err
	}
	if s.tip = tip; tip.Commit == "" {
		return nil, &NoCommitError{Name: short(name)}
	}
	for i, b := range s.boxes {
		if b.head = heads[i]; b.err == nil {
			b.err = b.head.Err
		}
		if b.err == nil && b.head.Commit == "" {
			b.err = &NoCommitError{Name: "HEAD of " + b.inv.ID}
		}
	}
	if s.merger, err = r.git.Merger(tip.Commit); err == nil {
		s.merger.Trusted = trusted
	}
	return s, err
}

// enter makes sure that a sandbox stays, and finds what it is called.
func (s *sweep) enter(ctx context.Context, b *box) (err error) {
	b.subject = git.Subject{Name: b.inv.ID, Tree: s.r.sandboxOf(b.inv.ID).tree, Branch: sandboxRef(b.inv.ID), Base: b.inv.BaseCommit}
	if b.site, err = s.r.visit(ctx, b.inv); err != nil {
		return err
	}
	b.subject.Secrets = s.r.SecretPatterns()
	b.subject, err = s.r.capturable(b.subject)
	return err
}

func (s *sweep) close() error {
	var errs []error
	for _, b := range s.boxes {
		if b.site != nil {
			errs = append(errs, b.site.close())
		}
	}
	if s.merger != nil {
		errs = append(errs, s.merger.Close())
	}
	return errors.Join(errs...)
}

// run finds out all there is to know. No sandbox is read twice.
func (s *sweep) run(ctx context.Context) error {
	unread := slices.DeleteFunc(s.able(), func(b *box) bool { return b.tree != "" })
	for {
		parallel(unread, func(b *box) { s.look(ctx, b) })
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.findBases(ctx); err != nil {
			return err
		}
		var err error
		if unread, err = s.findTouched(ctx); err != nil {
			return err
		}
		if len(unread) > 0 {
			continue
		}
		merges, unjudged := s.unknown(), s.unjudged()
		if unread = s.unreadIn(unjudged, s.unreadOf(merges)); len(unread) == 0 {
			if err := s.judge(ctx, unjudged); err != nil {
				return err
			}
			return s.mergeAll(ctx, merges)
		}
	}
}

// look finds out what is in a sandbox.
func (s *sweep) look(ctx context.Context, b *box) {
	var likeness []byte
	b.read = true
	if b.tree, likeness, b.err = s.merger.WorkTreeLike(ctx, b.subject, b.head.Commit, s.ground); b.err != nil || likeness == nil {
		return
	}
	if err := s.r.store.WriteRadar(s.r.ID, likenessName(b.inv.ID), likeness); err != nil {
		s.r.warn("what sandbox %s looks like is not remembered: %v", b.inv.ID, err)
	}
}

// able are those that can be looked at.
func (s *sweep) able() []*box {
	return slices.DeleteFunc(slices.Clone(s.boxes), func(b *box) bool { return b.err != nil })
}

// remember writes down what was found out, and forgets what nobody needs any more.
func (s *sweep) remember(invocations []Invocation) {
	err := func() error {
		data, err := json.Marshal(s.now)
		if err != nil || string(data) == string(s.written) {
			return err
		}
		live := map[string]bool{}
		for _, inv := range invocations {
			live[likenessName(inv.ID)] = inv.Broken || !ended(inv.entry.Record)
		}
		return errors.Join(
			s.r.store.WriteRadar(s.r.ID, s.factsName(), data),
			s.r.store.ForgetRadar(s.r.ID, func(name string) bool {
				worktree, facts := strings.CutSuffix(name, factsSuffix)
				return live[name] || facts && ids.Valid(worktree)
			}))
	}()
	if err != nil {
		s.r.warn("what radar has found out is not remembered: %v", err)
	}
}

const factsSuffix = ".json"

func (s *sweep) factsName() string { return s.worktree.ID + factsSuffix }

func likenessName(id string) string { return id + ".likeness" }

// parallel does something with all of some things, as many at a time as there are processors.
func parallel[T any](things []T, do func(T)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(things), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(things) {
					return
				}
				do(things[n])
			}
		})
	}
	group.Wait()
}
