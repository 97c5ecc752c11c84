package git

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Ground is what the state of every worktree, and what becomes of merging them, depends on besides what is in them:
// settings, and the rules that lie elsewhere.
type Ground struct {
	rules string
	own   bool // a worktree may have a file of settings of its own
	apart bool // files are included in one worktree, and perhaps not in another
}

// String is the same for the same ground.
func (g Ground) String() string { return hex.EncodeToString([]byte(g.rules)) }

type groundSum [sha256.Size]byte

// Ground reads it.
func (r *Repo) Ground() Ground {
	var all strings.Builder
	for _, key := range slices.Sorted(maps.Keys(r.Config)) {
		section, _, _ := strings.Cut(key, ".")
		if slices.Contains([]string{"core", "diff", "extensions", "filter", "merge"}, section) {
			for _, s := range r.Config[key] {
				fmt.Fprintf(&all, "%q %q %q %t\n", key, s.Value, s.Scope, s.Bare)
			}
		}
	}
	for _, file := range r.rulesElsewhere() {
		fmt.Fprintf(&all, "%q %q\n", file, ruleText(file))
	}
	sum := sha256.Sum256([]byte(all.String()))
	return Ground{rules: string(sum[:]), own: r.boolean(worktreeConfig, false), apart: r.includesVary()}
}

// rulesElsewhere are files outside of worktrees that say what is ignored, and how files are to be understood. Not all are
// there, and of some it is not sure that git goes by them.
func (r *Repo) rulesElsewhere() []string {
	files := append(r.rulesFor("core.excludesfile", "exclude", "ignore"), r.attributesElsewhere()...)
	return append(files, filepath.Join(r.CommonDir, "config")) // of which not every setting was read
}

// attributesElsewhere are those of them that attributes are in.
func (r *Repo) attributesElsewhere() []string {
	return append(r.rulesFor("core.attributesfile", "attributes", "attributes"), "/etc/gitattributes")
}

// rulesFor are the files in which a kind of rules is: of the repository, of the user, and those that a setting names.
func (r *Repo) rulesFor(key, info, users string) []string {
	home := proc.Variable(r.env, "HOME")
	files := []string{filepath.Join(r.CommonDir, "info", info)}
	for _, dir := range []string{proc.Variable(r.env, "XDG_CONFIG_HOME"), filepath.Join(home, ".config")} {
		files = append(files, filepath.Join(dir, "git", users))
	}
	for _, s := range r.Config[key] {
		file := s.Value
		if rest, his := strings.CutPrefix(file, "~/"); his {
			file = filepath.Join(home, rest)
		}
		files = append(files, file)
	}
	return files
}

// ruleText is what a file says, or why it does not.
func ruleText(file string) string {
	const most = 64 << 20
	f, _, err := openRegular(file)
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err = errors.Join(err, f.Close()); err != nil {
		return err.Error()
	}
	return string(data)
}

// groundOf is the ground of one worktree, of which this is the index. There is none where what is set for it alone is in
// files of which only git knows.
func (r *Repo) groundOf(g Ground, s Subject, index stamp) (sum groundSum, ok bool) {
	var own []byte
	if g.own {
		var err error
		own, err = durable.ReadFile(filepath.Join(r.AdminDir(s.Name), ownConfig), 1<<20)
		if err != nil && !nothingThere(err) {
			return sum, false
		}
	}
	all := fmt.Appendf(nil, "%q %q %q %q %q %t %t %+v %q", g.rules, s.Name, s.Tree, s.Omit, s.Secrets, s.Ignored, s.Trusted, index, own)
	elsewhere := func(word string) bool { return strings.Contains(strings.ToLower(string(own)), word) }
	return sha256.Sum256(all), !g.apart && !slices.ContainsFunc([]string{"include", "excludesfile", "attributesfile"}, elsewhere)
}

// indexStamp is that of the index of a worktree; none where its time would not tell that it has changed, or there is more
// than one file of it.
func (r *Repo) indexStamp(s Subject) stamp {
	admin := r.AdminDir(s.Name)
	now := stampClock(admin)
	if shared, err := filepath.Glob(filepath.Join(admin, "sharedindex.*")); err != nil || len(shared) > 0 {
		return stamp{}
	}
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(admin, "index"), &st) != nil || uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
		return stamp{}
	}
	if is := stampOf(&st); is.ctime < now {
		return is
	}
	return stamp{}
}
