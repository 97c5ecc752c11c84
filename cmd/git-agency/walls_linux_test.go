package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// walledSandbox is a test repository with a sandbox that has walls.
type walledSandbox struct {
	*lab
	id, tree, ref string
}

func newWalledSandbox(t *testing.T, start ...string) *walledSandbox {
	t.Helper()
	return newWalledSandboxIn(newLab(t), start...)
}

// newWalledSandboxIn starts a sandbox with walls in a repository.
func newWalledSandboxIn(l *lab, start ...string) *walledSandbox {
	l.t.Helper()
	w := &walledSandbox{lab: l}
	l.agency("worktree", "create", "wt")
	w.id = l.agency(append([]string{"start", "wt", "--isolation", "os"}, start...)...)
	w.tree, w.ref = l.agency("path", w.id), "refs/heads/agency/sandbox-"+w.id
	// The tests write their notes to a directory that git ignores.
	exclude := filepath.Join(l.git("rev-parse", "--path-format=absolute", "--git-common-dir"), "info", "exclude")
	l.write(exclude, l.read(exclude)+"/.notes/\n")
	l.write(filepath.Join(w.tree, ".notes", "here"), "")
	return w
}

// alsoRunAsNobody runs the test again as the user nobody, if it runs as root.
func alsoRunAsNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 && os.Getenv("TEST_RERUN") == "" {
		t.Run("as an ordinary user", func(t *testing.T) {
			t.Parallel()
			skipRerunIfShort(t)
			rerunAsNobody(t, strings.SplitN(t.Name(), "/", 2)[0])
		})
	}
}

// runInside runs a script in the sandbox, which must succeed without a warning, and returns its output.
func (w *walledSandbox) runInside(script string) string {
	w.t.Helper()
	o := w.try(nil, "git-agency", "exec", w.id, "--", "bash", "-ec", script)
	if o.code != 0 || strings.Contains(o.stderr, "warning: sandbox") {
		w.t.Fatalf("%s\nexited with %d:\n%s%s", script, o.code, o.stdout, o.stderr)
	}
	return o.line()
}

// runOutside runs a script in the worktree of the sandbox, outside the walls, as a person would.
func (w *walledSandbox) runOutside(script string) string {
	w.t.Helper()
	return w.must("bash", "-ec", "cd \"$0\"\n"+script, w.tree)
}

// startInside starts a command in the sandbox that runs script, creates .notes/ready-<name>, and runs after once resume has
// created .notes/on-<name>. It returns when script has run.
func (w *walledSandbox) startInside(name, script, after string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.bin, "git-agency"), "exec", w.id, "--", "bash", "-ec",
		script+"\ntouch .notes/ready-"+name+"; while ! test -e .notes/on-"+name+"; do sleep 0.01; done\n"+after)
	cmd.Dir, cmd.Env = w.repo, w.env
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if !waitForFile(filepath.Join(w.tree, ".notes", "ready-"+name)) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its output is reported
		w.t.Fatalf("%s did not become ready: %s", name, out.String())
	}
	return cmd
}

// resume lets the command that startInside started continue.
func (w *walledSandbox) resume(name string) {
	w.t.Helper()
	w.write(filepath.Join(w.tree, ".notes", "on-"+name), "")
}

