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

// maxIndexSize is the largest index in bytes that is imported.
const maxIndex = 1 << 29

// sandboxIndex is the index behind the walls.
type staging struct {
	index *git.Index // nil when it is missing or unreadable; it is then not imported
	at    time.Time  // mtime of the index file
	also  []string   // blobs that the index on the host does not have
	print string     // fingerprint of index, set by draftIndex
	odd   bool       // split or sparse: only the sandbox's git can expand it
}

// readSandboxIndex reads the index behind the walls.
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

// readPlainIndex has the sandbox's git expand a split or sparse index and reads the result.
func (d *door) stagedInside(ctx context.Context, ns *proc.Room, dir *os.File, original staging) staging {
	plain := bounded{left: maxIndex}
	if err := d.run(ctx, ns, dir, scriptPlain, nil, &plain); err != nil {
		d.staysInside(err)
		return staging{}
	}
	s := d.understood(plain.Bytes(), original.at)
	if s.odd {
		d.staysInside(errors.New("it is not what git inside was asked for"))
	}
	return s
}

// parseSandboxIndex parses and checks an index file of the sandbox for the import.
func (d *door) understood(data []byte, at time.Time) staging {
	format := git.FormatOf(d.s.repo.store.Invocation(d.s.repo.ID, d.s.ID, nil).Record.BaseCommit)
	outside := proc.Meanwhile(func() (git.Index, error) { // concurrently: both may be large
		data, err := durable.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"), maxIndex)
		if err != nil {
			return git.Index{}, err
		}
		return git.SkimIndex(data, format)
	})
	index, err := git.ReadIndex(data, format)
	before, _ := outside() // on error it is empty, and more blobs are requested
	switch {
	case is[*git.NotPlainError](err):
		return staging{at: at, odd: true}
	case err != nil:
		d.staysInside(err)
		return staging{}
	}
	index = index.Closed() // skip-worktree for nested repositories: git status on the host must not run git in them
	return staging{index: &index, at: at, also: index.Missing(before)}
}

func (d *door) staysInside(err error) {
	d.s.repo.warn("sandbox %s: what is staged there stays there: %v", d.s.ID, err)
}

// draftIndex writes the imported index beside the real one, if it has changed and the real HEAD is on the branch of
// the sandbox. on is that HEAD.
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

// realIndexStamp identifies the current version of the index on the host; any write changes it.
func (d *door) indexStamp() string {
	fi, err := os.Lstat(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	if err != nil {
		return ""
	}
	return durable.Stamp(fi)
}

// keepRealIndex saves the changes that the user has staged on the host since the last exchange, when the sandbox has
// staged other changes. The caller has locked the real index, so git works on a copy.
func (d *door) setAside(ctx context.Context, now doorState, tip string) error {
	if d.state.Index == "" {
		return nil // there is no earlier index to compare with
	}
	data, err := os.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	if err != nil {
		return err
	}
	theirs, err := git.ReadIndex(data, git.FormatOf(tip))
	if err != nil { // corrupt, or a split index
		return fmt.Errorf("index outside: %w", err)
	}
	if is := theirs.Closed().Fingerprint(); is == d.state.Index || is == now.Index {
		return nil
	}
	if same, err := d.s.repo.git.StagedIs(ctx, d.s.ID, tip); err != nil || same { // the user has committed it
		return err
	}
	saved := filepath.Join(filepath.Dir(d.statePath()), "index-outside")
	for n := 2; ; n++ { // do not overwrite an index saved earlier
		if _, err := os.Lstat(saved); err != nil {
			break
		}
		saved = filepath.Join(filepath.Dir(d.statePath()), fmt.Sprintf("index-outside-%d", n))
	}
	if err := durable.WriteFile(saved, data, 0o600); err != nil {
		return err
	}
	commit, err := d.commitAside(ctx, saved, tip, now.Tip)
	if err != nil {
		return err
	}
	if commit != "" {
		d.s.repo.warn("sandbox %s: other things were staged inside than outside; what was staged outside is kept: git show %s", d.s.ID, commit)
		return os.Remove(saved)
	}
	d.s.repo.warn("sandbox %s: other things were staged inside than outside, where not all was merged; what was staged outside is kept until the sandbox is discarded: GIT_INDEX_FILE=%s git diff --cached", d.s.ID, ShellWord(saved))
	return nil
}

// commitRealIndex commits the changes that the user has staged on the host, on top of tip. The reflog of HEAD, which
// is at head now, records the commit, so that it is found there and kept by a discard.
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

// closeNested marks nested repositories, such as submodules, in the real index as skip-worktree, so that git on the
// host does not run git in them: a process behind the walls can have put anything there, or its git directory is
// visible only behind the walls. x is the real index and real the fingerprint that goes with it; it returns the index
// fingerprint and the new real fingerprint.
func (d *door) shut(x git.Index, commit, real string) (fingerprint, realNow string) {
	fingerprint = x.Closed().Fingerprint()
	if !x.AnyOpen() {
		return fingerprint, real
	}
	before, err := d.s.repo.git.CloseIndex(d.s.ID, git.FormatOf(commit))
	if err != nil {
		d.s.repo.warn("sandbox %s: git outside still looks into its submodules: %v", d.s.ID, err)
	}
	realNow = d.real()
	if err != nil || before.Fingerprint() != x.Fingerprint() || butIndex(realNow) != butIndex(real) { // another process has changed something meanwhile
		return fingerprint, real
	}
	return fingerprint, realNow
}

// withoutIndex removes the line of the index from a fingerprint of the real git directory.
func butIndex(real string) string {
	var rest strings.Builder
	for line := range strings.Lines(real) {
		if !strings.HasSuffix(line, " index\n") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// reopenNested returns the index to export, in which nested repositories that are visible in the sandbox's index stay
// visible.
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
