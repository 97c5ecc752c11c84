package pathland

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// The same random commands leave the same files, whether they run in the directories, or in a sandbox over them that lands.
func TestLandingEqualsRunningTheCommandsInPlace(t *testing.T) {
	t.Parallel()
	cases := 40
	if testing.Short() {
		cases = 3
	}
	for seed := range cases {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(seed), 22))
			base := map[string]string{}
			for range 15 {
				name := randomPath(r)
				base[name] = []string{"text\n", "+x program\n", "->target", ""}[r.IntN(4)]
				for other := range base { // no path in a path
					if other != name && (strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/")) {
						delete(base, other)
					}
				}
			}
			l := newLab(t, base)
			script := randomScript(r, 20)
			copied := filepath.Join(l.home, "copy")
			l.must(os.Mkdir(copied, 0o755))
			l.run("cp", "-a", filepath.Join(l.home, "a"), filepath.Join(l.home, "b"), copied)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.Dir = copied
			_ = cmd.Run() // some commands fail, there as in the sandbox
			box, err := sandbox.Open(l.repo, l.id)
			l.must(err)
			_, err = box.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"sh", "-c", "cd .. && " + script}})
			l.must(err)
			_, err = l.land()
			l.must(err)
			got, inPlace := l.files(), (&lab{t: t, home: copied}).files()
			for _, files := range []map[string]string{got, inPlace} { // empty directories do not land
				maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, "/") })
			}
			if !maps.Equal(got, inPlace) {
				t.Errorf("seed %d: landed\n%q, in place\n%q\nscript:\n%s", seed, got, inPlace, script)
			}
		})
	}
}

func (l *lab) run(name string, args ...string) {
	l.t.Helper()
	if out, err := exec.CommandContext(l.t.Context(), name, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func randomPath(r *rand.Rand) string {
	names := []string{"x", "y", "z", "x y", "ü", "-n"}
	path := []string{"a", "b"}[r.IntN(2)]
	for range 1 + r.IntN(3) {
		path += "/" + names[r.IntN(len(names))]
	}
	return path
}

// randomScript returns a shell script that changes files below a and b.
func randomScript(r *rand.Rand, lines int) string {
	var s strings.Builder
	for range lines {
		p, q := randomPath(r), randomPath(r)
		q = p[:1] + q[1:] // a hard link cannot lead from one overlay to another
		form := []string{
			"rm -rf './%[1]s'", "mkdir -p './%[1]s'", "mv './%[1]s' './%[2]s'", "cp -a './%[1]s' './%[2]s'", "echo new >>'./%[1]s'", "ln -sf to './%[1]s'",
			"chmod +x './%[1]s'", "ln './%[1]s' './%[2]s'", "rm -rf './%[1]s'; mkdir -p './%[1]s'; echo in >'./%[1]s/in'", "mkdir -p \"$(dirname './%[1]s')\"; echo fresh >'./%[1]s'",
		}[r.IntN(10)]
		fmt.Fprintf(&s, form+" 2>/dev/null\n", p, q)
	}
	return s.String() + "true\n"
}