// dumpGitDir lists all files of the real git directory.
func (w *walledSandbox) dumpGitDir() string {
	w.t.Helper()
	text, err := dumpFiles(w.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// checkAndDiscard checks the repository, discards the sandbox, and checks that no files, processes or mounts of it are left.
func (w *walledSandbox) checkAndDiscard() {
	w.t.Helper()
	if o := w.try(nil, "git", "fsck", "--strict", "--no-dangling"); o.code != 0 || o.stdout != "" {
		w.t.Errorf("fsck: %+v", o)
	}
	if o := w.try(nil, "git-agency", "doctor"); !strings.HasPrefix(o.stdout, "nothing is wrong") {
		w.t.Errorf("doctor: %+v", o)
	}
	if o := w.try(nil, "git-agency", "ls"); strings.Contains(o.stdout, "broken") {
		w.t.Errorf("ls: %+v", o)
	}
	w.agency("prune")
	w.agency("discard", w.id)
	if exists(filepath.Dir(w.tree)) {
		w.t.Errorf("%s is still there", filepath.Dir(w.tree))
	}
	left := supervisorPIDs(w.t, w.id)
	for began := time.Now(); len(left) > 0 && time.Since(began) < 2*time.Minute; left = supervisorPIDs(w.t, w.id) {
		time.Sleep(time.Millisecond) // the supervisor exits shortly after the last command
	}
	if len(left) > 0 {
		w.t.Errorf("still running: %d", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), w.id) {
		w.t.Errorf("mounts: %v\n%s", err, mounts)
	}
}

// supervisorPIDs returns the process ids of the supervisors of a sandbox.
func supervisorPIDs(t *testing.T, id string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(data), "git-agency-supervisor") || !strings.Contains(string(data), id) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestGitInsideWallsLeavesRealGitDirAlone runs git commands of every kind inside the walls. They must work and change no
// file of the real git directory while the command runs. Afterwards only the branch of the sandbox may have moved, and
// git outside must show the same status, index and log as inside.
func TestGitInsideWallsLeavesRealGitDirAlone(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t)
	commit := func(name string) string {
		return fmt.Sprintf("echo %s >%[1]s; git add %[1]s; git commit -qm %[1]s\n", name)
	}
	home := strings.TrimPrefix(w.ref, "refs/heads/")
	w.write(filepath.Join(w.dir, "home", ".gitconfig"), "[protocol \"file\"]\n\tallow = always\n")
	scripts := []string{
		commit("a"),
		`git commit -q --amend -m amended`,
		`git checkout -q -b side HEAD~1` + "\n" + commit("s") + `git checkout -q -; git rebase -q side`,
		commit("f1") + commit("f2") + commit("f3") + `GIT_SEQUENCE_EDITOR='sed -i -e 2s/pick/squash/ -e 3s/pick/reword/' GIT_EDITOR='sh -c "echo more >>\$1" sh' git rebase -q -i HEAD~3
test "$(git log --format=%s -1)" = f3; git log --format=%B -1 | grep -qx more`,
		`git checkout -q -b other HEAD~1` + "\n" + commit("o") + `git checkout -q -; git merge -q --no-ff -m merged other`,
		`git checkout -q other` + "\n" + commit("p") + `git checkout -q -; git cherry-pick other >/dev/null`,
		`echo dirty >>readme; git stash push -q; git diff --quiet`,
		`git stash pop -q; ! git diff --quiet`,
		`git commit -qam dirty; git tag light; git tag -a -m heavy heavy; git notes add -m note; git config foo.bar baz`,
		`test "$(git cat-file -t heavy)" = tag; git rev-parse -q --verify light >/dev/null; test "$(git notes show)" = note; test "$(git config foo.bar)" = baz`,
		`git checkout -q --detach` + "\n" + commit("d"),
		`test "$(git branch --show-current)" = ""; git branch -f ` + home + `; git checkout -q ` + home,
		`git gc -q --prune=now`,
		commit("r") + `git repack -adq; git pack-refs --all`,
		`git reflog expire --expire=now --all; git gc -q --prune=now; git fsck --strict --no-dangling`,
		`git worktree add -q /tmp/linked; cd /tmp/linked` + "\n" + commit("w") + `cd "$AGENCY_SANDBOX"; git merge -q linked`,
		`git reset -q --hard HEAD~1; echo x >>readme; git add readme; git reset -q`,
		`git checkout -q --orphan orphan; git commit -qm orphan`,
		`git rm -rq --cached .; git commit -qm empty; git add .; git commit -qm full`,
		`git checkout -q -b c1; echo c1 >readme; git commit -qam c1; git checkout -q -b c2 HEAD~1; echo c2 >readme; git commit -qam c2; git merge -q c1 >/dev/null && false; git ls-files -u | grep -q readme`,
		`git checkout -q --theirs readme; git add readme; git commit -qm resolved`,
		`echo n >intended; git add -N intended; echo u >untracked`,
		`git update-index --index-version 4; echo 4 >four; git add four`,
		`git config core.splitIndex true; git update-index --split-index; echo split >split; git add split`,
		`echo split >split2; git add split2`,
		`git config core.splitIndex false; git update-index --no-split-index; git commit -qm split`,
		`mkdir out; echo o >out/o; git add out; git commit -qm out; git sparse-checkout set --cone sub; test ! -e out/o`,
		`git sparse-checkout set --cone --sparse-index sub; echo q >sub/q; git add sub/q`,
		`git sparse-checkout disable; git commit -qm sparse; test -e out/o`,
	}
	if testing.Short() { // two scripts in one command
		var pairs []string
		for pair := range slices.Chunk(scripts, 2) {
			pairs = append(pairs, "("+strings.Join(pair, "\n)\n(")+"\n)")
		}
		scripts = pairs
	}
	for i, script := range scripts {
		name := strconv.Itoa(i)
		before, refs := w.dumpGitDir(), w.git("for-each-ref", "--format=%(refname) %(objectname)")
		cmd := w.startInside(name, script+"\ngit status --porcelain >.notes/status; git diff --cached >.notes/cached; git log --format='%H %B' >.notes/log", "")
		during := w.dumpGitDir()
		w.resume(name)
		out := cmd.Stdout.(*strings.Builder)
		if err := cmd.Wait(); err != nil || strings.Contains(out.String(), "warning: sandbox") {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		if d := dumpDiff(before, during); d != "" {
			t.Errorf("%s\nchanged the real git directory:\n%s", script, d)
		}
		for file, argv := range map[string]string{"status": "git status --porcelain", "cached": "git diff --cached", "log": "git log --format='%H %B'"} {
			if inside, outside := strings.TrimSuffix(w.read(filepath.Join(w.tree, ".notes", file)), "\n"), w.runOutside(argv); inside != outside {
				t.Errorf("%s\n%s prints inside\n%s\nand outside\n%s", script, argv, inside, outside)
			}
		}
		moved := w.git("rev-parse", w.ref)
		refs = strings.Replace(refs, w.refLine(refs), w.ref+" "+moved, 1)
		if now := w.git("for-each-ref", "--format=%(refname) %(objectname)"); now != refs {
			t.Errorf("%s\nrefs are\n%s\nwant\n%s", script, now, refs)
		}
	}
	w.checkAndDiscard()
}

func (w *walledSandbox) refLine(refs string) string {
	for line := range strings.Lines(refs) {
		if strings.HasPrefix(line, w.ref+" ") {
			return strings.TrimSuffix(line, "\n")
		}
	}
	w.t.Fatalf("%s is not among\n%s", w.ref, refs)
	return ""
}

// TestWallsShowChangesMadeOutside checks that a command sees what git commands outside the walls changed in the sandbox.
func TestWallsShowChangesMadeOutside(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t)
	look := "git log --format=%s -1; git branch --show-current; git status --porcelain; git fsck --strict --no-dangling 2>&1"
	same := func(script string) {
		t.Helper()
		w.runOutside(script)
		before := w.git("rev-parse", w.ref)
		if inside, outside := w.runInside(look), w.runOutside(look); inside != outside {
			t.Errorf("after %s the state inside is\n%s\nand outside\n%s", script, inside, outside)
		}
		if after := w.git("rev-parse", w.ref); after != before {
			t.Errorf("after %s a command that only reads moved the branch", script)
		}
	}
	same(`echo 1 >p1; git add p1; git commit -qm p1`)
	w.runInside(`echo i >i1; git add i1; git commit -qm i1`)
	same(`echo 2 >p2; git add p2; git commit -qm p2`)
	same(`echo st >st; git add st`)
	same(`git reset -q --hard HEAD~1`)
	same(`git rebase -q --force-rebase HEAD~2`)
	// git gc inside must not hide objects that are later added to the same directories outside.
	w.runInside(`git gc -q --prune=now`)
	same(`for i in $(seq 20); do echo $i >c; git add c; git commit -qm c$i; done`)
	w.runInside(`echo z >z; git add z; git commit -qm z`)
	same(`git checkout -q -b mine; echo m >m; git add m; git commit -qm mine`)
	same(`git checkout -q --detach HEAD~1`)
	same(`git checkout -q ` + strings.TrimPrefix(w.ref, "refs/heads/"))
	w.runInside(`git checkout -q -b theirs; echo t >t; git add t; git commit -qm t`)
	if got := w.runOutside(`git log --format=%s -1; git status --porcelain`); got != "t" {
		t.Errorf("git outside prints %q", got)
	}
	w.runOutside(`echo u >u; git add u; git commit -qm u`)
	if got := w.runInside(`git log --format=%s -1; git branch --show-current; git status --porcelain`); got != "u\ntheirs" {
		t.Errorf("git inside prints %q", got)
	}
	w.checkAndDiscard()
}

// TestWallsFollowBranchSwitchedAfterKilledExec kills an exec before it has imported a commit. If the user then switches to
// another branch outside, the next command first imports the commit and then sees that branch; it must not move the
// branch of the sandbox to the user's commit.
func TestWallsFollowBranchSwitchedAfterKilledExec(t *testing.T) {
	t.Parallel()
	w := newWalledSandbox(t)
	w.runInside(`echo a >a; git add a; git commit -qm a`)
	cmd := w.startInside("killed", `echo k >k; git add k; git commit -qm k`, "")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	w.runOutside(`git checkout -q -b mine; echo m >m; git add m; git commit -qm mine`)
	if got := w.runInside(`git log --format=%s -1; git branch --show-current`); got != "mine\nmine" {
		t.Errorf("git inside prints %q", got)
	}
	if got := w.git("log", "--format=%s", "-1", w.ref); got != "k" {
		t.Errorf("the branch of the sandbox is at %q", got)
	}
	w.checkAndDiscard()
}

// TestWallsKeepDivergedBranchAndIndex changes the branch and the index on both sides of the walls. Nothing may be lost, a
// warning must tell, and a merge inside must bring the commits out.
func TestWallsKeepDivergedBranchAndIndex(t *testing.T) {
	t.Parallel()
	w := newWalledSandbox(t)
	w.runInside(`echo a >a; git add a; git commit -qm a`)
	cmd := w.startInside("both", `echo d >d; git add d; git commit -qm inside`, "")
	theirs := w.runOutside(`echo p >p; git add p; git commit -qm person; git rev-parse HEAD`)
	w.resume("both")
	out := cmd.Stdout.(*strings.Builder)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "commits behind the walls are not imported yet") || !strings.Contains(out.String(), theirs) {
		t.Errorf("%v: %s", err, out)
	}
	if got := w.git("rev-parse", w.ref); got != theirs {
		t.Errorf("the branch is at %s", got)
	}
	o := w.try(nil, "git-agency", "exec", w.id, "--", "bash", "-ec", "echo e >e; git add e; git commit -qm more; git reset -q --hard HEAD~1")
	if said := strings.Count(o.stderr, "commits behind the walls are not imported yet"); o.code != 0 || said != 1 {
		t.Errorf("a command that moves HEAD again prints the warning %d times: %+v", said, o)
	}
	o = w.try(nil, "git-agency", "exec", w.id, "--", "bash", "-ec", "test $(git log --format=%s -1) = inside; rm p; git merge -q -m merged "+theirs)
	if o.code != 0 || o.stderr != "" {
		t.Errorf("a command that merges them prints: %+v", o)
	}
	if got := w.runOutside(`git log --format=%s -1; git merge-base --is-ancestor ` + theirs + ` HEAD; git status --porcelain`); got != "merged" {
		t.Errorf("git outside prints %q", got)
	}

	cmd = w.startInside("stage", `echo c >c; git add c; git commit -qm c; echo q >q; git add q`, "")
	w.runOutside(`echo mine >mine; git add mine`)
	w.resume("stage")
	out = cmd.Stdout.(*strings.Builder)
	_, show, _ := strings.Cut(func() string { _ = cmd.Wait(); return out.String() }(), "to see those staged outside: ")
	show, _, _ = strings.Cut(show, "\n")
	if got := w.must("bash", "-ec", `cd "$0"; `+show+` --format=; git -C "$1" diff --cached --name-only`, w.repo, w.tree); !strings.Contains(got, "\n+mine\n") || !strings.HasSuffix(got, "\nq") {
		t.Errorf("staged changes are %q: %s", got, out)
	}
	if got := w.runOutside(`git rev-parse HEAD@{0} HEAD | uniq | wc -l`); got != "1" {
		t.Errorf("the reflog of HEAD does not end at HEAD: %s", w.runOutside("git reflog"))
	}

	// git cannot write a tree of an index with conflicts, so the index file itself is kept.
	cmd = w.startInside("merge", `echo r >r; git add r`, "")
	w.runOutside(`printf '100644 %s 1\tmine\n' $(git rev-parse :q) | git update-index --index-info`)
	w.resume("merge")
	out = cmd.Stdout.(*strings.Builder)
	_, look, _ := strings.Cut(func() string { _ = cmd.Wait(); return out.String() }(), "until the sandbox is discarded: ")
	look, _, _ = strings.Cut(look, "\n")
	if got := w.runOutside(look + ` --name-status`); !strings.Contains(got, "U\tmine") {
		t.Errorf("the kept index shows %q: %s", got, out)
	}
	mine := w.git("rev-parse", "--verify", strings.TrimPrefix(show, "git show ")+":mine")
	w.checkAndDiscard()
	if got := w.git("log", "--format=", "--raw", "--no-abbrev", "refs/agency/trash/"+w.id); !strings.Contains(got, mine) {
		t.Errorf("the trash does not hold what was staged outside:\n%s", got)
	}
}

