package platform

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
)

// outputFollower copies what a run writes while it runs, as far as the engine shows it, and the rest when its result has come.
type outputFollower struct {
	c       *Client
	id      string
	stop    context.CancelFunc
	copies  sync.WaitGroup
	streams []*followedStream
}

// followedStream is one stream of the output.
type followedStream struct {
	stream engine.Stream
	to     io.Writer
	copied int64
	err    error // of the writer
}

// followOutput begins to copy the output of a run. A nil writer gets nothing.
func (c *Client) followOutput(ctx context.Context, id string, stdout, stderr io.Writer) *outputFollower {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // what it writes when it is told to end is copied, too
	o := &outputFollower{c: c, id: id, stop: stop}
	for stream, to := range map[engine.Stream]io.Writer{engine.Stdout: stdout, engine.Stderr: stderr} {
		if to == nil {
			continue
		}
		s := &followedStream{stream: stream, to: to}
		o.streams = append(o.streams, s)
		o.copies.Go(func() { s.copied, s.err = c.copyLive(ctx, id, engine.LogsRequest{Stream: stream, Follow: true}, to) })
	}
	return o
}

// copyLive copies what the engine shows of a stream. What it does not show comes with the result, so only a failed write is an error.
func (c *Client) copyLive(ctx context.Context, id string, req engine.LogsRequest, to io.Writer) (copied int64, err error) {
	m := c.record(id)
	driver, _, err := openEngine(c.r, m.Primitives.Platform)
	out := &checkedWriter{to: to}
	if err == nil {
		copied, err = driver.Logs(ctx, ref(c.r, m), req, out)
	}
	if err != nil && out.err == nil && ctx.Err() == nil && (!req.Follow || !fault.Is[*engine.NoLogsError](err)) {
		c.r.Warn("the output of %s cannot be read while it runs: %v", id, err)
	}
	return copied, out.err
}

// checkedWriter keeps the error of a failed write.
type checkedWriter struct {
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (n int, err error) {
	n, err = w.to.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// abandon ends the copying of a run that goes on.
func (o *outputFollower) abandon() {
	o.stop()
	o.copies.Wait()
}

// finish copies what was not copied while the run went on, and returns the errors of the writers. It is called when the run has ended.
func (o *outputFollower) finish() (err error) {
	o.abandon()
	for _, s := range o.streams {
		if err = errors.Join(err, s.err); s.err != nil { // its reader went away
			continue
		}
		if o.c.record(o.id).Attempt > 1 { // what was copied may be that of an earlier attempt
			s.copied = 0
		}
		if err := runs.CopyLastOutput(o.c.r, o.id, string(s.stream), s.copied, s.to); err != nil {
			o.c.r.Warn("the output of %s: %v", o.id, err)
		}
	}
	return err
}

// CopyOutput copies the output of a run that goes on: what there is of it, or with follow until the run has ended.
func (c *Client) CopyOutput(ctx context.Context, id string, follow bool, stdout, stderr io.Writer) error {
	if !follow {
		_, outErr := c.copyLive(ctx, id, engine.LogsRequest{Stream: engine.Stdout}, stdout)
		_, errErr := c.copyLive(ctx, id, engine.LogsRequest{Stream: engine.Stderr}, stderr)
		return errors.Join(outErr, errErr)
	}
	output := c.followOutput(ctx, id, stdout, stderr)
	_, err := c.Wait(ctx, id)
	if err != nil {
		output.abandon()
		return err
	}
	return output.finish()
}
