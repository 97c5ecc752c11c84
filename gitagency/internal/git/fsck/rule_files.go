package fsck

import (
	"compress/zlib"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// RuleFile is a file whose content git fsck checks: .gitmodules or .gitattributes.
type RuleFile struct {
	Path    string
	OID     string
	Content []byte
}

// FindRuleFiles lists the files in a tree whose content git fsck checks and that a known tree, which is in the repository,
// does not have at the same path. It sets no Content.
func FindRuleFiles(n *object.BuiltTree, t *git.CatFile, known string) (files []RuleFile, err error) {
	base, err := hex.DecodeString(known)
	if err != nil || n == nil {
		return nil, err
	}
	if known == "" {
		base = nil
	}
	err = git.VisitNewEntries(n, t, base, func(at string, dir *object.BuiltTree, leaf object.TreeEntry) {
		if isFile := leaf.Mode == object.ModeFile || leaf.Mode == object.ModeExecutable; dir == nil && isFile && index.IsCheckedByFsck([]byte(path.Base(at))) {
			files = append(files, RuleFile{Path: at, OID: hex.EncodeToString(leaf.OID)})
		}
	})
	return files, err
}

// CheckRuleFiles refuses files that git fsck refuses, with an *Error. Commits pass this check when they are received;
// captured files have to pass it before their tree is written, or git fsck would fail and remotes would refuse the branch.
// Git checks each file in a temporary repository.
func CheckRuleFiles(ctx context.Context, r *git.Repo, files []RuleFile) error {
	for _, f := range files {
		if err := checkRuleFile(ctx, r, f); err != nil {
			return err
		}
	}
	return nil
}

func checkRuleFile(ctx context.Context, r *git.Repo, f RuleFile) (err error) {
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