// TestSecondExecJoinsNamespaces checks that a command started while another runs shares its files, network, processes and
// walls, and continues when the first ends.
func TestSecondExecJoinsNamespaces(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t, "--outputs", "none")
	look := `grep -e ^Cap -e ^NoNewPrivs -e ^Seccomp: /proc/self/status; for n in /proc/self/ns/*; do readlink $n; done; cat /proc/self/mountinfo`
	server := `(perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:3000", Listen => 5, ReuseAddr => 1) or die; open F, ">/tmp/up"; close F; while ($c = $s->accept) { print $c "served\n"; close $c }') &
while ! test -e /tmp/up; do sleep 0.01; done`
	first := w.startInside("first", `echo shared >/tmp/shared; `+server+"\n("+look+") >.notes/look", "")
	if got := w.runInside(`cat /tmp/shared; cat </dev/tcp/127.0.0.1/3000; (` + look + `) | cmp - .notes/look && echo same; echo c >c; git add c; git commit -qm second`); got != "shared\nserved\nsame" {
		t.Errorf("got %q", got)
	}
	if got := w.git("log", "--format=%s", "-1", w.ref); got != "second" {
		t.Errorf("the commit of the second command was not imported while the first runs: %q", got)
	}
	third := w.startInside("third", "", `cat /tmp/shared; echo d >d; git add d; git commit -qm third`)
	w.resume("first")
	if err := first.Wait(); err != nil {
		t.Errorf("%v: %s", err, first.Stdout)
	}
	w.resume("third")
	if err := third.Wait(); err != nil {
		t.Errorf("%v: %s", err, third.Stdout)
	}
	if got := w.git("log", "--format=%s", "-1", w.ref); got != "third" {
		t.Errorf("the last commit of the branch is %q", got)
	}
	w.checkAndDiscard()
}

