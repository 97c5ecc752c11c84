package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// gitEscape is an attempt to escape from a sandbox through git: to make the host run a program, or to change
// files of the git directory that are not the sandbox's own.
type gitEscape struct {
	name   string
	script string // for sh, in the sandbox; see gitEscapePrelude

	// Script for sh that the control without walls runs on the host, in the tree: it must run the planted
	// program. If it is empty, the control only checks that the git directory has changed.
	hostScript      string
	noControlReason string // why there is no control without walls

	succeeded func(g *gitEscapeLab, id, tree string) string // further check; returns the escape it found, or ""
}

// gitEscapePrelude creates the program evil, which creates the file $CANARY: the host may write there, the
// sandbox may not.
const gitEscapePrelude = `cat >evil <<END
#!/bin/sh
touch '$CANARY'
cat
END
chmod +x evil; E=$PWD/evil; G=$(git rev-parse --git-common-dir); A=$(git rev-parse --absolute-git-dir); B=refs/heads/agency/sandbox-$ID
commit() { git -c core.fsmonitor=false commit -q --no-verify --no-gpg-sign --allow-empty -m "$1"; }
`

var gitEscapes = []gitEscape{
	// Programs that git runs.
	{name: "hooks", script: `for h in pre-commit post-checkout post-index-change reference-transaction post-commit pre-auto-gc; do cp evil $G/hooks/$h; done`, hostScript: `git commit -q --allow-empty -m x`},
	{name: "a directory of hooks", script: `mkdir h; for h in pre-commit reference-transaction post-index-change; do cp evil h/$h; done; git config core.hooksPath $PWD/h`, hostScript: `git commit -q --allow-empty -m x`},
	{name: "a file system monitor", script: `git config core.fsmonitor $E`, hostScript: `git status`},
	{name: "a filter", script: `git config filter.x.clean $E; git config filter.x.smudge $E; git config filter.x.process $E; git config filter.x.required true; echo '* filter=x' >.gitattributes; echo changed >readme`, hostScript: `git add -A`},
	{name: "a filter by attributes of the repository", script: `mkdir -p $G/info; git config filter.x.clean $E; echo '* filter=x' >$G/info/attributes; echo changed >readme`, hostScript: `git add -A`},
	{name: "a program for ssh", script: `git config core.sshCommand $E; git config remote.origin.url ssh://x.invalid/y`, hostScript: `timeout 3 git fetch origin </dev/null`},
	{name: "an alias", script: `git config alias.st "!$E"; git config alias.agency "!$E"`, hostScript: `git st </dev/null`},
	{name: "an include", script: `printf '[core]\n\tfsmonitor = %s\n' $E >more; git config include.path $PWD/more; git config includeIf.gitdir:/.path $PWD/more`, hostScript: `git status`},
	{name: "an external diff program", script: `git config diff.external $E; git config diff.x.textconv $E; echo '* diff=x' >.gitattributes; echo changed >readme`, hostScript: `git diff </dev/null`},
	{name: "a credential helper", script: `git config credential.helper "!$E"`, hostScript: `printf 'protocol=https\nhost=x.invalid\n\n' | git credential fill`},
	{name: "a signing program", script: `git config gpg.program $E; git config commit.gpgSign true; git config gpg.format openpgp`, hostScript: `git commit -q --allow-empty -m x`},
	{name: "a pager and an editor", script: `git config core.pager $E; git config pager.agency $E; git config core.editor $E; git config sequence.editor $E`, hostScript: `env -u GIT_EDITOR git commit --allow-empty </dev/null`},
	{name: "a merge driver", script: `git config merge.x.driver $E; echo '* merge=x' >.gitattributes`},
	{name: "a configuration of the worktree", script: `git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $E`, hostScript: `git status`},
	{name: "a promisor remote", script: `git config extensions.partialClone evil; git config remote.evil.promisor true; git config remote.evil.url "ext::$E"; git config protocol.ext.allow always; git config remote.evil.uploadpack $E`, hostScript: `timeout 3 git cat-file -p 1234567890123456789012345678901234567890 </dev/null`},
	{name: "settings of the tool itself", script: `git config agency.sandbox.write /; git config agency.sandbox.read "$HOMEDIR/.ssh"; git config agency.dataDir $PWD/mine; git config agency.lockTimeout 0; git config agency.profile evil`},
	{name: "another worktree than the real one", script: `git config core.worktree $PWD; git config core.bare true`},

	// Objects, refs and metadata that git trusts.
	{name: "a loose object that is another", script: `o=$(git rev-parse HEAD:readme); git unpack-objects <$(ls $G/objects/pack/*.pack 2>/dev/null | head -1) 2>/dev/null; f=$G/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); rm -f $f; mkdir -p $(dirname $f); perl -MCompress::Zlib -e 'binmode STDOUT; print compress("blob 6\0EVIL!\n")' >$f; rm -rf $G/objects/pack; commit x`},
	{name: "objects that are gone", script: `rm -rf $G/objects/*; mkdir -p $G/objects/pack $G/objects/info`},
	{name: "alternate objects", script: `mkdir -p $G/objects/info; echo /nowhere/objects >>$G/objects/info/alternates; echo $PWD >>$G/objects/info/alternates`},
	{name: "a symbolic ref to main", script: `git symbolic-ref $B refs/heads/main; commit x; git update-ref refs/heads/main HEAD; git update-ref --no-deref $B HEAD`},
	{name: "a symbolic ref to main that remains", script: `commit x; git symbolic-ref $B refs/heads/main; commit y; printf 'ref: refs/heads/main\n' >$G/$B`},
	{name: "a HEAD that is main", script: `git symbolic-ref HEAD refs/heads/main; commit x`},
	{name: "a HEAD that is another branch", script: `git checkout -q -b elsewhere; commit x; git branch -f agency/sandbox-other HEAD`},
	{name: "a main that was moved", script: `commit x; git update-ref refs/heads/main HEAD; git push -q . HEAD:refs/heads/other`},
	{name: "a main that is gone", script: `git update-ref -d refs/heads/main; rm -rf $G/refs/heads/main $G/logs`},
	{name: "changed packed refs", script: `git pack-refs --all; c=$(git commit-tree -m x HEAD^{tree}); perl -pi -e "s/^[0-9a-f]+ (refs.heads.main)/$c \$1/" $G/packed-refs`},
	{name: "replacements", script: `o=$(echo EVIL | git hash-object -w --stdin); git replace -f $(git rev-parse HEAD:readme) $o; git replace --graft HEAD; commit x`},
	{name: "grafts", script: `mkdir -p $G/info; echo $(git rev-parse HEAD) >$G/info/grafts; git rev-parse HEAD >$G/shallow; commit x`},
	{name: "another common directory", script: `git init -q mine; git -C mine config core.fsmonitor $E; echo $PWD/mine/.git >$A/commondir`, hostScript: `git status`},
	{name: "another gitdir of the worktree", script: `echo $HOMEDIR/.git >$A/gitdir; echo locked >$A/locked`, hostScript: `grep -q home "$(git rev-parse --git-dir)/gitdir" && touch "$CANARY"`},
	{name: "another git directory", script: `git init -q mine; git -C mine config core.fsmonitor $E; git -C mine config filter.x.clean $E; echo "gitdir: $PWD/mine/.git" >x; mv -f x .git || rm -f .git || cp x .git; escapist exchange x .git`, hostScript: `git status`},
	{name: "tags, stashes, notes and branches", script: `echo y >readme; git stash -q; git tag t; git tag -a -m t t2; git branch b; git notes add -m n; git worktree add -q -b w $PWD/w; commit x; git gc -q --prune=now; git reflog expire --expire=now --all`},
	{name: "worktrees that are gone", script: `rm -rf $G/worktrees/*/; git worktree prune`},

	// Commits and indexes that are exported to the host.
	{
		name: "a tree with a .git in it", script: `b=$(git hash-object -w evil); t=$(printf "100644 config\0$(echo $b | sed 's/../\\x&/g')" | perl -pe 's/\\x(..)/chr hex $1/ge' | git hash-object -t tree -w --stdin --literally); u=$(printf "40000 .git\0$(echo $t | sed 's/../\\x&/g')" | perl -pe 's/\\x(..)/chr hex $1/ge' | git hash-object -t tree -w --stdin --literally); git update-ref HEAD $(git commit-tree -p HEAD -m x $u)`,
		succeeded: branchContains(`\.git`), hostScript: `git ls-tree -r HEAD | grep -q '\.git/config' && touch "$CANARY"`,
	},
	{
		name: "a tree with an entry ..", script: `b=$(git hash-object -w evil); u=$(printf "100644 ..\0$(echo $b | sed 's/../\\x&/g')" | perl -pe 's/\\x(..)/chr hex $1/ge' | git hash-object -t tree -w --stdin --literally); git update-ref HEAD $(git commit-tree -p HEAD -m x $u)`,
		succeeded: branchContains(`\.\.`), hostScript: `git ls-tree HEAD | grep -q '\.\.' && touch "$CANARY"`,
	},
	{name: "a commit without its tree", script: `c=$(printf 'tree 1234567890123456789012345678901234567890\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n' | git hash-object -t commit -w --stdin --literally); echo $c >$G/$B`, hostScript: `git fsck || touch "$CANARY"`},
	{name: "submodules with an update command", script: `printf '[submodule "x"]\n\tpath = x\n\turl = -u./evil\n\tupdate = !%s\n' $E >.gitmodules; git config submodule.x.update "!$E"; git config submodule.x.url ./x; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; git add .gitmodules; commit x`, succeeded: fsckFails},
	{name: "a symlink for .gitmodules", script: `ln -s /etc/passwd .gitmodules; git add .gitmodules; commit x`, noControlReason: "git on the host accepts any commit in its own worktree", succeeded: branchContains(`120000 .*\.gitmodules`)},
	{
		name: "an index that names .git", script: `mkdir -p Xgit/hooks; cp evil Xgit/hooks/pre-commit; git add -f Xgit; perl -MDigest::SHA=sha1 -0777 -i -pe 's/Xgit/.git/g; substr($_, -20) = ""; $_ .= sha1($_)' $A/index; rm -rf Xgit`,
		succeeded: indexContains(".git/hooks"), hostScript: `git ls-files --stage | grep -q '\.git/hooks' && touch "$CANARY"`,
	},
	{
		name: "an index with an entry below ..", script: `mkdir -p XX/y; cp evil XX/y/z; git add -f XX; perl -MDigest::SHA=sha1 -0777 -i -pe 's{XX/}{../}g; substr($_, -20) = ""; $_ .= sha1($_)' $A/index; rm -rf XX`,
		succeeded: indexContains("../y"), hostScript: `git ls-files --stage | grep -q '\.\./y' && touch "$CANARY"`,
	},

	// Files in the tree.
	{name: "a repository in the tree", script: `git init -q nested; cd nested; git config core.fsmonitor $E; git config filter.x.clean $E; git config core.hooksPath $PWD/.git/hooks; mkdir -p .git/hooks; for h in post-index-change pre-commit; do cp $E .git/hooks/$h; done; echo '* filter=x' >.gitattributes; echo y >y; git -c core.fsmonitor=false -c filter.x.clean=cat -c core.hooksPath=/dev/null add y; git -c core.fsmonitor=false -c filter.x.clean=cat -c core.hooksPath=/dev/null commit -q -m y; echo z >y`, hostScript: `git -C nested status`},
	{name: "a repository in the tree that is staged", script: `git init -q nested; cd nested; git -c core.hooksPath=/dev/null commit -q --allow-empty -m y; git config core.fsmonitor $E; cd ..; git -c core.fsmonitor=false add nested; commit x`, hostScript: `git status`},
	{name: "a bare repository in the tree", script: `git init -q --bare nested; git -C nested config core.fsmonitor $E; git -C nested config core.worktree $PWD; git -C nested config core.bare false`, hostScript: `cd nested && git status`},
	{name: "a .git file in the tree for another repository", script: `mkdir sub2; git init -q mine; git -C mine config core.fsmonitor $E; echo "gitdir: $PWD/mine/.git" >sub2/.git; echo x >sub2/x`, hostScript: `git -C sub2 status`},
	{name: "misleading attributes and names", script: `touch -- -rf --help '--upload-pack=./evil' "new
line" "$(printf 'a\tb')" ':(top)x' '$(touch x)' '*'; mkdir -p sub3/.agency; echo forged >sub3/.agency/SANDBOX_MARKER; ln -s loop loop; ln -s / everything; ln -s .. up; echo 'evil export-subst ident eol=crlf working-tree-encoding=UTF-16' >.gitattributes; git add -A 2>/dev/null; commit x`, noControlReason: "no program on the host runs it"},

	// Reads that block or do not end.
	{name: "pipes in place of files", script: `for f in $A/HEAD $A/index $A/commondir $A/gitdir $G/config $G/packed-refs $G/HEAD $G/$B $A/config.worktree; do rm -f $f; mkfifo $f; done; mkfifo pipe; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "socket", Listen => 1)'`},
	{name: "a directory in place of files", script: `for f in $A/HEAD $A/index $G/config $G/packed-refs; do rm -rf $f; mkdir -p $f/x; done`},
	{name: "links in place of files", script: `for f in $A/HEAD $A/index $G/config $G/packed-refs $G/$B; do rm -rf $f; ln -s /dev/zero $f; done; rm -rf $G/objects; ln -s / $G/objects`},
	{name: "a huge index", script: `truncate -s 600M $A/index; truncate -s 50M $A/HEAD; truncate -s 50M $G/packed-refs`},
	{name: "very many refs and deep directories", script: `perl -e 'my $d = "'$G'/refs/heads/d"; for (1 .. 300) { mkdir $d or last; $d .= "/d" } for (1 .. 11000) { open(my $f, ">", "'$A'/x$_") or last }'`, noControlReason: "it is the sandbox's own"},
	{name: "a deep tree", script: `perl -e 'for (1 .. 1500) { mkdir "deep" or last; chdir "deep" or last } open(F, ">", "f"); print F "x"'`, noControlReason: "it is the sandbox's own"},
	{name: "directories without permissions", script: `mkdir -p locked/in; echo x >locked/in/f; chmod 0 locked/in locked; mkdir $G/locked; chmod 0 $G/locked; chmod 0 $A $G/refs`, noControlReason: "it is the sandbox's own"},
	{name: "a git that never ends", script: `git config core.fsmonitor 'sleep 1000; :'; git config core.sshCommand 'sleep 1000; :'; git config alias.rev-parse '!sleep 1000'; git config core.alternateRefsCommand 'sleep 1000; :'; commit x`, noControlReason: "on the host it only blocks"},
}

