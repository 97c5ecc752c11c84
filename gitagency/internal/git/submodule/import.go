package submodule

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
)

// Import copies the commits that HEAD, refs and reflogs of the repository of the checkout name and the user's repository of
// the submodule lacks. They become ancestors of the commit at ref. It is for a sandbox without walls, whose objects git on
// the host may read; it reads everything else in that repository as data. The caller holds the repository lock.
func (c Checkout) Import(ctx context.Context, ref string, author object.Identity) (err error) {
	if c.Source == nil {
		return nil
	}
	scratch, err := git.MakeTempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	if err := os.Mkdir(filepath.Join(scratch.Path, "objects"), 0o700); err != nil {
		return err
	}
	both := *c.Source
	both.Env = append(slices.Clone(both.Env), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+git.QuoteAlternate(filepath.Join(c.PrivateDir(), "objects")))
	reader := both.DryRunRepo(scratch.Path)
	found, err := c.Source.Lookup(ctx, ref, "HEAD^{commit}")
	if err != nil {
		return err
	}
	old := found[0].OID
	tip := cmp.Or(old, found[1].OID)
	parents, err := c.newTips(ctx, reader)
	if err != nil || len(parents) == 0 {
		return err
	}
	if tip != "" {
		parents = append([]string{tip}, parents...)
	}
	tree, err := reader.Lookup(ctx, parents[0]+"^{tree}")
	if err != nil {
		return err
	}
	commit, err := reader.CommitTree(ctx, git.WorktreeSpec{Author: author}, tree[0].OID, parents, "other commits of the sandbox")
	if err != nil {
		return err
	}
	pack, err := os.Create(filepath.Join(scratch.Path, "pack"))
	if err != nil {
		return err
	}
	defer pack.Close()
	refs, err := c.Source.Refs(ctx)
	if err != nil {
		return err
	}
	wants := commit + "\n"
	for _, oid := range slices.Compact(slices.Sorted(maps.Values(refs))) {
		wants += "^" + oid + "\n"
	}
	if _, err := reader.RunRead(ctx, git.RunOptions{Stdin: wants, Stdout: pack, Reading: reader.ReadingOf("packing the commits of " + c.Path)},
		"pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--window=0", "-q"); err != nil {
		return err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err = transport.Receive(ctx, c.Source, transport.ReceiveRequest{Pack: pack, Ref: ref, New: commit, Old: old, Reason: "agency: commits of a sandbox"})
	_ = os.Remove(c.Source.AgencyDir()) // fails unless it is empty
	return err
}

// newTips lists the commits that HEAD, refs and reflogs of the repository of the checkout name and no ref of the user's
// repository leads to. reader reads the objects of both.
func (c Checkout) newTips(ctx context.Context, reader *git.Repo) ([]string, error) {
	oids, err := c.namedObjects()
	if err != nil || len(oids) == 0 {
		return nil, err
	}
	peeled := make([]string, len(oids))
	for i, oid := range oids {
		peeled[i] = oid + "^{commit}"
	}
	commits, err := reader.Lookup(ctx, peeled...)
	if err != nil {
		return nil, err
	}
	var tips []string
	for _, found := range commits {
		if !found.Missing() {
			tips = append(tips, found.OID)
		}
	}
	slices.Sort(tips)
	tips = slices.Compact(tips)
	unreferenced, err := listUnreferenced(ctx, reader, tips)
	if err != nil {
		return nil, err
	}
	return reader.AddIndependent(ctx, nil, slices.DeleteFunc(tips, func(oid string) bool { return !slices.Contains(unreferenced, oid) }))
}

// namedObjects lists the object ids in HEAD, refs and reflogs of the repository of the checkout.
func (c Checkout) namedObjects() (oids []string, err error) {
	dir, rel, err := c.privateRepo()
	if err != nil {
		return nil, err
	}
	top, err := beneath.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, top.Close()) }()
	var read func(name string) error
	read = func(name string) error {
		if entries, _, err := top.ReadDir(name); err == nil {
			for _, e := range entries {
				if err := read(filepath.Join(name, e.Name)); err != nil {
					return err
				}
			}
			return nil
		}
		file, _, err := top.OpenFile(name)
		if beneath.IsGone(err) || errors.As(err, new(*beneath.NotRegularError)) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		const most = 64 << 20
		data, err := io.ReadAll(io.LimitReader(file, most))
		for _, oid := range objectID().FindAllString(string(data), -1) {
			if strings.Trim(oid, "0") != "" && object.IsOID(oid) {
				oids = append(oids, oid)
			}
		}
		return err
	}
	for _, name := range []string{"HEAD", "packed-refs", "refs", "logs"} {
		if err := read(filepath.Join(rel, name)); err != nil {
			return nil, err
		}
	}
	slices.Sort(oids)
	return slices.Compact(oids), nil
}

// objectID matches the full id of an object.
var objectID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b`) })