// TestJoiningExecUsesExistingWalls checks that a joining command gets the walls and the environment of the first command,
// even if the settings have changed since: its PATH must not name directories that are hidden there.
func TestJoiningExecUsesExistingWalls(t *testing.T) {
	t.Parallel()
	w := newWalledSandbox(t)
	hidden := filepath.Join(w.dir, "programs")
	w.write(filepath.Join(hidden, "tool"), "")
	w.git("config", "agency.sandbox.hide", hidden)
	first := w.startInside("first", "", "")
	w.git("config", "--unset", "agency.sandbox.hide")
	look := func() string {
		o := w.try([]string{"PATH=" + hidden + ":" + os.Getenv("PATH")}, filepath.Join(w.bin, "git-agency"), "exec", w.id, "--", "sh", "-c", `echo "$PATH"; ls -d `+hidden+`/*`)
		return o.stdout
	}
	if got := look(); strings.Contains(got, hidden) {
		t.Errorf("the joining command prints\n%s", got)
	}
	w.resume("first")
	if err := first.Wait(); err != nil {
		t.Errorf("%v: %s", err, first.Stdout)
	}
	if got := look(); strings.Count(got, hidden) != 2 {
		t.Errorf("a command in new walls prints\n%s", got)
	}
	w.checkAndDiscard()
}

