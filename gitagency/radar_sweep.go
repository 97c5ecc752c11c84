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

// forecast is one run of Radar.
//
// It uses two caches of earlier runs: the stat cache of every sandbox, and the facts about commits and trees. If nothing
// has changed, the run only has to stat every file of every sandbox. It is not enough to look at the paths that were
// touched in the last run: two sandboxes may since have changed a file that neither had touched before.
type sweep struct {
	r        *Repository
	worktree Worktree
	boxes    []*box
	tip      git.At // commit and tree of the integration branch
	ground   git.Ground
	merger   *git.Merger
	was, now facts
	written  []byte // facts as stored on disk
}

// sandboxState is one sandbox of a forecast.
type box struct {
	inv     Invocation
	site    *site
	subject git.Subject
	head    git.At
	tree    string // tree of its content, including uncommitted work; empty if not known yet
	read    bool   // read in this run, so the merger has the tree
	err     error  // why it cannot be read
}

// newForecast opens the live sandboxes of a worktree, and loads the caches. Sandboxes whose stat cache still matches get
// their tree without being read.
func (r *Repository) newSweep(ctx context.Context, wt Worktree, invocations []Invocation) (_ *sweep, err error) {
	name, err := r.integrationName(ctx, wt)
	if err != nil {
		return nil, err
	}
	s := &sweep{r: r, worktree: wt, ground: r.git.Ground()}
	// While any sandbox on record has no walls, merge drivers from the repository's own configuration do not run.
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

// openSandbox keeps a sandbox from being removed, and determines what belongs to its content.
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

// compute fills all facts. It reads no sandbox twice.
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

// readTree reads the content of a sandbox, and stores its stat cache.
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

// usable lists the sandboxes without an error.
func (s *sweep) able() []*box {
	return slices.DeleteFunc(slices.Clone(s.boxes), func(b *box) bool { return b.err != nil })
}

// saveFacts writes the facts to disk, and removes cache files that are no longer needed.
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

// parallel calls do for every item, on as many goroutines as there are processors.
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
