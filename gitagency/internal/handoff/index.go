package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"github.com/git-agency/git-agency/gitagency/quote"
	"golang.org/x/sys/unix"
)

// maxIndexSize returns the largest size in bytes of an index that is imported. About five copies of it are in memory at
// once: the files of both sides, and their entries.
func (e *Exchange) maxIndexSize() int64 {
	const copies = 8
	if limit := e.repo.Git.ReadLimits.Memory / copies; limit > 0 {
		return min(limit, index.MaxSize)
	}
	return index.MaxSize
}

// sandboxIndex is the index in the upper directory.
type sandboxIndex struct {
	index       *index.File // nil when it is missing or unreadable; it is then not imported
	modTime     time.Time   // mtime of the index file
	newBlobs    []string    // blobs that the index on the host does not have
	fingerprint string      // fingerprint of index, set by draftIndex
	notPlain    bool        // split or sparse: only the sandbox's git can expand it
}

// readSandboxIndex reads the index in the upper directory.
func (e *Exchange) readSandboxIndex() sandboxIndex {
	file, err := overlay.ReadUpperFile(e.upper, filepath.Join(e.entry, "index"), e.maxIndexSize())
	if err != nil {
		e.warnIndexNotImported(err)
	}
	if err != nil || !file.Found {
		return sandboxIndex{}
	}
	return e.parseSandboxIndex(file.Data, file.ModTime)
}

// readPlainIndex has the sandbox's git expand a split or sparse index and reads the result.
func (e *Exchange) readPlainIndex(ctx context.Context, in Inside, dir *os.File, original sandboxIndex) sandboxIndex {
	plain := proc.LimitedBuffer{Limit: int(e.maxIndexSize())}
	if err := e.runScript(ctx, in, dir, scriptPlainIndex, nil, &plain); err != nil {
		e.warnIndexNotImported(err)
		return sandboxIndex{}
	}
	s := e.parseSandboxIndex(plain.Bytes(), original.modTime)
	if s.notPlain {
		e.warnIndexNotImported(errors.New("git " + e.Place() + " did not expand it to a plain index"))
	}
	return s
}

// parseSandboxIndex parses and checks an index file of the sandbox for the import.
func (e *Exchange) parseSandboxIndex(data []byte, at time.Time) sandboxIndex {
	format := object.FormatOf(e.repo.Store.Invocation(e.repo.ID, e.id, nil).Record.BaseCommit)
	outside := proc.Async(func() (index.File, error) { // concurrently: both may be large
		data, err := durable.ReadFile(filepath.Join(e.repo.Git.AdminDir(e.id), "index"), index.MaxSize)
		if err != nil {
			return index.File{}, err
		}
		return index.ReadTrusted(data, format)
	})
	idx, err := index.ReadWithin(data, format, int(e.maxIndexSize()))
	before, _ := outside() // on error it is empty, and more blobs are requested
	switch {
	case fault.Is[*index.NotPlainError](err):
		return sandboxIndex{modTime: at, notPlain: true}
	case errors.Is(err, index.ErrTooLarge):
		e.warnIndexNotImported(e.repo.Git.ReadLimits.Exceeded("it", readlimit.Memory))
		return sandboxIndex{}
	case err != nil:
		e.warnIndexNotImported(err)
		return sandboxIndex{}
	}
	idx = idx.WithStatFrom(before, e.isMissing)
	idx = idx.WithSubmodulesSkipped() // skip-worktree for nested repositories: git status on the host must not run git in them
	return sandboxIndex{index: &idx, modTime: at, newBlobs: idx.NewBlobs(before)}
}

// isMissing reports whether a path of the index is not in the sandbox's tree.
func (e *Exchange) isMissing(name string) bool {
	tree, err := e.openTree()
	if err != nil {
		return true
	}
	defer tree.Close()
	var st unix.Stat_t
	return beneath.IsGone(tree.Lstat(name, &st))
}

// openTree opens the sandbox's tree.
func (e *Exchange) openTree() (*beneath.Dir, error) {
	path := e.repo.Store.SandboxTreePath(e.repo.ID, e.id)
	layers, err := e.repo.OverlayTree(e.id)
	if err != nil {
		return nil, err
	}
	if layers == nil {
		return beneath.Open(path)
	}
	return beneath.OpenLayers(path, layers.Dirs()...)
}

func (e *Exchange) warnIndexNotImported(err error) {
	e.repo.Warn("sandbox %s: the index %s is not imported: %v", e.id, e.Place(), err)
}

// draftIndex writes the imported index beside the real one, if it has changed and the real HEAD is on the branch of
// the sandbox. on is that HEAD.
func (e *Exchange) draftIndex(s *sandboxIndex, on string) (*git.IndexDraft, error) {
	if s.index == nil || on != core.SandboxRef(e.id) {
		return nil, nil
	}
	if s.fingerprint = s.index.Fingerprint(); s.fingerprint == e.Agreed.IndexFingerprint {
		return nil, nil
	}
	draft, err := e.repo.Git.NewIndexDraft(e.id)
	if err == nil {
		err = draft.Write(*s.index, s.modTime)
	}
	if err != nil {
		return nil, errors.Join(err, draft.Drop())
	}
	return draft, nil
}

