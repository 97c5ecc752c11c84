package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// strays sorts out what has no entry in the index: what belongs to the state, what is ignored, and what is left
// out and said to be.
func (v *view) strays(ctx context.Context) error {
	var asked []string
	for _, f := range v.first.loose {
		asked = append(asked, f.name)
	}
	ignored, err := v.ignored(ctx, asked)
	if err != nil {
		return err
	}
	for _, f := range v.first.loose {
		dir, isDir := strings.CutSuffix(f.name, "/")
		switch {
		case ignored[f.name]:
			if isDir {
				v.passed = append(v.passed, dir)
			}
		case !isDir:
			v.claim(f)
		case v.isNested(dir):
			v.leftOut = append(v.leftOut, LeftOut{dir, Repository})
		default:
			// Git would skip what cannot be read without a word, and wait for a pipe for ever.
			_, _, err := walk(filepath.Join(v.s.Tree, dir))
			if nothingThere(err) {
				return &UnsettledError{Tree: v.s.Tree, Paths: []string{dir}} // it has just gone
			}
			if err != nil {
				return err
			}
			if err := v.stampAround(dir); err != nil {
				return err
			}
			v.dirs = append(v.dirs, dir)
		}
	}
	if v.listed, err = v.list(ctx); err != nil {
		return err
	}
	for _, name := range v.listed {
		if dir, nested := strings.CutSuffix(name, "/"); nested {
			v.leftOut = append(v.leftOut, LeftOut{dir, Repository})
			continue
		}
		if err := v.claimNamed(name); err != nil {
			return err
		}
	}
	for _, name := range v.s.Also {
		if err := v.force(name); err != nil {
			return err
		}
	}
	if !v.s.asIs {
		var nested []string
		for _, l := range v.leftOut {
			if l.Why == Repository {
				nested = append(nested, filepath.Join(v.s.Tree, l.Path))
			}
		}
		if len(nested) > 0 {
			return &NestedError{Tree: v.s.Tree, Paths: nested}
		}
	}
	return nil
}

// stampAround notes when the directories in one without an entry last changed, before they are listed.
func (v *view) stampAround(dir string) error {
	if v.around == nil {
		v.around = map[string]stamp{}
	}
	return filepath.WalkDir(filepath.Join(v.s.Tree, dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since it was listed, which the one around it tells
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		name, err := filepath.Rel(v.s.Tree, path)
		if err == nil {
			v.around[name] = v.stampNow(name)
		}
		return err
	})
}

func (v *view) isNested(dir string) bool {
	_, err := os.Lstat(filepath.Join(v.s.Tree, dir, ".git"))
	return err == nil
}

// claim takes a file into the state, unless it looks like a secret.
func (v *view) claim(f found) {
	if v.s.secret(f.name) {
		v.leftOut = append(v.leftOut, LeftOut{f.name, Secret})
		return
	}
	v.stray = append(v.stray, f)
}

func (v *view) claimNamed(name string) error {
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(v.s.Tree, name), &st)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return nil // gone since
	case err != nil:
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if kind := uint32(st.Mode) & unix.S_IFMT; kind == unix.S_IFREG || kind == unix.S_IFLNK {
		v.claim(found{name, stampOf(&st)})
	}
	return nil
}

