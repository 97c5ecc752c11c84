package status

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// A program in the worktree that swaps a file for a symlink, a FIFO or a whole directory at any moment must never make a
// capture read a file outside, or wait.
func TestCaptureFollowsNoSymlinkThatIsSwappedIn(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(l *gittest.Fixture, secretDir, at string){
		"symlink to a file": func(l *gittest.Fixture, secretDir, at string) {
			l.Must(os.Symlink(filepath.Join(secretDir, "file"), at))
		},
		"FIFO":                   func(l *gittest.Fixture, _, at string) { l.Must(unix.Mkfifo(at, 0o600)) },
		"symlink to a directory": func(l *gittest.Fixture, secretDir, at string) { l.Must(os.Symlink(secretDir, at)) },
	} {
		for _, attributes := range []string{"", "* text\n"} { // hashed by us, and by git
			t.Run(name+" "+strings.TrimSpace(attributes), func(t *testing.T) { // one at a time: each keeps a processor busy
				l := gittest.New(t)
				repo := repotest.OpenRepo(l)
				w := repotest.AddSandbox(l, repo)
				secretDir := gittest.TempDir(t)
				const secret = "secret of the person\n"
				for _, file := range []string{"file", "other"} {
					l.WriteIn(secretDir, file, secret)
				}
				l.WriteIn(w.Tree, ".gitattributes", attributes)
				deep := strings.Repeat("d/", 20)
				swapped := filepath.Join(w.Tree, deep, "file")
				if name == "symlink to a directory" {
					swapped = filepath.Join(w.Tree, deep, "sub")
					l.WriteIn(swapped, "file", "content\n")
				} else {
					l.WriteIn(w.Tree, deep+"file", "content\n")
				}
				l.WriteIn(w.Tree, deep+"aside/x", "x\n")
				aside := filepath.Join(w.Tree, deep, "aside/swap")
				plant(l, secretDir, aside)
				stop, done := make(chan struct{}), sync.WaitGroup{}
				done.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							_ = unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
						}
					}
				})
				defer func() { close(stop); done.Wait() }()
				head, captures := l.Git("rev-parse", "main"), 25
				if testing.Short() {
					captures = 8
				}
				hidden := string(object.HashObject(object.SHA1, "blob", []byte(secret)))
				gittest.Within(t, "the captures", func() {
					for range captures {
						s := repotest.SpecOf(l, w)
						s.InUse = true
						g, err := CollectWorktree(t.Context(), repo, s, head)
						if err == nil {
							if _, read := g.scan.blobs[hidden]; read || strings.Contains(strings.Join(g.WrittenBlobs, " "), object.Raw{OID: []byte(hidden)}.HexOID()) {
								t.Error("the capture has read a file outside of the worktree")
							}
						} else if !errors.As(err, new(*StillChangingError)) && !errors.As(err, new(*RejectedNameError)) {
							t.Errorf("got %v", err)
						}
						l.Must(g.Close())
					}
				})
			})
		}
	}
}