// TestConcurrentExecCommitsAllImported checks that the commits of commands that run at the same time are all imported into
// the real repository, and that its locks make no command fail.
func TestConcurrentExecCommitsAllImported(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t)
	const commands, commits = 8, 3
	var all sync.WaitGroup
	for n := range commands {
		all.Go(func() {
			o := w.try(nil, "git-agency", "exec", w.id, "--", "bash", "-c", fmt.Sprintf(`tree=$(git rev-parse 'HEAD^{tree}')
for i in $(seq %d); do
	for try in $(seq 500); do
		head=$(git rev-parse HEAD)
		if git update-ref HEAD $(git commit-tree -p $head -m %d-$i $tree) $head 2>/dev/null; then continue 2; fi
	done
	exit 1
done`, commits, n))
			if o.code != 0 || o.stderr != "" {
				t.Errorf("%d: %+v", n, o)
			}
		})
	}
	all.Wait()
	if got := w.git("rev-list", "--count", w.ref, "^main"); got != strconv.Itoa(commands*commits) {
		t.Errorf("%s commits were imported", got)
	}
	w.checkAndDiscard()
}

// TestKilledExecLeavesNothing kills the command or the supervisor at various moments. The next command must run, import
// what was committed, and leave no lock, scratch directory or unreadable directory.
func TestKilledExecLeavesNothing(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t)
	w.runInside(`echo 0 >n; git add n; git commit -qm 0`)
	kill := func(i int, cmd *exec.Cmd) {
		victims := []int{cmd.Process.Pid}
		if i%2 == 0 {
			victims = supervisorPIDs(t, w.id)
		}
		for _, pid := range victims {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited
		}
		_ = cmd.Wait() // fails, because the process was killed
	}
	next := func() {
		t.Helper()
		if head := w.runInside(`rm -f "$(git rev-parse --git-dir)"/*.lock; git rev-parse HEAD`); head != w.git("rev-parse", w.ref) {
			t.Errorf("the commit was not imported: %s", head)
		}
		if o := w.try(nil, "find", filepath.Join(w.repo, ".git"), "-name", "*.lock", "-o", "-name", "incoming-*"); o.stdout != "" {
			t.Errorf("files left in the git directory: %s", o.stdout)
		}
		if left, err := unreadableDirs(w.data); err != nil || len(left) > 0 {
			t.Errorf("unreadable directories are left: %q, %v", left, err)
		}
	}
	for i := range 2 { // killed after a commit, while the command runs
		name := "killed-" + strconv.Itoa(i)
		cmd := w.startInside(name, "echo "+name+" >n; git commit -qam "+name, "")
		kill(i, cmd)
		next()
		if got := w.git("log", "--format=%s", "-1", w.ref); got != name {
			t.Errorf("%s: the last commit of the branch is %q", name, got)
		}
	}
	for i := range 16 { // killed at any moment
		cmd := exec.CommandContext(t.Context(), filepath.Join(w.bin, "git-agency"), "exec", w.id, "--", "sh", "-c", "date +%N >n; git commit -qam any")
		cmd.Dir, cmd.Env = w.repo, w.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Duration(i*7) * time.Millisecond); time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		kill(i, cmd)
		next()
	}
	w.checkAndDiscard()
}

