package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// maxIndex is how large an index may be that comes out.
const maxIndex = 1 << 29

// staging is the index behind the walls.
type staging struct {
	index *git.Index // nil when there is none, or it cannot be read: then it stays behind
	at    time.Time  // when it was written
	also  []string   // the objects of it that are not staged outside
	print string     // its fingerprint, once it is known
	odd   bool       // only git inside can say all of what is in it
}

// staged reads what is staged behind the walls.
func (d *door) staged() staging {
	file, err := git.LayerFile(d.upper, filepath.Join("worktrees", d.s.ID, "index"), maxIndex)
	if err != nil {
		d.staysInside(err)
	}
	if err != nil || !file.Found {
		return staging{}
	}
	return d.understood(file.Data, file.ModTime)
}

// stagedInside has git inside write the index such that it can be read.
func (d *door) stagedInside(ctx context.Context, room *proc.Room, dir *os.File, odd staging) staging {
	plain := bounded{left: maxIndex}
	if err := d.run(ctx, room, dir, scriptPlain, nil, &plain); err != nil {
		d.staysInside(err)
		return staging{}
	}
	s := d.understood(plain.Bytes(), odd.at)
	if s.odd {
		d.staysInside(errors.New("it is not what git inside was asked for"))
	}
	return s
}

// understood is an index as it may come out.
func (d *door) understood(data []byte, at time.Time) staging {
	format := git.FormatOf(d.s.repo.store.Invocation(d.s.repo.ID, d.s.ID, nil).Record.BaseCommit)
	outside := proc.Meanwhile(func() (git.Index, error) { // at the same time: both may be large
		data, err := durable.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"), maxIndex)
		if err != nil {
			return git.Index{}, err
		}
		return git.SkimIndex(data, format)
	})
	index, err := git.ReadIndex(data, format)
	before, _ := outside() // without it, more is asked for
	switch {
	case is[*git.NotPlainError](err):
		return staging{at: at, odd: true}
	case err != nil:
		d.staysInside(err)
		return staging{}
	}
	index = index.Closed() // a person who looks at the sandbox shall run nothing that is configured in it
	return staging{index: &index, at: at, also: index.Missing(before)}
}

func (d *door) staysInside(err error) {
	d.s.repo.warn("sandbox %s: what is staged there stays there: %v", d.s.ID, err)
}

// draft writes an index that is to come out, if there is anything new in it, for a person who is on a ref.
func (d *door) draft(s *staging, on string) (*git.IndexDraft, error) {
	if s.index == nil || on != sandboxRef(d.s.ID) {
		return nil, nil
	}
	if s.print = s.index.Fingerprint(); s.print == d.state.Index {
		return nil, nil
	}
	draft, err := d.s.repo.git.DraftIndex(d.s.ID)
	if err == nil {
		err = draft.Write(*s.index, s.at)
	}
	if err != nil {
		return nil, errors.Join(err, draft.Drop())
	}
	return draft, nil
}

// indexStamp tells the index outside from the same after somebody has written it.
func (d *door) indexStamp() string {
	fi, err := os.Lstat(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	if err != nil {
		return ""
	}
	return durable.Stamp(fi)
}

// setAside keeps what a person has staged outside since something last went through, when other things are
// staged inside. The index outside is locked, so that they stage no more; git works on a copy.
func (d *door) setAside(ctx context.Context, now doorState, tip string) error {
	if d.state.Index == "" {
		return nil // nothing was ever staged outside that we know of
	}
	data, err := os.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	if err != nil {
		return err
	}
	theirs, err := git.ReadIndex(data, git.FormatOf(tip))
	if err != nil { // which also git outside cannot read, or a split one
		return fmt.Errorf("index outside: %w", err)
	}
	if is := theirs.Closed().Fingerprint(); is == d.state.Index || is == now.Index {
		return nil
	}
	if same, err := d.s.repo.git.StagedIs(ctx, d.s.ID, tip); err != nil || same { // they have committed it
		return err
	}
	aside := filepath.Join(filepath.Dir(d.statePath()), "index-outside")
	for n := 2; ; n++ { // one that was kept before stays
		if _, err := os.Lstat(aside); err != nil {
			break
		}
		aside = filepath.Join(filepath.Dir(d.statePath()), fmt.Sprintf("index-outside-%d", n))
	}
	if err := durable.WriteFile(aside, data, 0o600); err != nil {
		return err
	}
	commit, err := d.commitAside(ctx, aside, tip, now.Tip)
	if err != nil {
		return err
	}
	if commit != "" {
		d.s.repo.warn("sandbox %s: other things were staged inside than outside; what was staged outside is kept: git show %s", d.s.ID, commit)
		return os.Remove(aside)
	}
	d.s.repo.warn("sandbox %s: other things were staged inside than outside, where not all was merged; what was staged outside is kept until the sandbox is discarded: GIT_INDEX_FILE=%s git diff --cached", d.s.ID, ShellWord(aside))
	return nil
}

// commitAside makes a commit of what a person has staged outside, on top of tip. The log of HEAD, which is
// at head now, knows of it, and so does whoever discards the sandbox.
func (d *door) commitAside(ctx context.Context, index, tip, head string) (string, error) {
	repo, unlock, err := d.lockRepository(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	const why = "agency: what was staged outside"
	commit, err := repo.CommitStaged(ctx, index, tip, toolIdentity, why)
	if err != nil || commit == "" {
		return "", err
	}
	if err := repo.LogHead(d.s.ID, head, commit, toolIdentity, d.s.repo.now(), why); err != nil {
		return "", err
	}
	return commit, repo.LogHead(d.s.ID, commit, head, toolIdentity, d.s.repo.now(), "agency: back to what was committed")
}

// shut has no git outside look into a repository that is in the tree, as that of a submodule: whoever works
// behind the walls can have put anything there, or has it where only a git inside finds it. x is what is staged,
// and real belongs to it; what they are then is returned.
func (d *door) shut(x git.Index, commit, real string) (print, now string) {
	print = x.Closed().Fingerprint()
	if !x.AnyOpen() {
		return print, real
	}
	was, err := d.s.repo.git.CloseIndex(d.s.ID, git.FormatOf(commit))
	if err != nil {
		d.s.repo.warn("sandbox %s: git outside still looks into its submodules: %v", d.s.ID, err)
	}
	now = d.real()
	if err != nil || was.Fingerprint() != x.Fingerprint() || butIndex(now) != butIndex(real) { // somebody is at work there
		return print, real
	}
	return print, now
}

// butIndex is what a fingerprint of the real git directory says of everything but the index.
func butIndex(real string) string {
	var rest strings.Builder
	for line := range strings.Lines(real) {
		if !strings.HasSuffix(line, " index\n") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// opened is an index that goes in: what can be looked into inside, and not outside, can be still.
func (d *door) opened(x git.Index, data []byte, commit string) []byte {
	if !x.AnyClosed() {
		return data
	}
	file, err := git.LayerFile(d.upper, filepath.Join("worktrees", d.s.ID, "index"), maxIndex)
	if err != nil || !file.Found {
		return data
	}
	inside, err := git.ReadIndex(file.Data, git.FormatOf(commit))
	if err != nil {
		return data
	}
	return x.OpenedLike(inside).Encode()
}
