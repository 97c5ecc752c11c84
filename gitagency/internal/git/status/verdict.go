package status

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// verdictFile is a file in the administrative directory of a worktree. It says that git exceeded a limit when it converted
// certain files, so that not every command tries that again.
const verdictFile = "agency-verdict"

// verdict is the content of verdictFile.
type verdict struct {
	Input    string                  `json:"input"` // digest of the staged files, the rules for them, and the limits but that of time
	Limits   readlimit.Limits        `json:"limits"`
	Exceeded readlimit.ExceededError `json:"exceeded"`
}

// SavedVerdict returns the error of the last scan of a worktree if that exceeded a limit, and the same limits are in force.
// It returns nil when there is none.
func SavedVerdict(r *git.Repo, name string) error {
	for _, file := range []string{verdictFile, ignoreVerdictFile} {
		var v verdict
		if readVerdict(filepath.Join(r.AdminDir(name), file), &v) && v.holds(r.ReadLimits) && withoutTime(v.Limits) == withoutTime(r.ReadLimits) {
			return &v.Exceeded
		}
	}
	return nil
}

// holds reports whether the verdict would be the same with the limit of time in l, where the other limits are equal. A
// locked repository has less time.
func (v verdict) holds(l readlimit.Limits) bool {
	return v.Exceeded.Limit != readlimit.Time || v.Limits.Time >= l.Time
}

func withoutTime(l readlimit.Limits) readlimit.Limits {
	l.Time = 0
	return l
}

// dropVerdicts removes the verdicts of earlier scans after one that exceeded no limit.
func (v *worktreeScan) dropVerdicts() {
	if v.spec.IndexCache != "" || v.spec.IncludeIgnored {
		return
	}
	for _, file := range []string{verdictFile, ignoreVerdictFile} {
		_ = os.Remove(filepath.Join(v.repo.AdminDir(v.spec.Name), file)) // most often there is none; it is only a cache
	}
}

// readVerdict reads a verdict of either kind. It reports whether there is one.
func readVerdict(path string, v any) bool {
	data, err := durable.ReadFile(path, maxVerdict)
	return err == nil && json.Unmarshal(data, v) == nil
}

// stagedDigest returns the digest of everything that the conversion of the staged files depends on.
func (h *fileHasher) stagedDigest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v\n%s\n", withoutTime(h.repo.ReadLimits), ReadConfigDigest(h.repo))
	for _, name := range h.staged {
		st := h.stats[name]
		fmt.Fprintf(sum, "%q %+v\n", name, git.FileStatOf(&st))
	}
	for _, rules := range h.stage.rules {
		fmt.Fprintf(sum, "%q %+v\n", rules.name, rules.stat)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// knownVerdict returns the error of an earlier conversion of the same files; nil when there was none.
func (h *fileHasher) knownVerdict(input string) error {
	var v verdict
	if !readVerdict(h.verdictPath(), &v) || v.Input != input || !v.holds(conversionLimits(h.repo)) {
		return nil // there is none, or for other files, or for less time
	}
	return &v.Exceeded
}

// rememberVerdict saves the error of a conversion if a limit was exceeded. A worktree without an administrative directory
// has no place for it.
func (h *fileHasher) rememberVerdict(input string, err error) error {
	var exceeded *readlimit.ExceededError
	if !errors.As(err, &exceeded) || h.spec.IndexCache != "" {
		return err
	}
	data, encodeErr := json.Marshal(verdict{Input: input, Limits: conversionLimits(h.repo), Exceeded: *exceeded})
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return errors.Join(err, os.WriteFile(h.verdictPath(), append(data, '\n'), 0o600))
}

func (h *fileHasher) verdictPath() string {
	return filepath.Join(h.repo.AdminDir(h.spec.Name), verdictFile)
}
