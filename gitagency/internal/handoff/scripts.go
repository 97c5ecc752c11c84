package handoff

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// packStream is a pack written by the sandbox's git, with the commit that it named.
type packStream struct {
	commit string
	*bufio.Reader
	spool *os.File
}

func (p *packStream) Close() error { return p.spool.Close() }

// runPackScript has the sandbox's git name a commit and pack its objects and those in also, without the objects
// reachable from not.
func (e *Exchange) runPackScript(ctx context.Context, in Inside, dir *os.File, script string, also, not []string, args ...string) (*packStream, error) {
	spool, err := os.CreateTemp(e.lockDir(), "pack-*")
	if err != nil {
		return nil, err
	}
	err = func() error {
		if err := os.Remove(spool.Name()); err != nil { // unlinked at once, so that it cannot be left behind
			return err
		}
		wants := slices.Clone(also)
		for _, oid := range not {
			wants = append(wants, "^"+oid)
		}
		// Git must name the commit within headTimeout. Packing may take any time as long as output continues.
		asked, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(headTimeout, func() { cancel(&GitError{errors.New("git " + e.Place() + " does not respond")}) })
		defer timer.Stop()
		untimed := *e
		untimed.ScriptTimeout = 0
		limits := e.repo.Git.ReadLimits
		out := &spoolWriter{file: spool, limit: limits.Inflated, onWrite: func() { timer.Reset(packIdleTimeout) }}
		if err := untimed.runScript(asked, in, dir, script, strings.NewReader(strings.Join(wants, "\n")+"\n"), out, args...); out.exceeded {
			exceeded := limits.Exceeded(transport.ReceivedPack, readlimit.Inflated)
			return errors.Join(exceeded, e.saveRefusal(nil, exceeded, 0))
		} else if err != nil {
			return errors.Join(err, context.Cause(asked))
		}
		_, err := spool.Seek(0, io.SeekStart)
		return err
	}()
	name, from := "", bufio.NewReader(spool)
	if err == nil {
		var line []byte
		if line, err = from.ReadSlice('\n'); err != nil {
			err = &GitError{fmt.Errorf("git %s reported no commit: %w", e.Place(), err)}
		}
		name = strings.TrimSuffix(string(line), "\n")
	}
	if err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	return &packStream{name, from, spool}, nil
}

// GitError is a failure caused by the content or configuration of the sandbox, not by this machine.
type GitError struct{ err error }

func (e *GitError) Error() string { return e.err.Error() }

func (e *GitError) Unwrap() error { return e.err }

// DivergedError reports that the branch on the host and HEAD in the sandbox have moved to commits of which neither is
// an ancestor of the other.
type DivergedError struct{ text string }

func (e *DivergedError) Error() string { return e.text }

// exitDiverged is the exit code by which scriptPack reports a DivergedError.
const exitDiverged = 66

// IsSandboxFault reports whether an import failed because of the content of the sandbox and not because of this
// machine: git refused the objects although a test file shows that there is disk space.
func (e *Exchange) IsSandboxFault(err error) bool {
	if fault.Is[*GitError](err) || fault.Is[*fault.InvalidTreeError](err) || fault.Is[*fault.InvalidCommitError](err) || exceedsLimit(err) {
		return true
	}
	return (fault.Is[*git.Error](err) || fault.Is[*object.IncompleteError](err)) && HasRoom(e.repo)
}

// HasRoom reports whether a file of some size can be written to the objects of a repository, so that the failure of a git that
// writes there has another reason.
func HasRoom(r *core.Repository) bool {
	const probeSize = 8 << 20
	f, err := os.CreateTemp(filepath.Join(r.CommonDir, "objects", "pack"), "tmp_room_*")
	if err != nil {
		return false
	}
	_, err = f.Write(make([]byte, probeSize))
	return errors.Join(err, f.Close(), os.Remove(f.Name())) == nil
}

// spoolWriter writes to a file and calls onWrite before each write. A write beyond the limit fails; 0 is no limit.
type spoolWriter struct {
	file     *os.File
	onWrite  func()
	limit    int64 // bytes
	written  int64
	exceeded bool // a write has failed
}

func (w *spoolWriter) Write(p []byte) (int, error) {
	w.onWrite()
	if w.written += int64(len(p)); w.limit > 0 && w.written > w.limit {
		w.exceeded = true
		return 0, errors.New("the pack is too large")
	}
	return w.file.Write(p)
}

