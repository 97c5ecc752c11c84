package engine

import (
	"context"
	"fmt"
	"io"
)

// Logs reads what the engine keeps of a stream, which is there until the job is reaped.
func (p Podman) Logs(ctx context.Context, job Ref, req LogsRequest, to io.Writer) (int64, error) {
	if err := req.check(); err != nil {
		return 0, err
	}
	known, err := p.List(ctx, []Ref{job})
	if err != nil {
		return 0, err
	}
	if len(known) == 0 {
		return 0, &NoLogsError{Why: p.Client + " does not know the job"}
	}
	if known[0].State == Queued && !req.Follow {
		return 0, nil
	}
	redirect := "2>/dev/null"
	if req.Stream == Stderr {
		redirect = "2>&1 >/dev/null"
	}
	follow := "--follow=false"
	if req.Follow {
		follow = "--follow=true"
	}
	out := &restWriter{to: to, skip: req.Offset}
	a, err := p.copy(ctx, p.Client, []string{"sh", "-c", `exec "$@" ` + redirect, "sh", p.Client, "logs", follow, known[0].ID}, "", out)
	switch {
	case err != nil:
		return out.copied, err
	case a.exit != 0:
		return out.copied, &NoLogsError{Why: fmt.Sprintf("%s logs ended with exit code %d", p.Client, a.exit)}
	}
	return out.copied, nil
}

// restWriter drops the first bytes that are written to it.
type restWriter struct {
	to     io.Writer
	skip   int64 // bytes still to drop
	copied int64
}

func (w *restWriter) Write(p []byte) (int, error) {
	skipped := min(w.skip, int64(len(p)))
	w.skip -= skipped
	if skipped == int64(len(p)) {
		return len(p), nil
	}
	n, err := w.to.Write(p[skipped:])
	w.copied += int64(n)
	return int(skipped) + n, err
}