// branchContains returns a check that the exported branch has no tree entry that matches pattern.
func branchContains(pattern string) func(g *gitEscapeLab, id, tree string) string {
	return func(g *gitEscapeLab, id, _ string) string {
		o := g.try(nil, "git", "ls-tree", "-r", "-t", "refs/heads/agency/sandbox-"+id)
		if regexp.MustCompile(pattern).MatchString(o.stdout) {
			return "the entry was exported:\n" + o.stdout
		}
		return ""
	}
}

// fsckFails reports errors of git fsck in the repository of the host.
func fsckFails(g *gitEscapeLab, _, _ string) string {
	if o := g.runWithTimeout(nil, g.repo, "git", "fsck", "--no-dangling"); o.code != 0 {
		return "git fsck: " + o.stdout + o.stderr
	}
	return ""
}

// indexContains returns a check that the exported index does not have name.
func indexContains(name string) func(g *gitEscapeLab, id, tree string) string {
	return func(g *gitEscapeLab, id, _ string) string {
		if strings.Contains(g.read(filepath.Join(g.repo, ".git", "worktrees", id, "index")), name) {
			return "the index entry was exported"
		}
		return ""
	}
}

// gitEscapeLab is a lab for gitEscapes.
type gitEscapeLab struct{ *lab }