// receive adds a pack to the real repository, moves the branch and writes the reflog of HEAD. It takes the repository
// lock only for that, when the pack has been checked. A pack that was refused before is refused without another check.
func (e *Exchange) receive(ctx context.Context, pack *packStream, in transport.ReceiveRequest) error {
	if err := e.checkNotRefused(pack); err != nil {
		return err
	}
	in.Pack, in.Ref = pack, core.SandboxRef(e.id)
	in.Lock = func(ctx context.Context) (*git.Repo, func(), error) {
		repo, unlock, err := e.lockRepository(ctx)
		if err != nil {
			return nil, nil, err
		}
		if record := e.repo.Store.Invocation(e.repo.ID, e.id, nil).Record; record.HasEnded() && e.LockedRepo == nil {
			unlock()
			return nil, nil, &fault.EndedError{ID: e.id, Landing: record.Landing}
		}
		return repo, unlock, nil
	}
	in.Published = func(repo *git.Repo) error {
		if in.New == in.Old || !in.LeaveRef && e.realHead() != in.Ref {
			return nil // the user is on another branch, which has not moved
		}
		return repo.AppendHeadReflog(e.id, in.Old, in.New, core.ToolIdentity, e.repo.Now(), in.Reason)
	}
	began := time.Now()
	err := transport.Receive(ctx, e.repo.Git, in)
	if err == nil || context.Cause(ctx) != nil {
		return err
	}
	return errors.Join(err, e.saveRefusal(pack, err, time.Since(began)))
}

// Scripts that run in the sandbox (see Inside). Its configuration affects them, but they can harm only the sandbox.
const (
	// packObjectsCommand packs the named objects without searching for deltas, which would take long without any
	// output. It runs in /proc, where no files can be created: in the worktree git would read .gitattributes for
	// delta settings, and would block for ever if one of them is a pipe.
	packObjectsCommand = `{ dir=$(git rev-parse --absolute-git-dir) && cd /proc && GIT_DIR=$dir git -c core.attributesFile=/dev/null ` +
		`-c pack.packSizeLimit=0 -c pack.threads=1 pack-objects --revs --thin --stdout --delta-base-offset --window=0 -q; }`

	// scriptPack prints the commit at HEAD, then packs the wanted objects, if there are any.
	scriptPack = `head=$(git rev-parse --verify --quiet 'HEAD^{commit}') || { echo "HEAD does not point to a commit" >&2; exit 1; }
if test "$head" != "$1" && test -n "$3" && ! git merge-base --is-ancestor "$3" "$head"; then
	echo "the branch was moved $4 to $3, and HEAD $5 is at $head; to merge them: $6 merge $3" >&2; exit 66
fi
printf '%s\n' "$head"
if test "$head" = "$1" && test -z "$2"; then exit 0; fi
{ printf '%s\n' "$head"; cat; } | ` + packObjectsCommand

	// scriptPackRemaining makes one commit whose ancestors are all commits that refs and reflogs reach and nothing on
	// the host does, prints it and packs it. It ignores refs and log entries to missing objects.
	scriptPackRemaining = `not=$(sed 's/^.//' | git cat-file --batch-check='%(objecttype) %(objectname)' | awk '$1 == "commit" || $1 == "tag" { print "^" $2 }') || exit 1
tips=$({ git for-each-ref --format='%(objectname)'; git rev-list --no-walk --reflog --ignore-missing; git rev-parse --verify --quiet HEAD; } 2>/dev/null |
	sort -u | git cat-file --batch-check='%(objecttype) %(objectname)' | awk '$1 == "commit" || $1 == "tag" { print $2 }') || exit 1
left=$(printf '%s\n' $tips $not | git rev-list --stdin --children) || exit 1
left=$(printf '%s\n' "$left" | awk 'NF == 1 { print "-p", $1 }')
if test -z "$left"; then printf '%s\n' "$1"; exit 0; fi
all=$1
while test -n "$left"; do
	some=$(printf '%s\n' "$left" | head -n 500) left=$(printf '%s\n' "$left" | tail -n +501)
	all=$(git -c user.name=agency -c user.email=agency@localhost -c commit.gpgSign=false commit-tree -m "other commits of the sandbox" -p "$all" $some "$1^{tree}") || exit 1
done
printf '%s\n' "$all"
printf '%s\n' "$all" $not | ` + packObjectsCommand

	// scriptExport moves HEAD and its branch, or attaches HEAD to another branch, and replaces the index to match. It
	// moves nothing while the index is locked by a running git or by a stale lock file.
	scriptExport = `git() { command git -c core.hooksPath=/dev/null "$@"; }
move() {
	head=$(git rev-parse --verify --quiet HEAD)
	if test "$head" != "$1" && test "$head" != "$2"; then echo "HEAD was moved both outside the walls, to $1, and inside, to $head" >&2; return 1; fi
	why="agency: moved outside the walls"
	case $3 in
	'') git update-ref -m "$why" HEAD "$1" "$head"; return ;;
	"$4") git update-ref -m "$why" "$3" "$1" || return ;;
	esac
	if test "$(git rev-parse --verify --quiet "$3")" = "$1" && git symbolic-ref -m "$why" HEAD "$3" 2>/dev/null; then return 0; fi
	git update-ref --no-deref -m "$why" HEAD "$1" "$head"
}
if test -n "$6"; then
	index=$(git rev-parse --git-path index) || exit
	new=$index.outside
	if test "$new" -ef "$index.lock"; then # left by an export that was killed, maybe while git moved HEAD
		for ref in HEAD "$5" $(git symbolic-ref -q HEAD); do rm -f "$(git rev-parse --git-path "$ref").lock"; done
		rm -f "$index.lock"
	fi
	trap 'rm -f "$new"' EXIT
	trap 'exit 1' HUP INT TERM
	rm -f "$new" && cat >"$new" || exit
	if ! ln "$new" "$index.lock" 2>/dev/null; then
		echo "the index is locked by $index.lock; if no git runs inside: git agency exec $AGENCY_INVOCATION_ID -- rm -f '$index.lock'" >&2; exit 1
	fi
	trap 'rm -f "$index.lock" "$new"' EXIT
fi
if test -n "$1"; then move "$2" "$3" "$4" "$5" || exit; fi
if test -n "$6"; then mv -f "$index.lock" "$index"; fi`

	// scriptPlainIndex prints the index without split or sparse entries. It works on a copy with the same mtime, by
	// which git knows which files it must read again (racy git).
	scriptPlainIndex = `index=$(git rev-parse --git-path index) && plain=$index.agency && trap 'rm -f "$plain"' EXIT && cp -p "$index" "$plain" &&
GIT_INDEX_FILE=$plain git -c core.splitIndex=false -c index.sparse=false -c core.fsmonitor=false update-index --no-split-index --force-write-index &&
cat "$plain"`

	// scriptRemoveRefLock removes a ref lock file of git on the host that is gone but still visible in the overlay
	// because of the kernel's cache: its inode is now that of the ref itself, or has no links. The sandbox's git
	// waits longer for ref locks than this takes.
	scriptRemoveRefLock = `lock=$(git rev-parse --git-common-dir)/$1.lock
case $(stat -c '%i %h' "$lock" 2>/dev/null) in "$2 "* | *" 0") rm -f "$lock" ;; esac`
)