// force takes into the state what is at a path, whatever else says that it does not belong there.
func (v *view) force(name string) error {
	open := *v
	open.s.Secrets = nil
	if !direct(v.s.Tree, name) { // git does not follow either
		return nil
	}
	err := filepath.WalkDir(filepath.Join(v.s.Tree, name), func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(v.s.Tree, at)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if v.isNested(rel) {
				return &NestedError{Tree: v.s.Tree, Paths: []string{at}}
			}
			return nil
		}
		tracked := func() bool {
			_, there := slices.BinarySearchFunc(v.entries, rel, func(e stagedEntry, rel string) int { return strings.Compare(string(e.name), rel) })
			return there
		}
		if slices.ContainsFunc(v.stray, func(f found) bool { return f.name == rel }) || tracked() {
			return nil
		}
		return open.claimNamed(rel)
	})
	v.stray = open.stray
	v.leftOut = slices.DeleteFunc(v.leftOut, func(l LeftOut) bool {
		return slices.ContainsFunc(v.stray, func(f found) bool { return f.name == l.Path })
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// secret reports whether a file that nobody has added looks like a credential, by its name.
func (s Subject) secret(name string) bool {
	is := false
	for _, pattern := range s.Secrets {
		pattern, not := strings.CutPrefix(pattern, "!")
		subject := path.Base(name)
		if strings.Contains(pattern, "/") {
			pattern, subject = strings.TrimPrefix(pattern, "/"), name
		}
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(subject)); err == nil && ok {
			is = !not
		}
	}
	return is
}

// ignored says which of these names git ignores. Nobody is asked about names with an entry.
func (v *view) ignored(ctx context.Context, names []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if len(names) == 0 || v.s.Ignored {
		return ignored, nil
	}
	const here = "./" // without it, what begins with a colon would be magic
	var question strings.Builder
	for _, name := range names {
		// Of a directory, with a slash behind, git would read the rules that are in it, and wait if they are a pipe.
		question.WriteString(here + strings.TrimSuffix(name, "/") + "\x00")
	}
	say := func(name string) {
		name = strings.TrimPrefix(name, here)
		ignored[name], ignored[name+"/"] = true, true
	}
	if told := v.told(); told != nil {
		asked := proc.Meanwhile(func() (struct{}, error) {
			return struct{}{}, told.Ask(question.String())
		})
		defer func() {
			_, _ = told.Close()
			_, _ = asked() // which has nobody left to tell
		}()
		for range names {
			var answer [4]string // the file, the line and the pattern that say so, and the name
			for i := range answer {
				text, err := told.Answers.ReadString(0)
				if err != nil {
					return nil, fmt.Errorf("git check-ignore: %w", cmp.Or(context.Cause(ctx), err))
				}
				answer[i] = strings.TrimSuffix(text, "\x00")
			}
			if pattern := answer[2]; pattern != "" && pattern[0] != '!' {
				say(answer[3])
			}
		}
		_, err := asked()
		return ignored, err
	}
	p, err := v.bench()
	if err != nil {
		return nil, err
	}
	p.stdin = question.String()
	out, err := v.r.read(ctx, p, checkIgnore...)
	if err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		say(name)
	}
	return ignored, nil
}

var checkIgnore = []string{"check-ignore", "--no-index", "-z", "--stdin"}

// prepareToAsk starts a git that will be asked what is ignored as soon as there is something to ask: by the time that we
// know all of it, it has begun. What it returns lets it go.
func (v *view) prepareToAsk(ctx context.Context) (done func()) {
	var starting func() (*proc.Conversation, error)
	v.noticed = sync.OnceFunc(func() {
		if v.s.Ignored {
			return
		}
		p, err := v.bench()
		if err != nil {
			return // which whoever needs it is told
		}
		p.env = append(slices.Clone(p.env), "GIT_OPTIONAL_LOCKS=0")
		starting = proc.Meanwhile(func() (*proc.Conversation, error) {
			return v.r.talk(ctx, p, append(slices.Clone(checkIgnore), "--verbose", "--non-matching")...)
		})
	})
	v.told = func() *proc.Conversation {
		if starting == nil {
			return nil
		}
		told, err := starting()
		if starting = nil; err != nil {
			return nil // then one is started that says why
		}
		return told // it is asked once
	}
	return func() {
		if told := v.told(); told != nil {
			_, _ = told.Close()
		}
	}
}

// list lists the files in directories of which nothing has an entry. A repository in there is listed as a
// directory.
func (v *view) list(ctx context.Context) ([]string, error) {
	if len(v.dirs) == 0 {
		return nil, nil
	}
	p, err := v.bench()
	if err != nil {
		return nil, err
	}
	p.env = append(slices.Clone(p.env), "GIT_LITERAL_PATHSPECS=1", "GIT_INDEX_FILE="+filepath.Join(p.gitDir, "none"))
	args := []string{"ls-files", "--others", "-z"}
	if !v.s.Ignored {
		args = append(args, "--exclude-standard")
	}
	const most = 64 << 10 // bytes of them, which are arguments
	var all []string
	for left := v.dirs; len(left) > 0; {
		n, size := 1, len(left[0])
		for n < len(left) && size+len(left[n]) < most {
			size += len(left[n]) + 1
			n++
		}
		out, err := v.r.read(ctx, p, slices.Concat(args, []string{"--"}, left[:n])...)
		left = left[n:]
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if name != "" {
				all = append(all, name)
			}
		}
	}
	return all, nil
}
