package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// layerStamps returns all that can be known about each file and directory of the layers, by path: content, mode, owner,
// inode, mtime and ctime. The mtime of the directory of a layer is left out, since it is the time of the last use, and the ctime
// of an index, which new sandboxes change by a hard link to it.
func (l *lab) layerStamps() map[string]string {
	l.t.Helper()
	all, top := map[string]string{}, filepath.Join(l.data, "layers")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case fi.Mode().IsRegular():
			content = fmt.Sprintf("%x", sha256.Sum256([]byte(l.read(path))))
		case fi.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case d.IsDir():
			content, err = directoryXattrs(path)
		}
		st := fi.Sys().(*syscall.Stat_t)
		stamp := fmt.Sprintf("%s %d:%d inode %d, %q", fi.Mode(), st.Uid, st.Gid, st.Ino, content)
		name, _ := filepath.Rel(top, path)
		inLayer := strings.Count(name, string(filepath.Separator))
		if inLayer > 0 {
			stamp += fmt.Sprint(", mtime ", st.Mtim.Nano())
		}
		if inLayer > 0 && d.Name() != "index" {
			stamp += fmt.Sprint(", ctime ", st.Ctim.Nano())
		}
		all[name] = stamp
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	delete(all, ".")
	return all
}

// checkLayers checks that the layers are as they were; there may be new ones.
func (l *lab) checkLayers(what string, before map[string]string) {
	l.t.Helper()
	now := l.layerStamps()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			l.t.Fatalf("%s changed the layer: %s was %s and is %s", what, name, before[name], now[name])
		}
	}
}

// hostileScripts try to change the layer from inside a sandbox. $LAYER is its path, and $INDEX that of the sandbox's index.
var hostileScripts = []struct {
	name, script string
	needs        string // a program; may be empty
}{
	{"modes", "chmod -R 777 . || :; chmod -R a-w sub; chmod 400 readme", ""},
	{"owners", "chown -R 12345:12345 . || :; chgrp -R 12345 . || :", ""},
	{"times", "find . '(' -name .agency -o -name .git ')' -prune -o -exec touch -h -d 2001-02-03T04:05:06Z {} +", ""},
	{"truncation", ": >readme; truncate -s 0 sub/one; truncate -s 1m run.sh", ""},
	{"writes in place", "printf X | dd of=readme conv=notrunc status=none; printf X | dd of=sub/one bs=1 seek=1 conv=notrunc status=none; echo more >>run.sh", ""},
	{"hard links", "ln readme hard; echo hard >>hard; ln sub/one sub/hard; : >sub/hard; ln -P run.sh run; chmod 444 run", ""},
	{"a write through an open file", "exec 3<>readme 4<sub/one 5>>run.sh; rm readme sub/one run.sh; echo x >&3; echo x >&5; cat <&4; ls -l /proc/self/fd >/dev/null", ""},
	{"mapped memory", `python3 -c '
import mmap
for name in "readme", "sub/one":
    with open(name, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[0:1] = b"X"; m.flush()'`, "python3"},
	{"removal", "rm -rf sub readme; mkdir sub readme; echo other >sub/one", ""},
	{"renames", "mv readme other; mv run.sh readme; mv sub moved; mv other sub", ""},
	{"whiteouts", "rm readme; mknod readme c 0 0 || :; mknod new c 0 0 || :; mkfifo pipe", ""},
	{"attributes", `for name in user.overlay.opaque user.overlay.redirect user.x; do setfattr -n $name -v y sub || :; setfattr -n $name -v y readme || :; done`, "setfattr"},
	{"everything", "git ls-files -z | xargs -0 rm; rmdir sub/deep sub; git checkout -q -f HEAD", ""},
	{"git", "echo x >readme; git add -A; git commit -qm x; git rm -rq sub; git stash -q; git checkout -q HEAD~1; git clean -fdxq -e .agency; git reset -q --hard; git gc -q; git repack -adq", ""},
	{"indexes of git", "git update-index --index-version 4; git update-index --force-remove readme; git update-index --split-index; git update-index --no-split-index; git read-tree HEAD; git update-index --refresh -q || :", ""},
	{"an index written in place", `printf X | dd of="$INDEX" bs=1 seek=20 conv=notrunc status=none; git status >/dev/null || :`, ""},
	{"an index truncated", `: >"$INDEX"; git read-tree HEAD`, ""},
	{"a hard link of the index", `ln "$INDEX" "$INDEX.hard"; chmod 0666 "$INDEX.hard"; echo x >>"$INDEX.hard"; touch -d 2001-02-03 "$INDEX"; rm "$INDEX"; mv "$INDEX.hard" "$INDEX"`, ""},
	{"the index outside", `for file in "$OUTSIDE"/index "$OUTSIDE"; do echo x >>"$file" || :; chmod 0 "$file" || :; rm -f "$file" || :; done`, ""},
	{"the layer itself", `for file in "$LAYER"/tree/readme "$LAYER"/index "$LAYER"/layer.json; do echo x >>"$file" || :; chmod 0 "$file" || :; touch "$file" || :; ln "$file" stolen || :; rm -f "$file" || :; done; mkdir -p "$LAYER"/tree/new || :; echo x >stolen`, ""},
}

// TestLayersAreNeverModified runs commands in a sandbox that try to change its files by every means, and checks that the
// layer and another sandbox are as they were.
func TestLayersAreNeverModified(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	start := overlayArgs("start", "wt")
	other := l.must(start...)
	layers, err := filepath.Glob(filepath.Join(l.data, "layers", "*"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("the layers are %q, %v", layers, err)
	}
	before := l.layerStamps()
	if len(before) < 8 {
		t.Fatalf("the layer has only %q", before)
	}
	for i, c := range hostileScripts {
		if !isSelected(i, len(hostileScripts)) || c.needs != "" && l.try(nil, "which", c.needs).code != 0 {
			continue
		}
		id := l.must(start...)
		script := `INDEX=$(git rev-parse --path-format=absolute --git-path index)` + "\n" + c.script
		outside := filepath.Join(l.repo, ".git", "agency", "worktrees", id)
		if o := l.try(nil, "git-agency", "exec", id, "--", "env", "LAYER="+layers[0], "OUTSIDE="+outside, "sh", "-ec", script); o.code != 0 {
			t.Errorf("%s: ended with %d\n%s", c.name, o.code, o.stderr)
		}
		l.checkLayers(c.name, before)
		// The commands outside that read and change the sandbox.
		for _, args := range [][]string{{"snapshot", "create", id}, {"diff", id}, {"put", id, "readme", "run.sh"}, {"snapshot", "rollback", id, id + "/1"}, {"discard", id}} {
			if o := l.try(nil, append([]string{"git-agency"}, args...)...); o.code != 0 {
				t.Errorf("%s: %q ended with %d\n%s", c.name, args, o.code, o.stderr)
			}
			l.checkLayers(c.name+" and "+args[0], before)
		}
	}
	for _, id := range []string{other, l.must(start...)} {
		if status := l.inSandbox(id, "git status --porcelain; git diff-files --name-only; cat readme sub/one"); status != "hello\n1" {
			t.Errorf("in %s it prints %s", id, status)
		}
	}
	l.checkLayers("a new sandbox", before)
	if found := l.findings(); len(found) > 0 {
		t.Errorf("doctor found %+v", found)
	}
}