// TestWallsInUnusualRepositories runs git inside walls with repositories and data directories of every kind and place.
func TestWallsInUnusualRepositories(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	arrangements := map[string]func(l *lab){
		"a long path": func(l *lab) {
			long := filepath.Join(l.dir, strings.Repeat("x", 120), strings.Repeat("y", 120))
			l.must("mkdir", "-p", long)
			l.must("mv", l.repo, long)
			l.repo = filepath.Join(long, "repo")
		},
		"special characters": func(l *lab) {
			odd := filepath.Join(l.dir, `sp ace,co:lon=;'"\e`)
			l.must("mv", l.repo, odd)
			l.repo = odd
			l.env = append(l.env, "AGENCY_DATA_DIR="+filepath.Join(l.dir, `da ta,co:lon=;'"\e`))
		},
		"a home under a symbolic link": func(l *lab) {
			l.must("mkdir", filepath.Join(l.dir, "real"))
			l.must("ln", "-s", "real", filepath.Join(l.dir, "link"))
			home := filepath.Join(l.dir, "link")
			l.env = append(l.env, "HOME="+home, "AGENCY_DATA_DIR=")
			l.must("mv", l.repo, home)
			l.repo = filepath.Join(home, "repo")
		},
		"a repository under a symbolic link": func(l *lab) {
			l.must("ln", "-s", "repo", filepath.Join(l.dir, "link"))
			l.repo = filepath.Join(l.dir, "link")
		},
		"a linked worktree": func(l *lab) {
			l.git("worktree", "add", "-q", filepath.Join(l.dir, "linked"))
			l.repo = filepath.Join(l.dir, "linked")
		},
		"a bare repository": func(l *lab) {
			l.git("clone", "-q", "--bare", ".", filepath.Join(l.dir, "bare.git"))
			l.repo = filepath.Join(l.dir, "bare.git")
		},
		"separate git directory": func(l *lab) {
			l.git("init", "-q", "--separate-git-dir", filepath.Join(l.dir, "elsewhere.git"))
		},
		"submodules": func(l *lab) {
			l.git("clone", "-q", ".", filepath.Join(l.dir, "inner"))
			l.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Join(l.dir, "inner"))
			l.git("commit", "-qm", "inner")
		},
		"alternate objects": func(l *lab) {
			l.git("clone", "-q", "--shared", ".", filepath.Join(l.dir, "shared"))
			l.repo = filepath.Join(l.dir, "shared")
		},
		"hard-linked objects": func(l *lab) {
			l.git("clone", "-q", "--local", ".", filepath.Join(l.dir, "local"))
			l.repo = filepath.Join(l.dir, "local")
		},
		"SHA-256": func(l *lab) {
			l.repo = filepath.Join(l.dir, "sha256")
			if err := os.Mkdir(l.repo, 0o755); err != nil {
				l.t.Fatal(err)
			}
			l.git("init", "-q", "-b", "main", "--object-format=sha256")
			l.write(filepath.Join(l.repo, "readme"), "hello\n")
			l.git("add", ".")
			l.git("commit", "-qm", "first")
		},
		"everything packed": func(l *lab) { l.git("gc", "-q") },
		"files of another user": func(l *lab) {
			if os.Geteuid() == 0 {
				l.must("chown", "-R", "1234:1234", filepath.Join(l.repo, "sub"))
			}
		},
		"no permissions for others": func(l *lab) { l.must("chmod", "-R", "go-rwx", l.repo) },
	}
	for _, name := range thin(slices.Sorted(maps.Keys(arrangements))) {
		arrange := arrangements[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			arrange(l)
			w := newWalledSandboxIn(l)
			w.runInside(`echo a >a; git add a; git commit -qm a; echo b >b; git add b; git tag t; git stash -q; git gc -q --prune=now`)
			w.runInside(`git stash pop -q; test "$(git status --porcelain)" = "A  b"; git rev-parse -q --verify t >/dev/null`)
			if got := w.runOutside("git log --format=%s -1; git status --porcelain"); got != "a\nA  b" {
				t.Errorf("git outside prints %q", got)
			}
			w.checkAndDiscard()
		})
	}
}

