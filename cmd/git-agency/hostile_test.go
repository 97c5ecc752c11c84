package main

import (
	"crypto/sha1"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// payload is hostile content that an agent leaves for the host: settings, attributes, repositories and refs that make
// a git that trusts them run a program or block forever.
type payload struct {
	name   string
	script string // for sh, in the sandbox; see payloadPrelude
	demo   string // for sh, in the tree, on the host, without walls: plain git commands that trigger the payload

	hangs       bool   // the plain git blocks forever instead of running a program
	exitNoWalls int    // exit code of "diff" and "snapshot create" without walls
	exitWalls   int    // the same behind walls
	fsckRefuses bool   // "snapshot create" exits with 5, because git fsck refuses a file
	noWallsOnly bool   // tried only without walls: behind walls, git inside would block until its time limit
	hostCleanup string // for sh, in the repository: removes the part of the payload that blocks discard without walls
}

// payloadPrelude defines $E, a program that writes to the trace file, and the git directories, and the functions commit
// and settings.
const payloadPrelude = `E=$TOOLS/evil; G=$(git rev-parse --git-common-dir); A=$(git rev-parse --absolute-git-dir); M=1234567890123456789012345678901234567890
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

var payloads = []payload{
	// Filters.
	{
		name: "a filter", demo: `git add -A`, exitNoWalls: 5, hostCleanup: `git config --remove-section filter.x`,
		script: `for k in clean smudge process; do git config filter.x.$k "$E"; done; git config filter.x.required true; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a filter by attributes of the repository", demo: `git add -A`, exitNoWalls: 5, hostCleanup: `git config --remove-section filter.x`,
		script: `mkdir -p $G/info; git config filter.x.clean "$E"; git config filter.x.smudge "$E"; echo '* filter=x' >$G/info/attributes; echo changed >readme`,
	},
	{
		name: "a filter in an included file, with another attributes file", demo: `git add -A`, exitNoWalls: 5, hostCleanup: `git config --unset include.path`,
		script: `printf '[filter "x"]\n\tclean = %s\n\tsmudge = %s\n' "$E" "$E" >more; git config include.path $PWD/more; echo '* filter=x' >rules; git config core.attributesFile $PWD/rules; echo changed >readme`,
	},
	{
		name: "a filter in the configuration of the worktree", demo: `git add -A`, exitNoWalls: 5, hostCleanup: `for f in .git/worktrees/*/config.worktree; do git config --file $f --remove-section filter.x; done`,
		script: `git config extensions.worktreeConfig true; git config --worktree filter.x.clean "$E"; git config --worktree filter.x.smudge "$E"; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a filter included by branch", demo: `git add -A`, exitNoWalls: 5, hostCleanup: `git config --remove-section "includeIf.onbranch:**"`,
		script: `printf '[filter "x"]\n\tclean = %s\n\tsmudge = %s\n' "$E" "$E" >$TOOLS/more; git config "includeIf.onbranch:**.path" $TOOLS/more; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "programs in the configuration of each worktree", demo: `git status`,
		script: `git config extensions.worktreeConfig true; for d in $G $G/worktrees/*; do for k in core.fsmonitor core.sshCommand core.editor core.pager diff.external merge.x.driver filter.y.clean filter.y.smudge filter.y.process; do git config --file $d/config.worktree $k "$E"; done; git config --file $d/config.worktree core.hooksPath $TOOLS/h; done
			mkdir -p $TOOLS/h; for h in pre-commit reference-transaction post-index-change post-checkout; do cp "$E" $TOOLS/h/$h; done; echo changed >readme; echo new >newer`,
	},
	{
		name: "another program for a filter of the user", demo: `git add -A`,
		script: `for k in clean smudge process; do git config filter.users.$k "$E"; done; echo '* filter=users' >.gitattributes; echo changed >readme`,
	},
	{
		name:        "attributes that convert",
		script:      `printf 'readme working-tree-encoding=UTF-16 text eol=crlf ident\n* -text -diff merge=binary\n' >.gitattributes; printf 'x\0' >sub/one; echo '$Id$' >readme; git config core.autocrlf true; git config core.safecrlf true`,
		exitNoWalls: 1, exitWalls: 1, // as with git add, the file is not in that encoding
	},

	// Programs that git runs.
	{name: "hooks", demo: `git commit -q --allow-empty -m x`, script: `mkdir -p $G/hooks; for h in pre-commit post-checkout post-index-change reference-transaction post-commit pre-auto-gc proc-receive; do cp "$E" $G/hooks/$h; done`},
	{name: "a directory of hooks", demo: `git commit -q --allow-empty -m x`, script: `mkdir h; for h in pre-commit reference-transaction post-index-change post-checkout; do cp "$E" h/$h; done; git config core.hooksPath $PWD/h`},
	{name: "a file system monitor", demo: `git status`, script: `git update-index --fsmonitor 2>/dev/null; git config core.fsmonitor "$E"; git config core.untrackedCache true; echo changed >readme`},
	{name: "programs of every kind", demo: `git st </dev/null; git diff </dev/null; printf 'protocol=https\nhost=x.invalid\n\n' | git credential fill`, script: `settings; echo '* diff=x merge=x' >.gitattributes; echo changed >readme`},
	{name: "a signature to check", demo: `git log -1 --show-signature`, script: `git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----' >$TOOLS/c; git reset -q --soft $(git hash-object -t commit -w $TOOLS/c); git config gpg.program "$E"; git config log.showSignature true`},
	{name: "a merge driver", demo: `git merge -q other`, script: `echo '* merge=x' >.gitattributes; git add -A; commit attributes; git branch other; echo ours >readme; git add -A; commit ours; git checkout -q other; echo theirs >readme; git add -A; commit theirs; git checkout -q -; git config merge.x.driver "$E"`},

	// Programs that fetch missing objects.
	{
		name: "a promisor remote", demo: `git cat-file -p 1234567890123456789012345678901234567890`, exitNoWalls: 1,
		script: `settings; git config core.repositoryFormatVersion 1; git config extensions.partialClone evil; git config remote.evil.promisor true; git config remote.evil.url "ext::$E"; git update-index --add --cacheinfo 100644,$M,ghost`,
	},
	{
		name: "a promisor remote by ssh", demo: `git cat-file -p 1234567890123456789012345678901234567890`, exitNoWalls: 1,
		script: `settings; git config remote.evil.promisor true; git config remote.evil.url ssh://x.invalid/y; git config remote.evil.uploadpack "$E"; git update-index --add --cacheinfo 100644,$M,ghost`,
	},
	{
		name: "a snapshot with objects of a promisor remote", demo: `git cat-file -p 1234567890123456789012345678901234567890`,
		script: `git config remote.evil.promisor true; git config remote.evil.url "ext::$E"; git config protocol.allow always
			t=$(printf '100644 blob %s\tghost\n' $M | git mktree --missing); c=$(printf 'x\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Head: %s\n' $ID $(git rev-parse HEAD) $(git rev-parse HEAD) | git commit-tree $t -p HEAD); git update-ref refs/agency/snapshots/$ID/2 $c`,
	},
	{
		name: "alternate objects", demo: `git -c protocol.file.allow=always fetch -q "$(git rev-parse --git-common-dir)" HEAD; git fetch -q . HEAD:refs/heads/fetched`,
		script: `git init -q --bare store; git push -q store HEAD:refs/heads/x; for k in filter.x.clean core.fsmonitor core.alternateRefsCommand; do git -C store config $k "$E"; git config $k "$E"; done; git config --unset core.fsmonitor; mkdir -p $G/objects/info; echo $PWD/store/objects >$G/objects/info/alternates; echo changed >readme`,
	},

	// Other repositories in place of the sandbox's.
	{
		name: "a redirected .git", demo: `git status`,
		script: `git init -q mine; for k in core.fsmonitor filter.x.clean diff.external; do git -C mine config $k "$E"; done; echo '* filter=x' >.gitattributes; echo "gitdir: $PWD/mine/.git" >.git; echo changed >readme`,
	},
	{
		name: "a directory for .git", demo: `git status`,
		script: `rm -f .git && git init -q . && git config core.fsmonitor "$E" && git config filter.x.clean "$E"; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "a link for .git", demo: `git status`,
		script: `git init -q mine; git -C mine config core.fsmonitor "$E"; git -C mine config filter.x.clean "$E"; rm -f .git && ln -s mine/.git .git; echo '* filter=x' >.gitattributes; echo changed >readme`,
	},
	{
		name: "repositories in the tree", demo: `git -C nested status; git -C kept status`, fsckRefuses: true,
		script: `git config submodule.recurse true; for r in nested kept ignored; do git init -q $r; (cd $r; echo y >y; git add y; commit y; echo z >y; git config core.fsmonitor "$E"; git config filter.x.clean "$E"; git config filter.x.smudge "$E"; echo '* filter=x' >.gitattributes; mkdir -p .git/hooks; for h in post-checkout post-index-change; do cp "$E" .git/hooks/$h; done); done
			echo /ignored >.gitignore; git update-index --add --cacheinfo 160000,$(git -C kept rev-parse HEAD),kept; printf '[submodule "kept"]\n\tpath = kept\n\turl = ext::%s\n\tupdate = !%s\n\tfetchRecurseSubmodules = true\n' "$E" "$E" >.gitmodules; git config submodule.kept.update "!$E"; git config submodule.kept.active true; git config diff.submodule log`,
	},

	// Files that git trusts or blocks on.
	{name: "a pipe for .gitignore", hangs: true, demo: `git status`, script: `rm -f .gitignore; mkfifo .gitignore; echo changed >readme`, exitNoWalls: 1, exitWalls: 1},
	{name: "a pipe for .gitignore below", hangs: true, demo: `git add -A`, script: `mkdir d; echo x >d/x; mkfifo d/.gitignore`, exitNoWalls: 1, exitWalls: 1},
	{name: "a pipe for .gitignore in an ignored directory", script: `mkdir d; echo x >d/x; mkfifo d/.gitignore; echo /d/ >.gitignore`},
	{name: "a pipe for .gitattributes below", hangs: true, demo: `git add -A`, script: `mkdir d; echo x >d/x; mkfifo d/.gitattributes`, exitNoWalls: 1, exitWalls: 1},
	{name: "a pipe for info/exclude", hangs: true, demo: `git status`, script: `mkdir -p $G/info; rm -f $G/info/exclude; mkfifo $G/info/exclude; echo changed >readme; echo new >new`, hostCleanup: `rm .git/info/exclude; printf '/.agency/\n' >.git/info/exclude`},
	{name: "a pipe for core.excludesFile", hangs: true, demo: `git status`, script: `mkfifo $TOOLS/pipe; git config core.excludesFile $TOOLS/pipe; git config core.attributesFile $TOOLS/pipe; echo changed >readme; echo new >new`, hostCleanup: `git config --unset core.excludesFile; git config --unset core.attributesFile`},
	{name: "a pipe for core.excludesFile of this worktree", hangs: true, demo: `git status`, script: `mkfifo $TOOLS/pipe; git config extensions.worktreeConfig true; git config --worktree core.excludesFile $TOOLS/pipe; git config --worktree core.attributesFile $TOOLS/pipe; echo changed >readme; echo new >new`},
	{name: "a pipe for config.worktree", hangs: true, demo: `git status`, script: `git config extensions.worktreeConfig true; mkfifo $A/config.worktree; echo changed >readme; echo new >new`},
	{name: "a pipe included by config.worktree", noWallsOnly: true, hangs: true, demo: `git status`, script: `git config extensions.worktreeConfig true; mkfifo $TOOLS/pipe; printf '[include]\n\tpath = %s\n' $TOOLS/pipe >$A/config.worktree; echo changed >readme; echo new >new`},
	{name: "a pipe included by branch", noWallsOnly: true, hangs: true, demo: `git status`, script: `mkfifo $TOOLS/pipe; git config "includeIf.onbranch:$(git branch --show-current).path" $TOOLS/pipe; echo changed >readme; echo new >new`},
	{name: "symlinks for files that git reads", script: `ln -s /dev/zero .gitignore; ln -s /dev/zero .gitattributes; ln -s /dev/zero .gitmodules; ln -s /dev/zero sub/.gitignore; echo changed >readme`, exitNoWalls: 1, exitWalls: 1},
	{name: "a HEAD that is a symref loop", script: `git symbolic-ref refs/heads/loop refs/heads/loop; echo 'ref: refs/heads/loop' >$A/HEAD; echo changed >readme`},
	{name: "a HEAD with a path out of the repository", script: `mkdir -p ../../x 2>/dev/null; echo 'ref: refs/heads/../../../../../../../../etc/passwd' >$A/HEAD; echo changed >readme`},
	{name: "a HEAD that is HEAD", script: `echo 'ref: HEAD' >$A/HEAD; echo changed >readme`},
	{name: "an index with a .git in it", script: `cp "$FORGED" $A/index; echo changed >readme`},
}

// hostileLab is a lab with a sandbox and a snapshot of it from before the payload.
type hostileLab struct {
	*lab
	id, tree, traceFile, toolsDir string
}

func newHostileLab(t *testing.T, isolation string) *hostileLab {
	t.Helper()
	l := newLab(t)
	g := &hostileLab{lab: l, traceFile: filepath.Join(l.dir, "home", "witness"), toolsDir: filepath.Join(l.dir, "home", "tools")}
	l.git("config", "--global", "filter.users.clean", "cat")
	l.git("config", "--global", "filter.users.smudge", "cat")
	wt := l.agency("worktree", "create", "wt")
	g.id = l.agency("start", "wt", "--isolation", isolation)
	l.write(filepath.Join(wt, "readme"), "of a person, meanwhile\n")
	l.git("-C", wt, "commit", "-q", "-a", "-m", "meanwhile")
	g.tree = l.agency("path", g.id)
	if isolation == "os" { // the sandbox can write only to its tree
		g.toolsDir = filepath.Join(g.tree, "tools")
	}
	evil := filepath.Join(g.toolsDir, "evil")
	g.write(evil, "#!/bin/sh\necho \"$0 $*\" >>'"+g.traceFile+"'\nexit 1\n")
	if err := os.Chmod(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	g.write(filepath.Join(g.tree, "new"), "before\n")
	g.agency("snapshot", "create", g.id)
	return g
}

// runAsAgent runs a script in the sandbox.
func (g *hostileLab) runAsAgent(script string) outcome {
	g.t.Helper()
	return g.try(nil, "git-agency", "exec", g.id, "--timeout", "60s", "--env", "WITNESS="+g.traceFile, "--env", "TOOLS="+g.toolsDir, "--env", "ID="+g.id,
		"--env", "FORGED="+filepath.Join(g.toolsDir, "forged"), "--env", "GIT_AUTHOR_NAME=x", "--env", "GIT_AUTHOR_EMAIL=x@x", "--env", "GIT_COMMITTER_NAME=x", "--env", "GIT_COMMITTER_EMAIL=x@x",
		"--", "sh", "-c", payloadPrelude+script)
}

// runPlain runs a script on the host in the tree, for at most 3 seconds.
func (g *hostileLab) runPlain(script string) outcome {
	g.t.Helper()
	return g.try(nil, "timeout", "3", "sh", "-c", "cd "+g.tree+" && "+script)
}

// runTool runs the tool and fails the test if the payload ran, the tool timed out, or it failed without a message.
func (g *hostileLab) runTool(args ...string) outcome {
	g.t.Helper()
	o := g.try(nil, append([]string{"timeout", "60", "git-agency"}, args...)...)
	if exists(g.traceFile) {
		g.t.Fatalf("%q ran the payload: %s\n%s%s", args, g.read(g.traceFile), o.stdout, o.stderr)
	}
	if o.code == 124 || o.code != 0 && !strings.Contains(o.stderr, "error: ") && !strings.Contains(o.stderr, "fatal: ") && args[0] != "diff" {
		g.t.Errorf("%q ended with %d: %s%s", args, o.code, o.stdout, o.stderr)
	}
	return o
}

// forgeIndex writes an index with the entry .git/config to the tools directory, for payloads that install it.
func (g *hostileLab) forgeIndex() {
	g.t.Helper()
	index := filepath.Join(g.t.TempDir(), "forged")
	env := []string{"GIT_INDEX_FILE=" + index}
	blob := g.git("rev-parse", "HEAD:readme")
	g.try(env, "git", "update-index", "--add", "--cacheinfo", "100644,"+blob+",Xgit/config")
	data, err := os.ReadFile(index)
	if err != nil {
		g.t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), "Xgit/config", ".git/config", 1))
	g.write(filepath.Join(g.toolsDir, "forged"), string(withIndexChecksum(data)))
}

// TestToolRunsNothingFromSandbox checks that snapshot, diff, start, sync and discard neither run a payload nor block on
// it, whether it is in the tree, the git directory or, without walls, the repository. Plain git commands prove that
// the payload is effective.
func TestToolRunsNothingFromSandbox(t *testing.T) {
	t.Parallel()
	isolations := []string{"none", "os"}
	if runtime.GOOS != "linux" {
		isolations = isolations[:1]
	}
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			var chosen []payload
			var names []string
			for i, p := range payloads {
				if p.noWallsOnly && isolation != "none" {
					continue
				}
				if testing.Short() && !p.noWallsOnly && (isolation == "none") != (i%2 == 0) {
					continue // with -short, each payload runs with one isolation
				}
				chosen, names = append(chosen, p), append(names, strings.ReplaceAll(p.name, " ", "-"))
			}
			var hostileLabs sync.Map // by directory
			newLab := func(t *testing.T) *lab {
				t.Helper()
				g := newHostileLab(t, isolation)
				g.forgeIndex()
				hostileLabs.Store(g.dir, *g)
				return g.lab
			}
			forEachCase(t, names, newLab, func(l *lab, number int, _ func()) {
				shared, _ := hostileLabs.Load(l.dir)
				g := shared.(hostileLab)
				g.lab = l
				g.checkPayload(chosen[number], isolation, number)
			})
		})
	}
}

// checkPayload plants a payload, shows that plain git triggers it, and runs the commands of the tool on it. Between the
// second snapshot and sync it runs groups of commands; with -short only every third group, so that three
// payloads, one after another, run all of them.
func (g *hostileLab) checkPayload(p payload, isolation string, number int) {
	t := g.t
	t.Helper()
	planted := g.runAsAgent(p.script)
	if planted.code == 125 {
		t.Fatalf("the payload script did not start: %s", planted.stderr)
	}
	if isolation == "none" && p.demo != "" {
		restore := g.save()
		_ = os.Remove(g.traceFile)
		o := g.runPlain(p.demo)
		if p.hangs && o.code != 124 || !p.hangs && !exists(g.traceFile) {
			t.Errorf("plain git does not trigger the payload, ended with %d:\n%s%s%s%s", o.code, planted.stdout, planted.stderr, o.stdout, o.stderr)
		}
		restore()
	}
	_ = os.Remove(g.traceFile)
	want := p.exitWalls
	if isolation == "none" {
		want = p.exitNoWalls
	}
	for _, args := range [][]string{{"diff", g.id}, {"snapshot", "create", g.id}} {
		if args[0] == "snapshot" && p.fsckRefuses {
			want = 5
		}
		if o := g.runTool(args...); o.code != want {
			t.Errorf("%q ended with %d, want %d:\n%s%s%s%s", args, o.code, want, planted.stdout, planted.stderr, o.stdout, o.stderr)
		}
	}
	first, second := g.id+"/1", g.id+"/2"
	for i, group := range [][][]string{
		{{"snapshot", "ls", g.id}},
		{{"snapshot", "verify", first}},
		{{"snapshot", "verify", second}},
		{{"snapshot", "checkout", first, filepath.Join(g.dir, "copy-1")}},
		{{"snapshot", "checkout", second, filepath.Join(g.dir, "copy-2")}},
		{{"diff", g.id, "--json"}},
		{{"diff", g.id, "--stat", "--from", "head"}},
		{{"diff", g.id, "--from", first, "--to", second}},
		{{"diff", g.id, "--name-status", "--from", "integration", "--to", "head"}},
		{{"diff", g.id, "--exit-code", "--from", second}},
		{{"start", "wt", "--isolation", isolation, "--from-snapshot", second}},
		{ // each changes the tree: it is at the second snapshot
			{"snapshot", "rollback", g.id, first},
			{"snapshot", "rollback", g.id, second},
			{"snapshot", "rollback", g.id, first},
		},
	} {
		if !isRotated(i, number/3) { // with -short every third payload runs
			continue
		}
		for _, args := range group {
			o := g.runTool(args...)
			if i < 2 && o.code != 0 || o.code > 5 {
				t.Errorf("%q ended with %d: %s%s", args, o.code, o.stdout, o.stderr)
			}
		}
	}
	if isolation == "none" { // behind walls, a payload cannot reach the files that a merge reads
		if o := g.runTool("sync", g.id); o.code > 5 {
			t.Errorf("sync ended with %d: %s%s", o.code, o.stdout, o.stderr)
		}
	}
	o := g.runTool("discard", g.id)
	if p.hostCleanup != "" && isolation == "none" && o.code != 0 { // as the error message asks
		g.must("sh", "-c", p.hostCleanup)
		o = g.runTool("discard", g.id)
	}
	if o.code != 0 || exists(g.tree) {
		t.Errorf("discard ended with %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// TestForgedSnapshotIsRefused creates refs that look like snapshots, as any agent can without walls. Trees with entries
// that git itself refuses must not be checked out anywhere.
func TestForgedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	trees := map[string]string{
		"a git directory":               `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.git\n' $(cat t) | git mktree`,
		"a git directory in mixed case": `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.GiT\n' $(cat t) | git mktree`,
		"a git directory below":         `printf '100644 blob %s\tconfig\n' $B | git mktree >t; printf '040000 tree %s\t.git\n' $(cat t) | git mktree >u; printf '040000 tree %s\tsub\n' $(cat u) | git mktree`,
		"a marker":                      `printf '100644 blob %s\tINTEGRATION_MARKER\n' $B | git mktree >t; printf '040000 tree %s\t.agency\n' $(cat t) | git mktree`,
		"a path through a symlink":      `printf '100644 blob %s\tescaped\n' $B | git mktree >t; L=$(printf %s "$OUT" | git hash-object -w --stdin); printf '120000 blob %s\ta\n040000 tree %s\ta\n' $L $(cat t) | git mktree`,
		"an entry ..":                   `printf '100644 blob %s\tescaped\n' $B | git mktree >t; printf '040000 tree %s\t..\n' $(cat t) | git mktree`,
		"a name with a slash":           `printf '100644 ../escaped\0' >t; git rev-parse HEAD:readme | sed 's/../\\x&/g' | xargs printf >>t; git hash-object -t tree -w --literally t`,
		"a submodule ..":                `printf '160000 commit %s\t..\n' $(git rev-parse HEAD) | git mktree --missing`,
	}
	for _, name := range thin(slices.Sorted(maps.Keys(trees))) {
		tree := trees[name]
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := newHostileLab(t, "none")
			out := filepath.Join(g.dir, "out")
			if err := os.Mkdir(out, 0o755); err != nil {
				t.Fatal(err)
			}
			o := g.runAsAgent(`export GIT_DIR=$(git rev-parse --absolute-git-dir); OUT=` + out + `; B=$(git rev-parse HEAD:readme); H=$(git rev-parse HEAD); cd $TOOLS
				T=$(` + tree + `) && c=$(printf 'x\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Head: %s\nAgency-Index: %s\n' $ID $H $H $(git rev-parse $H^{tree}) | git commit-tree $T -p $H) && git update-ref refs/agency/snapshots/$ID/2 $c`)
			if o.code != 0 {
				t.Fatalf("%s%s", o.stdout, o.stderr)
			}
			before := dumpTree(t, g.tree)
			for _, args := range [][]string{
				{"snapshot", "checkout", g.id + "/2", filepath.Join(g.dir, "copy")}, {"start", "wt", "--from-snapshot", g.id + "/2"}, {"snapshot", "rollback", g.id, g.id + "/2"},
			} {
				if o := g.runTool(args...); o.code == 0 {
					t.Errorf("%q was not refused: %s%s", args, o.stdout, o.stderr)
				}
			}
			for _, args := range [][]string{{"snapshot", "ls", g.id}, {"snapshot", "verify", g.id + "/2"}, {"diff", g.id, "--to", g.id + "/2"}} {
				g.runTool(args...)
			}
			if after := dumpTree(t, g.tree); after != before {
				t.Errorf("the sandbox changed:\n%s", dumpDiff(before, after))
			}
			if exists(filepath.Join(g.dir, "copy")) || exists(filepath.Join(out, "escaped")) || exists(filepath.Join(g.dir, "escaped")) {
				t.Error("a refused snapshot was written to disk")
			}
			if all := strings.Fields(g.agency("ls", "--porcelain")); len(slices.DeleteFunc(all, func(w string) bool { return w != "invocation" })) != 1 {
				t.Errorf("a sandbox was created: %v", all)
			}
		})
	}
}

// withIndexChecksum returns a changed index with a valid checksum.
func withIndexChecksum(index []byte) []byte {
	content := index[:len(index)-sha1.Size]
	sum := sha1.Sum(content)
	return append(slices.Clone(content), sum[:]...)
}

// dumpTree returns the listing of dumpFiles for a directory.
func dumpTree(t *testing.T, dir string) string {
	t.Helper()
	text, err := dumpFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
