package main

import (
	"crypto/sha1"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// plant is something that an agent leaves for the host to find: settings, attributes, repositories and refs by which a
// git that trusts them runs a program, or never ends.
type plant struct {
	name   string
	script string // for sh, in the sandbox; see plantPrelude
	shown  string // for sh, in the tree, outside and without walls: a plain git that falls for it

	hangs   bool   // the plain git does not run anything, but waits for ever
	none    int    // what "snapshot create" ends with then, without walls
	os      int    // and behind walls
	open    bool   // it is not tried behind walls, where whoever asks git inside waits as long as he waits for anything
	stays   bool   // discard refuses: nothing can keep what is there
	outside string // for sh, in the repository: what is left of it that only the host can take away
}

// plantPrelude knows a program that leaves a trace outside, and where git keeps what.
const plantPrelude = `E=$TOOLS/evil; G=$(git rev-parse --git-common-dir); A=$(git rev-parse --absolute-git-dir); M=1234567890123456789012345678901234567890
commit() { git -c core.fsmonitor=false -c core.hooksPath=/dev/null commit -q --no-verify --no-gpg-sign --allow-empty -m "$1"; }
settings() {
	for s in core.sshCommand core.gitProxy core.alternateRefsCommand core.askPass core.editor core.pager pager.agency pager.diff uploadpack.packObjectsHook \
		gpg.program gpg.ssh.program credential.helper trailer.x.command trailer.x.cmd diff.external diff.x.command diff.x.textconv merge.x.driver \
		browser.x.cmd man.x.cmd sendemail.smtpServer mergetool.x.cmd difftool.x.cmd interactive.diffFilter remote.origin.uploadpack receive.procReceiveRefs \
		tar.x.command instaweb.httpd guitool.x.cmd hook.x.command; do git config $s "$E"; done
	for s in st agency snapshot diff status rollback cat-file update-index read-tree check-attr; do git config alias.$s "!$E"; done
	git config commit.gpgSign true; git config log.showSignature true; git config submodule.recurse true; git config protocol.allow always; git config protocol.ext.allow always
}
`

var plants = []plant{
	// Filters.
	{
		name: "a filter", shown: `git add -A`, none: 5, outside: `git config --remove-section filter.x`,
		script: `for k in clean smudge process; do git config filter.x.$k "$E"; done; git config filter.x.required true; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a filter by attributes of the repository", shown: `git add -A`, none: 5, outside: `git config --remove-section filter.x`,
		script: `mkdir -p $G/info; git config filter.x.clean "$E"; git config filter.x.smudge "$E"; echo '* filter=x' >$G/info/attributes; echo changed >readme`,
	},
	{
		name: "a filter in a file that is included, with attributes elsewhere", shown: `git add -A`, none: 5, outside: `git config --unset include.path`,
		script: `printf '[filter "x"]\n\tclean = %s\n\tsmudge = %s\n' "$E" "$E" >more; git config include.path $PWD/more; echo '* filter=x' >rules; git config core.attributesFile $PWD/rules; echo changed >readme`,
	},
	{
		name: "a filter of the worktree alone", shown: `git add -A`, none: 5, outside: `for f in .git/worktrees/*/config.worktree; do git config --file $f --remove-section filter.x; done`,
		script: `git config extensions.worktreeConfig true; git config --worktree filter.x.clean "$E"; git config --worktree filter.x.smudge "$E"; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a filter by the branch", shown: `git add -A`, none: 5, outside: `git config --remove-section "includeIf.onbranch:**"`,
		script: `printf '[filter "x"]\n\tclean = %s\n\tsmudge = %s\n' "$E" "$E" >$TOOLS/more; git config "includeIf.onbranch:**.path" $TOOLS/more; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "programs of every worktree alone", shown: `git status`,
		script: `git config extensions.worktreeConfig true; for d in $G $G/worktrees/*; do for k in core.fsmonitor core.sshCommand core.editor core.pager diff.external merge.x.driver filter.y.clean filter.y.smudge filter.y.process; do git config --file $d/config.worktree $k "$E"; done; git config --file $d/config.worktree core.hooksPath $TOOLS/h; done
			mkdir -p $TOOLS/h; for h in pre-commit reference-transaction post-index-change post-checkout; do cp "$E" $TOOLS/h/$h; done; echo changed >readme; echo new >newer`,
	},
	{
		name: "another program for a filter that the user has", shown: `git add -A`,
		script: `for k in clean smudge process; do git config filter.users.$k "$E"; done; echo '* filter=users' >.gitattributes; echo changed >readme`,
	},
	{
		name:   "attributes that convert",
		script: `printf 'readme working-tree-encoding=UTF-16 text eol=crlf ident\n* -text -diff merge=binary\n' >.gitattributes; printf 'x\0' >sub/one; echo '$Id$' >readme; git config core.autocrlf true; git config core.safecrlf true`,
		none:   1, os: 1, stays: true, // as git add says: the file is not in that encoding
	},

	// Programs that git runs.
	{name: "hooks", shown: `git commit -q --allow-empty -m x`, script: `mkdir -p $G/hooks; for h in pre-commit post-checkout post-index-change reference-transaction post-commit pre-auto-gc proc-receive; do cp "$E" $G/hooks/$h; done`},
	{name: "a directory of hooks", shown: `git commit -q --allow-empty -m x`, script: `mkdir h; for h in pre-commit reference-transaction post-index-change post-checkout; do cp "$E" h/$h; done; git config core.hooksPath $PWD/h`},
	{name: "a file system monitor", shown: `git status`, script: `git update-index --fsmonitor 2>/dev/null; git config core.fsmonitor "$E"; git config core.untrackedCache true; echo changed >readme`},
	{name: "programs of every kind", shown: `git st </dev/null; git diff </dev/null; printf 'protocol=https\nhost=x.invalid\n\n' | git credential fill`, script: `settings; echo '* diff=x merge=x' >.gitattributes; echo changed >readme`},
	{name: "a signature to check", shown: `git log -1 --show-signature`, script: `git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----' >$TOOLS/c; git reset -q --soft $(git hash-object -t commit -w $TOOLS/c); git config gpg.program "$E"; git config log.showSignature true`},
	{name: "a driver that merges", shown: `git merge -q other`, script: `echo '* merge=x' >.gitattributes; git add -A; commit attributes; git branch other; echo ours >readme; git add -A; commit ours; git checkout -q other; echo theirs >readme; git add -A; commit theirs; git checkout -q -; git config merge.x.driver "$E"`},

	// Programs that fetch what is missing.
	{
		name: "a remote that promises", shown: `git cat-file -p 1234567890123456789012345678901234567890`, none: 1,
		script: `settings; git config core.repositoryFormatVersion 1; git config extensions.partialClone evil; git config remote.evil.promisor true; git config remote.evil.url "ext::$E"; git update-index --add --cacheinfo 100644,$M,ghost`,
		stays:  true,
	},
	{
		name: "a remote that promises, by ssh", shown: `git cat-file -p 1234567890123456789012345678901234567890`, none: 1,
		script: `settings; git config remote.evil.promisor true; git config remote.evil.url ssh://x.invalid/y; git config remote.evil.uploadpack "$E"; git update-index --add --cacheinfo 100644,$M,ghost`,
		stays:  true,
	},
	{
		name: "a snapshot of which a remote has the files", shown: `git cat-file -p 1234567890123456789012345678901234567890`,
		script: `git config remote.evil.promisor true; git config remote.evil.url "ext::$E"; git config protocol.allow always
			t=$(printf '100644 blob %s\tghost\n' $M | git mktree --missing); c=$(printf 'x\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Head: %s\n' $ID $(git rev-parse HEAD) $(git rev-parse HEAD) | git commit-tree $t -p HEAD); git update-ref refs/agency/snapshots/$ID/2 $c`,
	},
	{
		name: "objects elsewhere", shown: `git -c protocol.file.allow=always fetch -q "$(git rev-parse --git-common-dir)" HEAD; git fetch -q . HEAD:refs/heads/fetched`,
		script: `git init -q --bare store; git push -q store HEAD:refs/heads/x; for k in filter.x.clean core.fsmonitor core.alternateRefsCommand; do git -C store config $k "$E"; git config $k "$E"; done; git config --unset core.fsmonitor; mkdir -p $G/objects/info; echo $PWD/store/objects >$G/objects/info/alternates; echo changed >readme`,
		stays:  true,
	},

	// Repositories that are not the repository.
	{
		name: "a redirected .git", shown: `git status`, stays: true,
		script: `git init -q mine; for k in core.fsmonitor filter.x.clean diff.external; do git -C mine config $k "$E"; done; echo '* filter=x' >.gitattributes; echo "gitdir: $PWD/mine/.git" >.git; echo changed >readme`,
	},
	{
		name: "a directory for .git", shown: `git status`, stays: true,
		script: `rm -f .git && git init -q . && git config core.fsmonitor "$E" && git config filter.x.clean "$E"; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a link for .git", shown: `git status`, stays: true,
		script: `git init -q mine; git -C mine config core.fsmonitor "$E"; git -C mine config filter.x.clean "$E"; rm -f .git && ln -s mine/.git .git; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "repositories in the tree", shown: `git -C nested status; git -C kept status`, stays: true,
		script: `git config submodule.recurse true; for r in nested kept ignored; do git init -q $r; (cd $r; echo y >y; git add y; commit y; echo z >y; git config core.fsmonitor "$E"; git config filter.x.clean "$E"; git config filter.x.smudge "$E"; echo '* filter=x' >.gitattributes; mkdir -p .git/hooks; for h in post-checkout post-index-change; do cp "$E" .git/hooks/$h; done); done
			echo /ignored >.gitignore; git update-index --add --cacheinfo 160000,$(git -C kept rev-parse HEAD),kept; printf '[submodule "kept"]\n\tpath = kept\n\turl = ext::%s\n\tupdate = !%s\n\tfetchRecurseSubmodules = true\n' "$E" "$E" >.gitmodules; git config submodule.kept.update "!$E"; git config submodule.kept.active true; git config diff.submodule log`,
	},

	// What git believes, and what it waits for.
	{name: "a pipe for .gitignore", hangs: true, shown: `git status`, script: `rm -f .gitignore; mkfifo .gitignore; echo changed >readme`, none: 1, os: 1, stays: true},
	{name: "a pipe for .gitignore below", hangs: true, shown: `git add -A`, script: `mkdir d; echo x >d/x; mkfifo d/.gitignore`, none: 1, os: 1, stays: true},
	{name: "a pipe for .gitignore in what is ignored", script: `mkdir d; echo x >d/x; mkfifo d/.gitignore; echo /d/ >.gitignore`, stays: true},
	{name: "a pipe for .gitattributes below", hangs: true, shown: `git add -A`, script: `mkdir d; echo x >d/x; mkfifo d/.gitattributes`, none: 1, os: 1, stays: true},
	{name: "a pipe for the rules of the repository", hangs: true, shown: `git status`, script: `mkdir -p $G/info; rm -f $G/info/exclude; mkfifo $G/info/exclude; echo changed >readme; echo new >new`, outside: `rm .git/info/exclude; printf '/.agency/\n' >.git/info/exclude`},
	{name: "a pipe for what is ignored elsewhere", hangs: true, shown: `git status`, script: `mkfifo $TOOLS/pipe; git config core.excludesFile $TOOLS/pipe; git config core.attributesFile $TOOLS/pipe; echo changed >readme; echo new >new`, outside: `git config --unset core.excludesFile; git config --unset core.attributesFile`},
	{name: "a pipe for what is ignored in this worktree", hangs: true, shown: `git status`, script: `mkfifo $TOOLS/pipe; git config extensions.worktreeConfig true; git config --worktree core.excludesFile $TOOLS/pipe; git config --worktree core.attributesFile $TOOLS/pipe; echo changed >readme; echo new >new`},
	{name: "a pipe for the settings of this worktree", hangs: true, shown: `git status`, script: `git config extensions.worktreeConfig true; mkfifo $A/config.worktree; echo changed >readme; echo new >new`},
	{name: "a pipe that the settings of this worktree include", open: true, hangs: true, shown: `git status`, script: `git config extensions.worktreeConfig true; mkfifo $TOOLS/pipe; printf '[include]\n\tpath = %s\n' $TOOLS/pipe >$A/config.worktree; echo changed >readme; echo new >new`},
	{name: "a pipe for the branch of this worktree", open: true, hangs: true, shown: `git status`, script: `mkfifo $TOOLS/pipe; git config "includeIf.onbranch:$(git branch --show-current).path" $TOOLS/pipe; echo changed >readme; echo new >new`},
	{name: "links for what git reads", script: `ln -s /dev/zero .gitignore; ln -s /dev/zero .gitattributes; ln -s /dev/zero .gitmodules; ln -s /dev/zero sub/.gitignore; echo changed >readme`, none: 1, os: 1, stays: true},
	{name: "a HEAD that stands for itself", script: `git symbolic-ref refs/heads/loop refs/heads/loop; echo 'ref: refs/heads/loop' >$A/HEAD; echo changed >readme`},
	{name: "a HEAD that leads out", script: `mkdir -p ../../x 2>/dev/null; echo 'ref: refs/heads/../../../../../../../../etc/passwd' >$A/HEAD; echo changed >readme`},
	{name: "a HEAD that is HEAD", script: `echo 'ref: HEAD' >$A/HEAD; echo changed >readme`},
	{name: "an index with a .git in it", script: `cp "$FORGED" $A/index; echo changed >readme`},
}

// hostileGround is a lab with a sandbox of which a snapshot was taken before anything was planted.
type hostileGround struct {
	*lab
	id, tree, witness, tools string
}

func newHostileGround(t *testing.T, isolation string) *hostileGround {
	t.Helper()
	l := newLab(t)
	g := &hostileGround{lab: l, witness: filepath.Join(l.dir, "home", "witness"), tools: filepath.Join(l.dir, "tools")}
	l.git("config", "--global", "filter.users.clean", "cat")
	l.git("config", "--global", "filter.users.smudge", "cat")
	wt := l.agency("worktree", "create", "wt")
	g.id = l.agency("start", "wt", "--isolation", isolation)
	l.write(filepath.Join(wt, "readme"), "of a person, meanwhile\n")
	l.git("-C", wt, "commit", "-q", "-a", "-m", "meanwhile")
	g.tree = l.agency("path", g.id)
	if isolation == "os" { // where it can write
		g.tools = filepath.Join(g.tree, "tools")
	}
	evil := filepath.Join(g.tools, "evil")
	g.write(evil, "#!/bin/sh\necho \"$0 $*\" >>'"+g.witness+"'\nexit 1\n")
	if err := os.Chmod(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	g.write(filepath.Join(g.tree, "new"), "before\n")
	g.agency("snapshot", "create", g.id)
	return g
}

// agent runs a script in the sandbox.
func (g *hostileGround) agent(script string) outcome {
	g.t.Helper()
	return g.try(nil, "git-agency", "exec", g.id, "--timeout", "60s", "--env", "WITNESS="+g.witness, "--env", "TOOLS="+g.tools, "--env", "ID="+g.id,
		"--env", "FORGED="+filepath.Join(g.tools, "forged"), "--env", "GIT_AUTHOR_NAME=x", "--env", "GIT_AUTHOR_EMAIL=x@x", "--env", "GIT_COMMITTER_NAME=x", "--env", "GIT_COMMITTER_EMAIL=x@x",
		"--", "sh", "-c", plantPrelude+script)
}

// plain runs a script in the tree, as a person does who trusts what is there.
func (g *hostileGround) plain(script string) outcome {
	g.t.Helper()
	return g.try(nil, "timeout", "3", "sh", "-c", "cd "+g.tree+" && "+script)
}

// quietly runs the tool and fails when anything that was planted ran, or when it did not end.
func (g *hostileGround) quietly(args ...string) outcome {
	g.t.Helper()
	o := g.try(nil, append([]string{"timeout", "60", "git-agency"}, args...)...)
	if exists(g.witness) {
		g.t.Fatalf("%q ran what was planted: %s\n%s%s", args, g.read(g.witness), o.stdout, o.stderr)
	}
	if o.code == 124 || o.code != 0 && !strings.Contains(o.stderr, "error: ") && !strings.Contains(o.stderr, "fatal: ") && args[0] != "diff" {
		g.t.Errorf("%q ended with %d: %s%s", args, o.code, o.stdout, o.stderr)
	}
	return o
}

// forgeIndex makes an index in which .git/config is staged, for whoever wants to put it somewhere.
func (g *hostileGround) forgeIndex() {
	g.t.Helper()
	index := filepath.Join(g.dir, "forged")
	env := []string{"GIT_INDEX_FILE=" + index}
	blob := g.git("rev-parse", "HEAD:readme")
	g.try(env, "git", "update-index", "--add", "--cacheinfo", "100644,"+blob+",Xgit/config")
	data, err := os.ReadFile(index)
	if err != nil {
		g.t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), "Xgit/config", ".git/config", 1))
	g.write(filepath.Join(g.tools, "forged"), string(signed(data)))
}

// TestNothingThatWasPlantedRuns: whatever an agent leaves in its tree, its git directory or, without walls, in the
// repository, taking, listing, checking, copying and comparing states, going back to them, starting from them, syncing
// and discarding runs none of it and waits for none of it. That it would run is shown with a plain git.
func TestNothingThatWasPlantedRuns(t *testing.T) {
	t.Parallel()
	isolations := []string{"none", "os"}
	if runtime.GOOS != "linux" {
		isolations = isolations[:1]
	}
	for _, isolation := range isolations {
		for i, p := range plants {
			if p.open && isolation != "none" {
				continue
			}
			if testing.Short() && !p.open && (isolation == "none") != (i%2 == 0) {
				continue // each in one of the two
			}
			t.Run(isolation+"/"+strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				newHostileGround(t, isolation).suffers(p, isolation)
			})
		}
	}
}

func (g *hostileGround) suffers(p plant, isolation string) {
	t := g.t
	t.Helper()
	g.forgeIndex()
	planted := g.agent(p.script)
	if planted.code == 125 {
		t.Fatalf("it was not planted: %s", planted.stderr)
	}
	if isolation == "none" && p.shown != "" {
		restore := g.save()
		_ = os.Remove(g.witness)
		o := g.plain(p.shown)
		if p.hangs && o.code != 124 || !p.hangs && !exists(g.witness) {
			t.Errorf("a plain git does not fall for it, ended with %d:\n%s%s%s%s", o.code, planted.stdout, planted.stderr, o.stdout, o.stderr)
		}
		restore()
	}
	_ = os.Remove(g.witness)
	want := p.os
	if isolation == "none" {
		want = p.none
	}
	for _, args := range [][]string{{"diff", g.id}, {"snapshot", "create", g.id}} {
		if o := g.quietly(args...); o.code != want {
			t.Errorf("%q ended with %d, not %d:\n%s%s%s%s", args, o.code, want, planted.stdout, planted.stderr, o.stdout, o.stderr)
		}
	}
	first, second := g.id+"/1", g.id+"/2"
	for i, args := range [][]string{
		{"snapshot", "ls", g.id},
		{"snapshot", "verify", first},
		{"snapshot", "verify", second},
		{"snapshot", "checkout", first, filepath.Join(g.dir, "copy-1")},
		{"snapshot", "checkout", second, filepath.Join(g.dir, "copy-2")},
		{"diff", g.id, "--json"},
		{"diff", g.id, "--stat", "--from", "head"},
		{"diff", g.id, "--from", first, "--to", second},
		{"diff", g.id, "--name-status", "--from", "integration", "--to", "head"},
		{"diff", g.id, "--exit-code", "--from", second},
		{"start", "wt", "--isolation", isolation, "--from-snapshot", second},
		{"snapshot", "rollback", g.id, first},
		{"snapshot", "rollback", g.id, second},
		{"snapshot", "rollback", g.id, first},
	} {
		o := g.quietly(args...)
		if i < 2 && o.code != 0 || o.code > 5 {
			t.Errorf("%q ended with %d: %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	if isolation == "none" { // behind walls nobody can plant anything where a merge would look
		if o := g.quietly("sync", g.id); o.code > 5 {
			t.Errorf("sync ended with %d: %s%s", o.code, o.stdout, o.stderr)
		}
	}
	o := g.quietly("discard", g.id)
	if p.outside != "" && isolation == "none" && o.code != 0 { // as it is said
		g.must("sh", "-c", p.outside)
		o = g.quietly("discard", g.id)
	}
	if refused := o.code == 1 && exists(g.tree); refused && !p.stays || !refused && o.code != 0 {
		t.Errorf("discard ended with %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// TestASnapshotThatNobodyTookIsRefused: without walls anybody can make a ref that looks like a snapshot. What git itself
// would never put into a tree is not put there, nor anywhere else.
func TestASnapshotThatNobodyTookIsRefused(t *testing.T) {
	t.Parallel()
	for name, tree := range map[string]string{
		"a git directory":                  `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.git\n' $(cat t) | git mktree`,
		"a git directory in other letters": `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.GiT\n' $(cat t) | git mktree`,
		"a git directory below":            `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.git\n' $(cat t) | git mktree >u; printf '040000 tree %s\tsub\n' $(cat u) | git mktree`,
		"a marker":                         `printf '100644 blob %s\tINTEGRATION_MARKER\n' $B | git mktree >t; printf '040000 tree %s\t.agency\n' $(cat t) | git mktree`,
		"a way through a link":             `printf '100644 blob %s\tescaped\n' $B | git mktree >t; L=$(printf %s "$OUT" | git hash-object -w --stdin); printf '120000 blob %s\ta\n040000 tree %s\ta\n' $L $(cat t) | git mktree`,
		"a way up":                         `printf '100644 blob %s\tescaped\n' $B | git mktree >t; printf '040000 tree %s\t..\n' $(cat t) | git mktree`,
		"a name with a slash":              `printf '100644 ../escaped\0' >t; git rev-parse HEAD:readme | sed 's/../\\x&/g' | xargs printf >>t; git hash-object -t tree -w --literally t`,
		"a submodule with a way up":        `printf '160000 commit %s\t..\n' $(git rev-parse HEAD) | git mktree --missing`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := newHostileGround(t, "none")
			out := filepath.Join(g.dir, "out")
			if err := os.Mkdir(out, 0o755); err != nil {
				t.Fatal(err)
			}
			o := g.agent(`export GIT_DIR=$(git rev-parse --absolute-git-dir); OUT=` + out + `; B=$(git rev-parse HEAD:readme); H=$(git rev-parse HEAD); cd $TOOLS
				T=$(` + tree + `) && c=$(printf 'x\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Head: %s\nAgency-Index: %s\n' $ID $H $H $(git rev-parse $H^{tree}) | git commit-tree $T -p $H) && git update-ref refs/agency/snapshots/$ID/2 $c`)
			if o.code != 0 {
				t.Fatalf("%s%s", o.stdout, o.stderr)
			}
			before := fingerprintTree(t, g.tree)
			for _, args := range [][]string{
				{"snapshot", "checkout", g.id + "/2", filepath.Join(g.dir, "copy")}, {"start", "wt", "--from-snapshot", g.id + "/2"}, {"snapshot", "rollback", g.id, g.id + "/2"},
			} {
				if o := g.quietly(args...); o.code == 0 {
					t.Errorf("%q was not refused: %s%s", args, o.stdout, o.stderr)
				}
			}
			for _, args := range [][]string{{"snapshot", "ls", g.id}, {"snapshot", "verify", g.id + "/2"}, {"diff", g.id, "--to", g.id + "/2"}} {
				g.quietly(args...)
			}
			if after := fingerprintTree(t, g.tree); after != before {
				t.Errorf("the sandbox is another:\n%s", diff(before, after))
			}
			if exists(filepath.Join(g.dir, "copy")) || exists(filepath.Join(out, "escaped")) || exists(filepath.Join(g.dir, "escaped")) {
				t.Error("something was written all the same")
			}
			if all := strings.Fields(g.agency("ls", "--porcelain")); len(slices.DeleteFunc(all, func(w string) bool { return w != "invocation" })) != 1 {
				t.Errorf("there is another sandbox: %v", all)
			}
		})
	}
}

// signed gives an index that was changed its checksum.
func signed(index []byte) []byte {
	content := index[:len(index)-sha1.Size]
	sum := sha1.Sum(content)
	return append(slices.Clone(content), sum[:]...)
}

func fingerprintTree(t *testing.T, dir string) string {
	t.Helper()
	text, err := worldOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