// TestBuildToolsWorkInsideWalls runs common build tools inside walls, most of them without a network. Tools that are not
// installed are skipped.
func TestBuildToolsWorkInsideWalls(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	needs := func(t *testing.T, tools ...string) {
		t.Helper()
		for _, tool := range tools {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("%s is not installed", tool)
			}
		}
	}
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped with -short: TestToolsWorkInPrivateHome runs go too")
		}
		needs(t, "go")
		l := newLab(t)
		l.repo = filepath.Join(l.dir, "clone")
		if out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "--no-hardlinks", "--depth=1", "file://"+source, l.repo).CombinedOutput(); err != nil {
			t.Skipf("cannot clone the source: %v: %s", err, out)
		}
		for _, name := range []string{"GOMODCACHE", "GOCACHE"} {
			out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
			if err != nil {
				t.Fatal(err)
			}
			l.env = append(l.env, name+"="+strings.TrimSpace(string(out)))
		}
		l.env = append(l.env, "GOPROXY=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED="+os.Getenv("CGO_ENABLED"))
		w := newWalledSandboxIn(l, "--outputs", "none")
		w.runInside("go build ./... && go test ./gitagency/internal/ids")
		w.checkAndDiscard()
	})
	t.Run("npm", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped with -short: TestToolsWorkInPrivateHome runs npm too")
		}
		needs(t, "node", "npm")
		w := newWalledSandbox(t, "--outputs", "none")
		got := w.runInside(`mkdir dep; echo '{"name":"dep","version":"1.0.0","main":"i.js"}' >dep/package.json; echo 'module.exports = "from dep"' >dep/i.js
npm init -y >/dev/null; npm install --offline --no-audit --no-fund ./dep >/dev/null
npm pkg set scripts.build="node -p 'require(\"dep\")'"; npm run -s build
node -e 'const s = require("http").createServer((q, a) => a.end("served")).listen(3000, "127.0.0.1", () => require("http").get("http://127.0.0.1:3000", a => a.on("data", d => { console.log(""+d); s.close(); process.exit() })))'`)
		if got != "from dep\nserved" {
			t.Errorf("got %q", got)
		}
		w.checkAndDiscard()
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		needs(t, "python3")
		w := newWalledSandbox(t, "--outputs", "none")
		got := w.runInside(`python3 -m venv --without-pip venv; ./venv/bin/python -c 'import sys, tempfile, multiprocessing
tempfile.TemporaryFile(); multiprocessing.Lock()
print(sys.prefix != sys.base_prefix)'`)
		if got != "True" {
			t.Errorf("got %q", got)
		}
		w.checkAndDiscard()
	})
	t.Run("make and cc", func(t *testing.T) {
		t.Parallel()
		needs(t, "make", "cc")
		w := newWalledSandbox(t)
		w.write(filepath.Join(w.tree, "hello.c"), "#include <stdio.h>\nint main(void) { return fclose(tmpfile()) + puts(\"built\") < 0; }\n")
		w.write(filepath.Join(w.tree, "Makefile"), "all: hello\n\t./hello\n")
		if got := w.runInside(`make -s`); got != "built" {
			t.Errorf("got %q", got)
		}
		w.checkAndDiscard()
	})
}

