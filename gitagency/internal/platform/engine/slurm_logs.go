package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Logs reads the files of the LogDir, if the job writes there, and else runs tail on the node as a step of the job, which is
// possible while the job runs. Output of a job that has not begun is empty.
func (s Slurm) Logs(ctx context.Context, job Ref, req LogsRequest, to io.Writer) (int64, error) {
	if err := req.check(); err != nil {
		return 0, err
	}
	out := &logReader{to: to, offset: req.Offset}
	pause := firstPause
	for {
		done, err := s.copyLogs(ctx, job, req, out)
		if done || err != nil {
			return out.copied, err
		}
		if err := s.wait(ctx, pause); err != nil { // the job has not begun, or begins again
			return out.copied, err
		}
		pause = min(pause*3/2, lastPause)
	}
}

// logReader is how far the copy of a stream has got.
type logReader struct {
	to     io.Writer
	copied int64

	offset  int64 // position in the file of the next byte
	attempt int   // start of the job whose file was read on its node
	refused int   // how often Slurm refused to read there
}

func (r *logReader) Write(p []byte) (int, error) {
	n, err := r.to.Write(p)
	r.copied, r.offset = r.copied+int64(n), r.offset+int64(n)
	return n, err
}

// copyLogs copies what there is. done is false if there may be more later and the caller wants it.
func (s Slurm) copyLogs(ctx context.Context, job Ref, req LogsRequest, out *logReader) (done bool, err error) {
	if job.Dir != "" {
		if _, err := os.Lstat(logFile(job.Dir, job.Name, req.Stream)); err == nil {
			return true, s.copyFile(ctx, job, req, out)
		}
	}
	known, err := s.List(ctx, []Ref{job})
	if err != nil {
		return false, err
	}
	if len(known) > 0 && known[0].State == Queued {
		return !req.Follow, nil
	}
	if len(known) > 0 && known[0].State == Running {
		id, err := parseID(known[0].ID)
		if err != nil {
			return false, err
		}
		if out.attempt != 0 && out.attempt != known[0].Attempt {
			out.offset = 0 // each start has a file of its own
		}
		return s.copyFromNode(ctx, id, known[0].Attempt, job, req, out)
	}
	if out.attempt != 0 {
		return true, nil // it was followed until its end
	}
	if job.Dir != "" { // it may have begun and ended since we looked
		if _, err := os.Lstat(logFile(job.Dir, job.Name, req.Stream)); err == nil {
			return true, s.copyFile(ctx, job, req, out)
		}
	}
	if len(known) == 0 {
		return false, &NoLogsError{Why: "Slurm does not know the job, and it wrote no file in its log directory"}
	}
	return false, &NoLogsError{Why: "the job has ended, and its node did not see the log directory"}
}

// copyFile copies the file of a LogDir, which the job may still write to.
func (s Slurm) copyFile(ctx context.Context, job Ref, req LogsRequest, out *logReader) error {
	const lookPause = 200 * time.Millisecond // between two looks at the file
	pause, asked := firstPause, time.Time{}
	for {
		// Its end must be read after the job was seen to have ended.
		ended := !req.Follow
		if req.Follow && time.Since(asked) >= pause {
			known, err := s.List(ctx, []Ref{job})
			var unreachable *UnreachableError
			if err != nil && (!errors.As(err, &unreachable) || unreachable.Missing) {
				return err
			}
			ended = err == nil && (len(known) == 0 || known[0].State == Ended)
			pause, asked = min(pause*3/2, lastPause), time.Now()
		}
		before := out.copied
		if err := copyFrom(logFile(job.Dir, job.Name, req.Stream), out.offset, out); err != nil || ended {
			return err
		}
		if out.copied > before {
			pause = firstPause
		}
		if err := s.wait(ctx, lookPause); err != nil {
			return err
		}
	}
}

// copyFrom copies a file from a position on. It opens the file anew each time: NFS looks for changes of others at open.
func copyFrom(path string, offset int64, out io.Writer) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &NoLogsError{Why: "its log file was removed"}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// copyFromNode copies output that is on the node of a job that runs.
func (s Slurm) copyFromNode(ctx context.Context, id slurmID, attempt int, job Ref, req LogsRequest, out *logReader) (done bool, err error) {
	a, err := s.channel().copy(ctx, slurmName, readArgs(id, job.Name, req, out.offset), "", out)
	switch {
	case err != nil:
		return false, err
	case a.exit == noOutput: // nothing was written yet
		return !req.Follow, nil
	case a.exit == 0:
		out.attempt = attempt
		return !req.Follow, nil
	case !req.Follow:
		return false, &NoLogsError{Why: a.detail()}
	case a.exit > signaled: // with the job, whose state says what comes now
		out.attempt = attempt
	case !a.isUnknownJob() && !strings.Contains(a.stderr, "pending"): // it has just ended or is requeued, as the next look tells
		if out.refused++; out.refused == 5 {
			return false, &NoLogsError{Why: a.detail()}
		}
	}
	return false, nil
}

// signaled is added to the number of a signal in the exit code of srun.
const signaled = 128

// readArgs returns the command line of srun that reads a stream on the node, with resources that the job has already. The
// step gets no environment but the PATH.
func readArgs(id slurmID, name string, req LogsRequest, offset int64) []string {
	follow := ""
	if req.Follow {
		follow = "-f"
	}
	return append(id.client("srun"), "--jobid="+id.number, "--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--input=none", "--unbuffered",
		"--chdir=/", "--export=PATH", "sh", "-c", readScript, "sh", name, string(req.Stream), strconv.FormatInt(offset+1, 10), follow)
}