func newGitEscapeLab(t *testing.T) *gitEscapeLab {
	t.Helper()
	g := &gitEscapeLab{newLab(t)}
	t.Cleanup(func() { // sandboxes that discard refused have overlay work directories of mode 0
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "chmod", "-R", "u+rwx", g.data).Run()
	})
	g.copyEscapist()
	g.agency("worktree", "create", "wt")
	return g
}

func (g *gitEscapeLab) withT(t *testing.T) *gitEscapeLab {
	return &gitEscapeLab{g.lab.withT(t)}
}

// sandboxesDir returns the directory that holds all sandboxes.
func (g *gitEscapeLab) sandboxesDir() string {
	g.t.Helper()
	found, err := filepath.Glob(filepath.Join(g.data, "repos", "*", "sandboxes"))
	if err != nil || len(found) != 1 {
		g.t.Fatalf("found %q: %v", found, err)
	}
	return found[0]
}

// gitEscapeTimeout ends a command of the tool that a hostile sandbox blocks for ever. It is far longer than any command
// takes, also on a loaded machine.
const gitEscapeTimeout = time.Minute

// runWithTimeout runs a command and fails the test if it exceeds gitEscapeTimeout.
func (g *gitEscapeLab) runWithTimeout(env []string, dir string, argv ...string) outcome {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), gitEscapeTimeout)
	defer cancel()
	if path := filepath.Join(g.bin, argv[0]); exists(path) {
		argv[0] = path
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(append([]string{}, g.env...), env...), time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		g.t.Fatal(err)
	}
	if took := time.Since(began); ctx.Err() != nil {
		g.t.Errorf("%q took %v", argv, took)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (g *gitEscapeLab) runInSandbox(a gitEscape, id, canary string) outcome {
	g.t.Helper()
	return g.runWithTimeout(nil, g.repo, "git-agency", "exec", id, "--timeout", "20s", "--grace", "1s",
		"--env", "CANARY="+canary, "--env", "ID="+id, "--env", "HOMEDIR="+filepath.Join(g.dir, "home"), "--", "sh", "-c", gitEscapePrelude+a.script)
}

func TestSandboxEscapeByGit(t *testing.T) {
	t.Parallel()
	behind, without := newGitEscapeLab(t), newGitEscapeLab(t)
	id := without.agency("start", "wt", "--isolation", "none")
	restore := without.save()
	t.Run("behind", func(t *testing.T) {
		t.Parallel()
		for i, a := range gitEscapes {
			if !isSelected(i, len(gitEscapes)) {
				continue
			}
			t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) { behind.withT(t).checkBehindWalls(a, i) })
		}
		if o := behind.withT(t).runWithTimeout(nil, behind.repo, "git", "fsck", "--connectivity-only", "--no-dangling"); o.code != 0 { // not a full fsck: snapshots may hold invalid content
			t.Errorf("git fsck: %s%s", o.stdout, o.stderr)
		}
	})
	if os.Getenv("TEST_RERUN") != "" {
		return // the control without walls does not depend on the user
	}
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		for i, a := range gitEscapes {
			if a.noControlReason == "" && (!testing.Short() || i%9 == 0) {
				t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) { without.withT(t).checkWithoutWalls(a, id, restore) })
			}
		}
	})
}

