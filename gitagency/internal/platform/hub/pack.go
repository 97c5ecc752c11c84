package hub

import (
	"context"
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// packStream returns a pack with what a commit adds to another, as git writes it. done ends that git, and returns its error
// unless the reader had enough.
func packStream(ctx context.Context, p *transport.Pusher, commit, base string) (pack io.Reader, done func() error) {
	ctx, cancel := context.WithCancel(ctx)
	read, write := io.Pipe()
	wait := proc.Async(func() (struct{}, error) {
		err := p.WritePack(ctx, commit, []string{base}, write)
		_ = write.CloseWithError(err) // never fails
		return struct{}{}, err
	})
	return read, func() error {
		_ = read.CloseWithError(io.ErrClosedPipe)
		cancel()
		_, _ = wait() // a failure ended the pack early, which its reader has reported
		return nil
	}
}
