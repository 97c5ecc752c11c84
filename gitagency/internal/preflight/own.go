package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// ownChecks returns the checks agency.preflight.<name> of the user.
func (s *subject) ownChecks() ([]check, error) {
	timeout, err := s.repo.Settings.OwnCheckTimeout()
	if err != nil {
		return nil, err
	}
	var checks []check
	for _, own := range s.repo.Settings.OwnChecks() {
		checks = append(checks, check{own.Name, func(ctx context.Context, s *subject) result { return s.runOwnCheck(ctx, own, timeout) }})
	}
	return checks, nil
}

// runOwnCheck runs a check of the user in the directory of the caller, with an empty standard input. Its result is the
// exit code, and the reason of a failure the last line of its output.
func (s *subject) runOwnCheck(ctx context.Context, own settings.OwnCheck, timeout time.Duration) result {
	remedy := "git config --get " + own.Key + " prints the command"
	if strings.TrimSpace(own.Command) == "" {
		return result{failed: true, reason: "the command is blank", remedy: "git config --global " + own.Key + " '<command>'"}
	}
	expired := fmt.Errorf("it did not end within %s", timeout)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, expired)
		defer cancel()
	}
	var out tailBuffer
	res, err := proc.Run(ctx, proc.Command{
		Argv: []string{"sh", "-c", `exec sh -c "$1" 2>&1`, "sh", own.Command}, Dir: s.repo.CallerDir, Env: s.repo.Opts.Env,
		Stdout: &out, DieWithParent: true, Grace: time.Second,
	})
	line := lastLine(out.tail)
	switch {
	case errors.Is(err, expired):
		return result{failed: true, reason: expired.Error(), remedy: remedy + "; agency.operationTimeout is its time limit"}
	case err != nil:
		return result{failed: true, reason: err.Error(), remedy: remedy}
	case res.ExitCode != 0 && line == "":
		return result{failed: true, reason: fmt.Sprintf("exit code %d", res.ExitCode), remedy: remedy}
	case res.ExitCode != 0:
		return result{failed: true, reason: fmt.Sprintf("exit code %d: %s", res.ExitCode, line), remedy: remedy}
	}
	return passed("%s succeeds", own.Key)
}

// maxTail is the number of bytes of output that are kept.
const maxTail = 4 << 10

// tailBuffer keeps the last bytes that are written to it.
type tailBuffer struct{ tail []byte }

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.tail = append(b.tail, p[max(0, len(p)-maxTail):]...)
	b.tail = append(b.tail[:0], b.tail[max(0, len(b.tail)-maxTail):]...)
	return len(p), nil
}

// maxReason is the number of bytes of a line of output in a reason.
const maxReason = 300

// lastLine returns the last line of an output that is not blank, bounded and as valid UTF-8.
func lastLine(out []byte) string {
	out = bytes.TrimSpace(out)
	line := bytes.TrimSpace(out[bytes.LastIndexByte(out, '\n')+1:])
	return strings.ToValidUTF8(string(line[:min(len(line), maxReason)]), "")
}