func TestSandboxEscapeByGitUnprivileged(t *testing.T) { rerunUnprivileged(t, "TestSandboxEscapeByGit") }

// checkBehindWalls runs an attempt behind walls and checks that the git directory is unchanged and that no later
// command of the tool runs the planted program.
func (g *gitEscapeLab) checkBehindWalls(a gitEscape, number int) {
	t := g.t
	t.Helper()
	canary := filepath.Join(g.dir, "home", "canary-"+strings.ReplaceAll(a.name, " ", "-"))
	id := g.agency("start", "wt")
	tree := filepath.Join(g.sandboxesDir(), id, "tree")
	before, gitFile := g.gitDirState(id), fingerprint(t, filepath.Join(tree, ".git"))
	o := g.runInSandbox(a, id, canary)
	if o.code == 125 {
		t.Fatalf("the attempt did not start: %s", o.stderr)
	}
	said := o.stdout + o.stderr
	if d := dumpDiff(before, g.gitDirState(id)); d != "" {
		t.Errorf("the git directory changed:\n%s\n%s", d, said)
	}
	if now := fingerprint(t, filepath.Join(tree, ".git")); now != gitFile {
		t.Errorf("the .git file changed:\n%s", dumpDiff(gitFile, now))
	}
	if a.succeeded != nil {
		if what := a.succeeded(g, id, tree); what != "" {
			t.Errorf("%s\n%s", what, said)
		}
	}
	for name, want := range map[string]string{
		"gitdir": filepath.Join(tree, ".git") + "\n", "commondir": "../..\n", "HEAD": "ref: refs/heads/agency/sandbox-" + id + "\n", "locked": "", "config.worktree": "",
	} {
		if got := g.read(filepath.Join(g.repo, ".git", "worktrees", id, name)); got != want {
			t.Errorf("%s of the worktree entry is %q, want %q", name, got, want)
		}
	}
	for _, args := range [][]string{
		{"show", id},
		{"path", id},
		{"exec", id, "--timeout", "20s", "--", "true"},
		{"snapshot", "create", id},
		{"diff", id},
		{"diff", id, "--to", id + "/1", "--json"},
		{"ls", "--all"},
		{"doctor"},
		{"discard", id},
	} {
		if number%8 != 0 && (args[0] == "ls" || args[0] == "doctor") {
			continue // these two examine all sandboxes at once
		}
		if testing.Short() && number%4 != 0 && (args[0] == "show" || args[0] == "path" || len(args) > 4 && args[0] == "diff") {
			continue // these read the record, or what the plain diff reads too
		}
		if testing.Short() && (number%4 == 1 && args[0] == "snapshot" || number%4 == 2 && args[0] == "diff") {
			continue // both read the tree and the git directory of the sandbox
		}
		o := g.runWithTimeout(nil, g.repo, append([]string{"git-agency"}, args...)...)
		if exists(canary) {
			t.Fatalf("%q ran the planted program: %s%s", args, o.stdout, o.stderr)
		}
		switch args[0] {
		case "discard", "ls", "show", "path":
			if o.code != 0 || args[0] == "discard" && exists(tree) {
				t.Errorf("%q ended with %d: %s%s", args, o.code, o.stdout, o.stderr)
			}
		}
	}
	if d := dumpDiff(g.gitDirState(id), before); strings.Contains(d, "+ ") { // files of before that changed or are missing
		t.Errorf("the git directory changed afterwards:\n%s", d)
	}
}

