package fsck

import (
	"compress/zlib"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// RuleFile is a file whose content is checked before a commit keeps it: .gitmodules, .gitattributes or .gitignore.
type RuleFile struct {
	Path    string
	OID     string
	Link    bool // it is a symbolic link
	Content []byte

	known string // name of the file at the same path in a tree of the repository; empty: there is none
}

// NewRuleFile returns a file that takes the place of the one in a known commit or tree, which is in the repository; without
// one, known is empty. It sets no OID.
func NewRuleFile(at string, content []byte, known string) RuleFile {
	f := RuleFile{Path: at, Content: content}
	if known != "" && !strings.Contains(at, "\n") { // which ends a question to git cat-file
		f.known = known + ":" + at
	}
	return f
}

// FindRuleFiles lists the files in a tree whose content CheckRuleFiles checks and that a known tree, which is in the
// repository, does not have at the same path. It sets no Content.
func FindRuleFiles(n *object.BuiltTree, t *git.CatFile, known string) (files []RuleFile, err error) {
	base, err := hex.DecodeString(known)
	if err != nil || n == nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	err = git.VisitNewEntries(n, t, base, func(at string, dir *object.BuiltTree, leaf object.TreeEntry) {
		if dir == nil && isRuleFile(path.Base(at), leaf.Mode) {
			f := NewRuleFile(at, nil, known)
			f.OID, f.Link = hex.EncodeToString(leaf.OID), leaf.Mode == object.ModeSymlink
			files = append(files, f)
		}
	})
	return files, err
}

// isRuleFile reports whether CheckRuleFiles checks an entry. Git reads patterns of an index also from a symbolic link.
func isRuleFile(name string, mode uint32) bool {
	isFile := mode == object.ModeFile || mode == object.ModeExecutable
	return isFile && index.IsCheckedByFsck([]byte(name)) || (isFile || mode == object.ModeSymlink) && index.PatternFile([]byte(name)) != ""
}

// CheckRuleFiles refuses files that git fsck refuses, or that add a slow pattern, with an *Error.
// Commits pass these checks when they are received; captured files have to pass them before their tree is written, or git
// fsck would fail and remotes would refuse the branch.
func CheckRuleFiles(ctx context.Context, r *git.Repo, files []RuleFile) error {
	for _, f := range files {
		name := []byte(path.Base(f.Path))
		if pattern := index.PatternFile(name); pattern != "" {
			if err := f.checkPatterns(ctx, r, pattern); err != nil {
				return err
			}
		}
		if f.Link || !index.IsCheckedByFsck(name) {
			continue
		}
		if err := fsckRuleFile(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

// CheckAttributes refuses a .gitattributes that adds a slow pattern, with an *Error; any other file passes. It is for files
// that are not committed, before git compares paths with their patterns.
func CheckAttributes(ctx context.Context, r *git.Repo, f RuleFile) error {
	if index.PatternFile([]byte(path.Base(f.Path))) != index.AttributesFile {
		return nil
	}
	return f.checkPatterns(ctx, r, index.AttributesFile)
}

// checkPatterns refuses a slow pattern that the known file has not.
func (f RuleFile) checkPatterns(ctx context.Context, r *git.Repo, name string) error {
	refused := checkPatterns(name, f.Path, f.Content)
	if refused == nil || f.known == "" {
		return refused
	}
	t, err := r.OpenCatFile(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	old, err := t.Contents(f.known, "blob")
	if err != nil {
		return err
	}
	return checkNewPatterns(name, f.Path, f.Content, old)
}

// fsckRuleFile has git check a file in a temporary repository.
func fsckRuleFile(ctx context.Context, r *git.Repo, f RuleFile) (err error) {
	format := object.FormatOf(f.OID)
	oid, err := hex.DecodeString(f.OID)
	if err != nil {
		return err
	}
	tree := append(fmt.Appendf(nil, "%o %s\x00", object.ModeFile, path.Base(f.Path)), oid...)
	pack, err := object.EncodePack(format, []object.Raw{
		{Kind: "blob", OID: oid, Content: f.Content},
		{Kind: "tree", OID: object.HashObject(format, "tree", tree), Content: tree},
	}, zlib.NoCompression)
	if err != nil {
		return err
	}
	m, err := r.NewMirror(f.OID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	p := m.Repo.ReaderOptions("checking "+f.Path, m.Dir, m.Dir, false)
	p.Stdin = string(pack)
	_, err = m.Repo.RunWrite(ctx, p, "index-pack", "--strict", "--stdin")
	var refused *git.Error
	if errors.As(err, &refused) {
		return &Error{Path: f.Path, Why: "git fsck refuses it: " + git.StderrReason(refused.Stderr)}
	}
	return err
}