// headTimeout bounds the time until git names the commit at HEAD.
const headTimeout = 5 * time.Second

// packIdleTimeout bounds the time without output while git packs.
const packIdleTimeout = 30 * time.Second

// sandboxGitTimeout bounds one script in the sandbox, where anything may be configured.
const sandboxGitTimeout = time.Minute

// runScript runs one of the scripts in the sandbox.
func (e *Exchange) runScript(ctx context.Context, in Inside, dir *os.File, script string, stdin io.Reader, stdout io.Writer, args ...string) error {
	var stderr proc.OutputBuffer
	ending, err := in.Run(ctx, proc.Task{
		Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: dir, Env: e.environment(),
		Stdin: stdin, Stdout: stdout, Stderr: &stderr, Timeout: e.ScriptTimeout, Grace: time.Second,
	})
	text := strings.TrimSpace(stderr.Text())
	switch {
	case err == nil && ending.ExitCode == exitDiverged:
		err = &GitError{&DivergedError{text}}
	case err == nil && ending.ExitCode != 0 && text != "":
		err = &GitError{errors.New(text)}
	case err == nil && ending.ExitCode != 0:
		err = &GitError{fmt.Errorf("git %s exited with %d", e.Place(), ending.ExitCode)}
	case errors.Is(err, proc.ErrTimeout) && !fault.Is[*proc.OutputError](err):
		err = &GitError{fmt.Errorf("git %s: %w", e.Place(), err)}
	case err != nil && text != "":
		err = fmt.Errorf("%s: %w", text, err)
	}
	return err
}