// checkWithoutWalls runs an attempt without walls, where it must succeed: it proves that the checks detect it.
func (g *gitEscapeLab) checkWithoutWalls(a gitEscape, id string, restore func()) {
	t := g.t
	t.Helper()
	defer restore()
	canary := filepath.Join(g.dir, "home", "canary")
	tree := g.agency("path", id)
	before := g.gitDirState(id)
	o := g.runInSandbox(a, id, canary)
	_ = os.Remove(canary) // the attempt itself may have run the program
	if a.hostScript == "" {
		if dumpDiff(before, g.gitDirState(id)) == "" {
			t.Errorf("without walls, the git directory did not change\n%s%s", o.stdout, o.stderr)
		}
		return
	}
	out := g.runWithTimeout([]string{"CANARY=" + canary}, tree, "sh", "-c", a.hostScript)
	if !exists(canary) {
		t.Errorf("without walls, the planted program did not run\n%s%s%s%s", o.stdout, o.stderr, out.stdout, out.stderr)
	}
}

// gitDirState lists the files of the git directory, without those that a sandbox may export (packs, its branch
// with the reflog, its worktree entry) and without the refs and files of git-agency.
func (g *gitEscapeLab) gitDirState(id string) string {
	g.t.Helper()
	world, err := dumpFiles(filepath.Join(g.repo, ".git"))
	if err != nil {
		g.t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(world) {
		name := strings.SplitN(line, `"`, 3)[1]
		switch {
		case strings.HasPrefix(name, "objects/pack/pack-"):
		case strings.HasPrefix(name, "worktrees/"+id+"/"), strings.HasPrefix(name, "agency/"):
		case strings.HasSuffix(name, "refs/heads/agency/sandbox-"+id):
		case strings.Contains(name, "refs/agency/"):
		default:
			fmt.Fprint(&b, line)
		}
	}
	return b.String()
}