// TestDiscardRemovesUnreadableDirectories checks that an ordinary user can discard a sandbox with unreadable directories,
// those that the kernel creates in the overlay included.
func TestDiscardRemovesUnreadableDirectories(t *testing.T) {
	t.Parallel()
	alsoRunAsNobody(t)
	w := newWalledSandbox(t)
	w.runInside(`echo a >a; git add a; git commit -qm a; git gc -q --prune=now; mkdir -p deep/er; chmod 000 deep/er; chmod 000 deep`)
	w.runInside(`chmod 700 deep; chmod 700 deep/er; mkdir "$(git rev-parse --git-common-dir)/shut"; chmod 000 "$(git rev-parse --git-common-dir)/shut"`)
	w.checkAndDiscard()
	if left, err := unreadableDirs(w.data); err != nil || len(left) > 0 {
		t.Errorf("unreadable directories are left: %q, %v", left, err)
	}
}

// unreadableDirs lists the directories without any permission bits.
func unreadableDirs(dir string) (left []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed by a command that ends meanwhile
		}
		if err == nil && d.IsDir() {
			if fi, err := d.Info(); err == nil && fi.Mode().Perm() == 0 {
				left = append(left, path)
				return fs.SkipDir
			}
		}
		return err
	})
	return left, err
}