// realIndexFingerprint identifies the current version of the index on the host; any write changes it.
func (e *Exchange) realIndexFingerprint() string {
	fi, err := os.Lstat(filepath.Join(e.repo.Git.AdminDir(e.id), "index"))
	if err != nil {
		return ""
	}
	return durable.StatFingerprint(fi)
}

// keepRealIndex saves the changes that the user has staged on the host since the last exchange, when the sandbox has
// staged other changes. The caller has locked the real index, so git works on a copy.
func (e *Exchange) keepRealIndex(ctx context.Context, now AgreedState, tip string) error {
	if e.Agreed.IndexFingerprint == "" {
		return nil // there is no earlier index to compare with
	}
	data, err := os.ReadFile(filepath.Join(e.repo.Git.AdminDir(e.id), "index"))
	if err != nil {
		return err
	}
	theirs, err := index.Read(data, object.FormatOf(tip))
	if err != nil { // corrupt, or a split index
		return fmt.Errorf("index outside the walls: %w", err)
	}
	if is := theirs.WithSubmodulesSkipped().Fingerprint(); is == e.Agreed.IndexFingerprint || is == now.IndexFingerprint {
		return nil
	}
	if same, err := e.repo.Git.IndexMatches(ctx, e.id, tip); err != nil || same { // the user has committed it
		return err
	}
	saved := filepath.Join(filepath.Dir(e.statePath()), "index-outside")
	for n := 2; ; n++ { // do not overwrite an index saved earlier
		if _, err := os.Lstat(saved); err != nil {
			break
		}
		saved = filepath.Join(filepath.Dir(e.statePath()), fmt.Sprintf("index-outside-%d", n))
	}
	if err := durable.WriteFile(saved, data, 0o600); err != nil {
		return err
	}
	commit, err := e.commitRealIndex(ctx, saved, tip, now.BranchTip)
	if err != nil {
		return err
	}
	if commit != "" {
		e.repo.Warn("sandbox %s: different changes were staged inside and outside the walls; to see those staged outside: git show %s", e.id, commit)
		return os.Remove(saved)
	}
	e.repo.Warn("sandbox %s: different changes were staged inside and outside the walls; the index outside has unmerged entries, and is kept until the sandbox is discarded: GIT_INDEX_FILE=%s git diff --cached", e.id, quote.Shell(saved))
	return nil
}

// commitRealIndex commits the changes that the user has staged on the host, on top of tip. The reflog of HEAD, which
// is at head now, records the commit, so that it is found there and kept by a discard.
func (e *Exchange) commitRealIndex(ctx context.Context, index, tip, head string) (string, error) {
	repo, unlock, err := e.lockRepository(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	const why = "agency: staged outside the walls"
	commit, err := repo.CommitIndex(ctx, index, tip, core.ToolIdentity, why)
	if err != nil || commit == "" {
		return "", err
	}
	if backend := core.WorktreeBackend(repo); backend.IsUnlisted(e.id) { // git does not look at its reflog
		if err := backend.KeepStaged(ctx, e.id, changeset.Staged{Commits: []string{commit}}); err != nil {
			return "", err
		}
	}
	if err := repo.AppendHeadReflog(e.id, head, commit, core.ToolIdentity, e.repo.Now(), why); err != nil {
		return "", err
	}
	return commit, repo.AppendHeadReflog(e.id, commit, head, core.ToolIdentity, e.repo.Now(), "agency: back to the committed state")
}

// skipNestedRepositories marks nested repositories, such as submodules, in the real index as skip-worktree, so that git on the
// host does not run git in them: a process behind the walls can have put anything there, or its git directory is
// visible only behind the walls. x is the real index and real the fingerprint that goes with it; it returns the index
// fingerprint and the new real fingerprint, which is empty where the index could not be marked: then the next export tries
// again.
func (e *Exchange) skipNestedRepositories(ctx context.Context, x index.File, commit, real string) (fingerprint, realNow string) {
	fingerprint = x.WithSubmodulesSkipped().Fingerprint()
	if !x.AnySubmoduleUnskipped() {
		return fingerprint, real
	}
	before, err := e.repo.Git.SkipSubmodulesInIndex(ctx, e.id, object.FormatOf(commit))
	if err != nil {
		e.repo.Warn("sandbox %s: git outside the walls still inspects its submodules, until the next command: %v", e.id, err)
		return fingerprint, ""
	}
	realNow = e.fingerprintReal()
	if before.Fingerprint() != x.Fingerprint() || withoutIndex(realNow) != withoutIndex(real) { // another process has changed something meanwhile
		return fingerprint, real
	}
	return fingerprint, realNow
}

// withoutIndex removes the line of the index from a fingerprint of the real git directory.
func withoutIndex(real string) string {
	var rest strings.Builder
	for line := range strings.Lines(real) {
		if !strings.HasSuffix(line, " index\n") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// keepNestedVisible returns the index to export, in which nested repositories that are visible in the sandbox's index stay
// visible.
func (e *Exchange) keepNestedVisible(x index.File, data []byte, commit string) []byte {
	if !x.AnySubmoduleSkipped() {
		return data
	}
	file, err := overlay.ReadUpperFile(e.upper, filepath.Join(e.entry, "index"), e.maxIndexSize())
	if err != nil || !file.Found {
		return data
	}
	inside, err := index.Read(file.Data, object.FormatOf(commit))
	if err != nil {
		return data
	}
	return x.WithSubmodulesUnskippedLike(inside).Encode()
}
