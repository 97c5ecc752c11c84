package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Foresee begins to read what will be asked for if a commit is to land on another, while there is something else to do.
// What it finds to be sound is not looked at again; whatever else it finds is found again by who asks. gitDir is that of the
// worktree whose index will be asked for; empty where there is none.
func (m *Merger) Foresee(ctx context.Context, upstream, tip, gitDir string) {
	ctx, m.forget = context.WithCancel(ctx)
	if gitDir != "" {
		read := proc.Meanwhile(func() (*heldIndex, error) { return m.real.readHeld(ctx, gitDir, m.format) })
		m.ahead, m.aheadOf = read, gitDir
		m.foresight.Go(func() { _, _ = read() })
	}
	m.foresight.Go(func() {
		for _, oid := range []string{upstream, tip} {
			if tree, err := m.treeOf(ctx, oid); err != nil {
				return
			} else if _, err := m.twig(ctx, rawID(tree)); err != nil {
				return
			}
		}
		_ = m.SoundRange(ctx, upstream, tip)
	})
}

// indexOf is the index of a worktree: the one that was read ahead, if it is still that.
func (m *Merger) indexOf(gitDir string) *heldIndex {
	if m == nil || m.aheadOf != gitDir || gitDir == "" {
		return nil
	}
	x, err := m.ahead()
	if err != nil {
		return nil // who reads it now is told why
	}
	if fi, err := os.Lstat(filepath.Join(gitDir, "index")); err != nil || durable.Stamp(fi) != x.stamp {
		return nil
	}
	return x
}

// Wake starts the git that will be asked, so that nobody has to wait for it. If that fails, so does the first question.
func (m *Merger) Wake(ctx context.Context) {
	m.foresight.Go(func() { _ = m.asking(ctx, func(*teller) error { return nil }) })
}

// SoundRange refuses commits that lead to one and not to another, where no git would have made them as far as anybody relies
// on what they say (an *UnsoundCommitError), or where their trees must not land (an *UnsoundError): also what was taken
// away again comes with the history. Of each tree only what its first parent has not is looked at. All that they brought has
// to be there: see whole. What was found sound once is not looked at again, and what somebody looks at already is waited for.
func (m *Merger) SoundRange(ctx context.Context, upstream, tip string) error {
	asked := [2]string{upstream, tip}
	for {
		m.talking.Lock()
		found := m.soundings[asked]
		own := &sounding{done: make(chan struct{})}
		if found == nil {
			m.soundings[asked] = own
		}
		m.talking.Unlock()
		if found == nil {
			return m.sound(ctx, asked, own)
		}
		select {
		case <-found.done:
			if found.sound {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sounding is a look at a range of commits.
type sounding struct {
	done  chan struct{} // closed at the end of it
	sound bool          // what came of it
}

// sound looks at a range of commits for all who want to know. What failed is forgotten: it may have been told to end.
func (m *Merger) sound(ctx context.Context, asked [2]string, s *sounding) error {
	err := m.soundRange(ctx, asked[0], asked[1])
	if s.sound = err == nil; !s.sound {
		m.talking.Lock()
		delete(m.soundings, asked)
		m.talking.Unlock()
	}
	close(s.done)
	return err
}

func (m *Merger) soundRange(ctx context.Context, upstream, tip string) error {
	commits, err := m.between(ctx, upstream, tip)
	if err != nil {
		return err
	}
	for _, c := range commits {
		known := ""
		if len(c.parents) > 0 {
			known = c.parents[0]
		}
		if err := m.Sound(ctx, c.tree, known); err != nil {
			return fmt.Errorf("commit %.12s: %w", c.oid, err)
		}
	}
	return m.whole(ctx, commits)
}
