package merge

import (
	"fmt"
	"maps"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// TouchedPaths returns the same paths as git diff-tree for random changes and renames, and pairs for which CannotConflict
// is true merge in git without a conflict.
func TestCannotConflictMatchesGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	random := rand.New(rand.NewPCG(3, 4))
	const rounds = 40
	var stream strings.Builder
	var sides [][2]string // refs
	for n := range rounds {
		base := map[string]string{}
		for _, name := range []string{"a/one", "a/two", "a/deep/three", "b/four", "b/five", "c", "d/six"} {
			base[name] = fmt.Sprintf("%s\n%s", name, strings.Repeat(fmt.Sprintln("line of", name), 8))
		}
		writeFastImportCommit(&stream, fmt.Sprintf("refs/base/%d", n), "", base)
		pair := [2]string{}
		for i := range pair {
			pair[i] = fmt.Sprintf("refs/side/%d-%d", n, i)
			files := editRandomly(random, base)
			if n < len(conflictingEdits) {
				files = maps.Clone(base)
				conflictingEdits[n][i](files)
			}
			writeFastImportCommit(&stream, pair[i], fmt.Sprintf("refs/base/%d", n), files)
		}
		sides = append(sides, pair)
	}
	cmd := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet")
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = l.Root, l.Env, strings.NewReader(stream.String()), os.Stderr
	l.Must(cmd.Run())

	m := repotest.NewMirror(l)
	independent, conflicts := 0, 0
	for n, pair := range sides {
		ids := strings.Fields(l.Git("rev-parse", fmt.Sprintf("refs/base/%d", n), pair[0], pair[1]))
		ask := [][2]string{{ids[0], ids[1]}, {ids[0], ids[2]}}
		touched, err := TouchedPaths(t.Context(), m, ask)
		l.Must(err)
		for _, p := range ask {
			var got []string
			for _, touch := range touched[p] {
				got = append(got, string(touch.Kind)+"\t"+touch.Path)
			}
			want := strings.FieldsFunc(l.Git("diff-tree", "-r", "--no-renames", "--name-status", p[0], p[1]), func(c rune) bool { return c == '\n' })
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%v: got %q, want %q", p, got, want)
			}
		}
		_, err = l.TryGit(l.Root, "merge-tree", "--write-tree", ids[1], ids[2])
		if CannotConflict(touched[ask[0]], touched[ask[1]]) {
			if independent++; err != nil {
				t.Errorf("%v: CannotConflict is true, but git finds a conflict:\n%v\n%v", ids, touched[ask[0]], touched[ask[1]])
			}
		}
		if err != nil {
			conflicts++
		}
	}
	if independent < 5 || conflicts < 5 {
		t.Errorf("%d pairs cannot conflict, %d conflict: too few for this test", independent, conflicts)
	}
}

// conflictingEdits are pairs of edits that conflict, or may conflict, although they touch no path in common.
var conflictingEdits = [][2]func(files map[string]string){
	{ // a new file must follow the renamed directory
		func(files map[string]string) {
			for _, name := range []string{"four", "five"} {
				files["elsewhere/"+name] = files["b/"+name]
				delete(files, "b/"+name)
			}
		},
		func(files map[string]string) { files["b/new"] = "new\n" },
	},
	{ // a file and a directory of the same name
		func(files map[string]string) { files["thing"] = "a file\n" },
		func(files map[string]string) { files["thing/below"] = "below\n" },
	},
}

// editRandomly returns files with random edits: changes, removals, additions, files and directories that replace each
// other, and renames of both.
func editRandomly(random *rand.Rand, base map[string]string) map[string]string {
	files := maps.Clone(base)
	for range 1 + random.IntN(2) {
		names := slices.Sorted(maps.Keys(files))
		name := names[random.IntN(len(names))]
		dir, _, inDir := strings.Cut(name, "/")
		switch random.IntN(7) {
		case 0, 1:
			files[name] += fmt.Sprintln("more", random.IntN(1000))
		case 2:
			delete(files, name)
		case 3:
			files[fmt.Sprintf("%s/new%d", dir, random.IntN(20))] = fmt.Sprintln(random.IntN(1000))
			if !inDir {
				delete(files, dir)
			}
		case 4:
			files[fmt.Sprintf("moved%d", random.IntN(5))] = files[name]
			delete(files, name)
		case 5:
			for _, other := range names {
				if rest, below := strings.CutPrefix(other, dir+"/"); below {
					files["elsewhere/"+rest] = files[other]
					delete(files, other)
				}
			}
		case 6:
			maps.DeleteFunc(files, func(other, _ string) bool { return strings.HasPrefix(other, dir+"/") })
			files[dir] = fmt.Sprintln("a file", random.IntN(1000))
		}
	}
	return files
}

// writeFastImportCommit writes a commit in the format of git fast-import.
func writeFastImportCommit(b *strings.Builder, ref, from string, files map[string]string) {
	fmt.Fprintf(b, "commit %s\ncommitter s <s@example.com> 1700000000 +0000\ndata 0\n", ref)
	if from != "" {
		fmt.Fprintf(b, "from %s\n", from)
	}
	b.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(b, "M 100644 inline %s\ndata %d\n%s\n", name, len(files[name]), files[name])
	}
}
