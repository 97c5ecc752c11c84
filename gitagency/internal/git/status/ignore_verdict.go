package status

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ignoreVerdictFile is a file in the administrative directory of a worktree. It says that the ignore rules exceeded their
// limit on certain untracked paths, so that not every command evaluates them again.
const ignoreVerdictFile = "agency-ignore-verdict"

// maxVerdict is the size of the largest verdict in bytes, of about 50,000 directories.
const maxVerdict = 8 << 20

// ignoreVerdict is the content of ignoreVerdictFile. The rules decide which directories are listed, and so which rules are
// read. Equal input therefore leads to the same evaluation as long as all the directories and rules have not changed.
type ignoreVerdict struct {
	verdict               // its input: the untracked paths that the scan found, the settings and the limits
	Read    []ignoreInput `json:"read"`
}

// ignoreInput is a directory that was listed, or a file of rules that was read, before the limit was exceeded.
type ignoreInput struct {
	Name []byte       `json:"name"` // not text, which JSON limits to UTF-8
	Stat git.FileStat `json:"stat"` // zero for a file that does not exist
}

// ignoreDigest returns the digest of everything outside the read directories and files that the evaluation of the ignore
// rules depends on.
func (v *worktreeScan) ignoreDigest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v\n%s\n%q\n", v.repo.ReadLimits, ReadConfigDigest(v.repo), v.excludesFile())
	for _, f := range v.result.untracked {
		fmt.Fprintf(sum, "%q\n", f.name)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// knownIgnoreVerdict returns the error of an earlier evaluation of the same rules on the same untracked paths; nil when
// there was none.
func (v *worktreeScan) knownIgnoreVerdict() error {
	if len(v.result.untracked) == 0 || v.spec.IncludeIgnored || v.spec.IndexCache != "" {
		return nil
	}
	var known ignoreVerdict
	if !readVerdict(v.ignoreVerdictPath(), &known) || known.Input != v.ignoreDigest() {
		return nil // there is none, or for other paths
	}
	for _, in := range known.Read {
		if v.statNow(string(in.Name)) != in.Stat {
			return nil
		}
	}
	return &known.Exceeded
}

// rememberIgnoreVerdict saves the error of classifyUntracked if the rules exceeded their limit. It does not if one of the
// directories and files changed after the scan began, where that is known, and may change again in the same tick of the
// clock.
func (v *worktreeScan) rememberIgnoreVerdict(err error) error {
	var exceeded *readlimit.ExceededError
	if !errors.As(err, &exceeded) || exceeded.Limit != readlimit.Time || v.spec.IndexCache != "" {
		return err
	}
	known := ignoreVerdict{verdict: verdict{v.ignoreDigest(), v.repo.ReadLimits, *exceeded}}
	for _, read := range []map[string]git.FileStat{v.untrackedDirStats, v.ignoreRules.fileStats} {
		for name, st := range read {
			if v.startedAt != 0 && st.Ctime >= v.startedAt {
				return err
			}
			known.Read = append(known.Read, ignoreInput{[]byte(name), st})
		}
	}
	data, encodeErr := json.Marshal(known)
	if encodeErr != nil || len(data) > maxVerdict {
		return errors.Join(err, encodeErr)
	}
	return errors.Join(err, os.WriteFile(v.ignoreVerdictPath(), data, 0o600))
}

func (v *worktreeScan) ignoreVerdictPath() string {
	return filepath.Join(v.repo.AdminDir(v.spec.Name), ignoreVerdictFile)
}
