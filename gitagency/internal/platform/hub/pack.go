package hub

import (
	"context"
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// packStream returns a pack with what a commit adds to another, as git writes it. Its reader gets the error of that git; done ends it.
func packStream(ctx context.Context, p *transport.Pusher, commit, base string) (pack io.Reader, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	read, write := io.Pipe()
	wait := proc.Async(func() (struct{}, error) {
		err := p.WritePack(ctx, commit, []string{base}, write)
		_ = write.CloseWithError(err) // never fails
		return struct{}{}, err
	})
	return read, func() {
		_ = read.CloseWithError(io.ErrClosedPipe)
		cancel()
		_, _ = wait() // its error ended the pack early, which the reader has reported
	}
}
